//! `advlab doc [NAME]`: a recipe or a function, with a runnable example.

use std::process::ExitCode;

use advlab::Batch;
use advlab::script::{BUILTINS, Builtin, Evaluated, Host, Recipe};
use advlab::tensor::op::{self, Class, Op};
use anyhow::{Result, bail};
use clap::Args;

use super::out::out;
use super::style;

/// Explain a recipe or a function, with an example.
#[derive(Args)]
pub struct Doc {
    /// A function such as mean, a built-in recipe, or the path of a .rhai file; all names if not given
    name: Option<String>,
}

impl Doc {
    /// Prints the explanation.
    pub fn run(self) -> Result<ExitCode> {
        let Some(name) = self.name else {
            overview()?;
            return Ok(ExitCode::SUCCESS);
        };
        let rows: Vec<&'static Op> = op::table().filter(|op| op.name == name).collect();
        if !rows.is_empty() {
            for (place, op) in rows.into_iter().enumerate() {
                if place > 0 {
                    out!();
                }
                function(op)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        if Builtin::find(&name).is_some() || name.ends_with(".rhai") {
            recipe(&Host::new().load(&name)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        let names = op::table()
            .map(|op| op.name)
            .chain(BUILTINS.iter().map(|builtin| builtin.name));
        match advlab::nearest(&name, names) {
            Some(near) => {
                bail!("there is neither a function nor a recipe `{name}`: did you mean `{near}`?")
            }
            None => {
                bail!("there is neither a function nor a recipe `{name}`: `advlab doc` lists all")
            }
        }
    }
}

fn overview() -> Result<()> {
    for class in Class::ALL {
        out!(
            "{}  {}",
            style::bold(&class.to_string()),
            style::dim(class.levels())
        );
        for op in op::table().filter(|op| op.class == class) {
            out!("  {:<34} {}", op.signature(), op.doc);
        }
        out!();
    }
    let names: Vec<&str> = BUILTINS.iter().map(|builtin| builtin.name).collect();
    out!("{}  {}", style::bold("recipes"), names.join(", "));
    out!("\n`advlab doc NAME` explains one with an example.");
    Ok(())
}

fn function(op: &'static Op) -> Result<()> {
    out!("{}", style::bold(&op.signature()));
    out!("  {}", op.doc);
    out!(
        "  {}",
        style::dim(&format!("{}: {}", op.class, op.class.levels()))
    );
    if !op.source.is_empty() {
        out!("  {}", style::dim(&format!("source: {}", op.source)));
    }
    out!();
    out!("  > {}", op.example);
    let shown = match Host::new().evaluate(op.example, &Batch::example())? {
        Evaluated::Tensor(computed) => {
            let values: Vec<String> = computed
                .floats()
                .iter()
                .map(|value| format!("{value}"))
                .collect();
            format!("{} [{}]", computed.level(), values.join(", "))
        }
        Evaluated::Number(number) => format!("{number}"),
        Evaluated::Text(text) => text,
    };
    out!("  {shown}");
    Ok(())
}

fn recipe(recipe: &Recipe) -> Result<()> {
    out!(
        "{} {}",
        style::bold(recipe.name()),
        style::dim(recipe.version().short())
    );
    out!();
    out!("{}", recipe.doc());
    if recipe.params().iter().len() > 0 {
        out!("\n{}", style::bold("parameters"));
    }
    for (parameter, value) in recipe.params().iter() {
        let takes = style::dim(&parameter.takes());
        out!(
            "  {:<30} {}",
            format!("{} = {value}", parameter.name),
            parameter.doc
        );
        out!("  {:<30} {takes}", "");
    }
    out!("\n{}", style::bold("example"));
    out!(
        "  advlab apply {} rollouts.jsonl -o with_advantages.jsonl",
        recipe.name()
    );
    Ok(())
}
