//! One name explained: a function or member with its example, a recipe with its parameters.

use crate::Batch;
use crate::paint::Paint;
use crate::script::{Evaluated, Host, Member, Recipe, ScriptError};
use crate::tensor::op::Op;

/// A row of the op table.
pub(super) fn function(host: &Host, op: &'static Op, paint: Paint) -> Result<String, ScriptError> {
    let mut lines = vec![
        paint.bold(&op.signature()),
        format!("  {}", op.doc),
        format!(
            "  {}",
            paint.dim(&format!("{}: {}", op.class, op.class.levels()))
        ),
    ];
    if !op.source.is_empty() {
        lines.push(format!(
            "  {}",
            paint.dim(&format!("source: {}", op.source))
        ));
    }
    lines.extend(example(host, op.example)?);
    Ok(lines.join("\n"))
}

/// A member of a tensor or a batch.
pub(super) fn member(host: &Host, member: &Member, paint: Paint) -> Result<String, ScriptError> {
    let mut lines = vec![paint.bold(member.call), wrapped("  ", member.doc)];
    lines.extend(example(host, member.example)?);
    Ok(lines.join("\n"))
}

/// An example, run on the batch of the examples.
fn example(host: &Host, script: &str) -> Result<[String; 3], ScriptError> {
    let shown = shown(&host.evaluate(script, &Batch::example())?);
    Ok([String::new(), format!("  > {script}"), format!("  {shown}")])
}

/// What an example gave, in full.
pub(super) fn shown(evaluated: &Evaluated) -> String {
    match evaluated {
        Evaluated::Tensor(computed) => {
            let values: Vec<String> = computed
                .floats()
                .iter()
                .map(|value| format!("{value}"))
                .collect();
            format!("{} [{}]", computed.level(), values.join(", "))
        }
        Evaluated::Number(number) => format!("{number}"),
        Evaluated::Text(text) => text.clone(),
    }
}

/// A recipe: its doc and its parameters.
pub fn recipe(recipe: &Recipe, paint: Paint) -> String {
    let mut text = format!(
        "{} {}\n\n{}",
        paint.bold(recipe.name()),
        paint.dim(recipe.version().short()),
        recipe
            .doc()
            .lines()
            .map(folded)
            .collect::<Vec<_>>()
            .join("\n")
    );
    if recipe.params().iter().len() > 0 {
        text = format!(
            "{text}\n\n{}\n{}",
            paint.bold("parameters"),
            parameters(recipe, paint)
        );
    }
    text
}

/// A recipe's parameters: values, what they are for, what they take.
pub fn parameters(recipe: &Recipe, paint: Paint) -> String {
    let names: Vec<String> = recipe
        .params()
        .iter()
        .map(|(parameter, value)| format!("{} = {value}", parameter.name))
        .collect();
    let width = names
        .iter()
        .map(|name| name.len())
        .max()
        .unwrap_or(0)
        .min(30);
    let indent = " ".repeat(2 + width + 2);
    let mut lines = Vec::new();
    for ((parameter, _), name) in recipe.params().iter().zip(&names) {
        let about = wrapped(&indent, &parameter.doc);
        lines.push(format!("  {name:<width$}  {}", about.trim_start()));
        lines.push(paint.dim(&wrapped(&indent, &parameter.takes())));
    }
    lines.join("\n")
}

/// The letters of a line, where a reader's window may be that narrow.
const WIDTH: usize = 80;

/// A text in lines of at most 80 letters, each behind the same start.
fn wrapped(start: &str, text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let room = WIDTH.saturating_sub(start.len());
        let line = match lines.last_mut() {
            Some(line)
                if line.is_empty() || line.chars().count() + 1 + word.chars().count() <= room =>
            {
                line
            }
            _ => {
                lines.push(String::new());
                lines
                    .last_mut()
                    .unwrap_or_else(|| unreachable!("a line was just added"))
            }
        };
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    let lines: Vec<String> = lines.iter().map(|line| format!("{start}{line}")).collect();
    lines.join("\n")
}

/// A line of a doc comment, folded behind its own indentation where it is long.
fn folded(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    match line.chars().count() > WIDTH {
        true => wrapped(&line[..indent], line),
        false => line.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::MEMBERS;

    #[test]
    fn every_example_of_a_member_gives_what_it_shows() {
        let (host, batch) = (Host::new(), Batch::example());
        for member in MEMBERS {
            let got = match host.evaluate(member.example, &batch) {
                Ok(evaluated) => shown(&evaluated),
                Err(error) => panic!("{}: {}", member.call, error.render(false)),
            };
            assert_eq!(got, member.shows, "{}", member.call);
        }
    }
}
