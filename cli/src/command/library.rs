//! `advlab recipes`, `doc` and `new`: list the built-ins, explain them, and copy them for editing.

use std::path::PathBuf;

use crate::doc;
use crate::paint::{Paint, beside};
use advlab::check::needs;
use advlab::replace::Replacement;
use advlab::script::{BUILTINS, Host};
use anyhow::{Result, bail};
use clap::Args;
use console::Term;

use super::streams::{self, out};

/// List the built-in recipes, one line each: five to start with, then the others by kind.
#[derive(Args)]
pub struct Recipes {
    /// A trainer, such as verl, to list recipes by the names that this trainer uses; or words to search for, such as overlong
    #[arg(value_name = "TRAINER|WORDS")]
    words: Vec<String>,
    /// List only the recipes that need the column of this name, for example value
    #[arg(long, value_name = "COLUMN", conflicts_with = "words")]
    needs: Option<String>,
    /// Print a JSON object per recipe instead: its kind, summary, hooks and parameters; for a trainer, an object per name
    #[arg(long)]
    json: bool,
}

impl Recipes {
    pub fn run(self) -> Result<bool> {
        let paint = streams::whole(&Term::stdout());
        if self.json {
            let rows = if self.words.is_empty() {
                let names = BUILTINS.iter().map(|builtin| builtin.name);
                doc::builtins_json(names, self.needs.as_deref())?
            } else {
                doc::trainer_json(&self.words.join(" "))?
            };
            for row in rows {
                streams::data(&row.to_string())?;
            }
        } else if self.words.is_empty() {
            list(self.needs.as_deref(), paint)?
        } else {
            out!("{}", doc::trainer(&self.words.join(" "), paint)?)
        }
        Ok(true)
    }
}

/// Lists the built-ins, or only those that need a column.
fn list(column: Option<&str>, paint: Paint) -> Result<()> {
    let host = Host::new();
    let mut kinds = Vec::new();
    for (title, own) in doc::recipes() {
        let mut lines = vec![paint.dim(title)];
        for builtin in own {
            let recipe = host.load(builtin.name)?;
            if column.is_none_or(|column| needs(&recipe, column)) {
                let name = paint.bold(builtin.name);
                lines.push(beside(&name, 23, recipe.summary(), paint.width));
            }
        }
        kinds.extend((lines.len() > 1).then(|| lines.join("\n")));
    }
    match column {
        Some(column) if kinds.is_empty() => out!("no built-in recipe needs the column `{column}`"),
        _ => out!("{}\n\n{ABOUT}", kinds.join("\n\n")),
    }
    Ok(())
}

const ABOUT: &str = "`advlab doc NAME` explains a recipe; `advlab new FILE --from NAME` copies it;
`advlab recipes verl` lists the recipes by their names in verl.";

/// Explain a recipe or a function, with an example.
#[derive(Args)]
pub struct Doc {
    /// A function such as mean, a built-in recipe, the path of a .rhai file, or words to search for; all names if not given
    #[arg(value_name = "NAME|WORDS")]
    words: Vec<String>,
    /// Print one JSON object instead: the functions of that name, the recipe, and the text
    #[arg(long, requires = "words")]
    json: bool,
}

impl Doc {
    pub fn run(self) -> Result<bool> {
        if self.json {
            let asked = self.words.join(" ");
            streams::data(&doc::json(&Host::new(), &asked)?.to_string())?;
            return Ok(true);
        }
        let paint = streams::on_stdout();
        match &*self.words.join(" ") {
            "" => out!(
                "{}\n\n`advlab doc NAME` explains a name with an example, and `advlab doc WORDS` searches.",
                doc::overview(paint)
            ),
            asked => out!("{}", doc::explain(&Host::new(), asked, paint)?),
        }
        Ok(true)
    }
}

/// Copy a built-in recipe to a file, to edit it.
#[derive(Args)]
pub struct New {
    /// The file to write, such as my_recipe.rhai
    file: PathBuf,
    /// The recipe to start from; `advlab recipes` lists the built-ins
    #[arg(long, value_name = "RECIPE", default_value = "grpo")]
    from: String,
}

impl New {
    /// Writes the copy, unless the file exists already.
    pub fn run(self) -> Result<bool> {
        let recipe = Host::new().load(&self.from)?;
        let (file, from) = (self.file.display(), &self.from);
        if self.file.extension().is_none_or(|ending| ending != "rhai") {
            let better = self.file.with_extension("rhai");
            let better = better.display();
            bail!("{file}: the name of a recipe's file must end in .rhai, as in {better}");
        }
        if self.file.exists() {
            bail!("{file} already exists: choose another name");
        }
        Replacement::write(&self.file, recipe.text().as_bytes())?;
        out!("{file} is a copy of {from}. Edit it, then:");
        out!("  advlab check {file}");
        out!("  advlab apply {file} rollouts.jsonl");
        out!("  advlab compare {from} {file}");
        Ok(true)
    }
}
