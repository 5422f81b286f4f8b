//! One name explained: a function or member with its example, a recipe with its parameters.

use crate::Batch;
use crate::paint::{Paint, wrapped};
use crate::script::{Evaluated, Host, Member, Recipe, ScriptError};
use crate::tensor::op::Op;

/// A row of the op table.
pub(super) fn function(host: &Host, op: &'static Op, paint: Paint) -> Result<String, ScriptError> {
    let mut lines = vec![
        paint.bold(&op.signature()),
        wrapped("  ", op.doc),
        paint.dim(&wrapped(
            "  ",
            &format!("{}: {}", op.class, op.class.levels()),
        )),
    ];
    if !op.source.is_empty() {
        lines.push(paint.dim(&wrapped("  ", &format!("source: {}", op.source))));
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
        filled(recipe.doc())
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

/// A doc comment with its paragraphs filled anew for 80 letters; what is indented, formulas, stays as it is.
fn filled(doc: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut paragraph = String::new();
    for line in doc.lines().chain([""]) {
        let is_text = !line.is_empty() && !line.starts_with(' ');
        if is_text {
            paragraph.push_str(line);
            paragraph.push(' ');
            continue;
        }
        if !paragraph.is_empty() {
            lines.push(wrapped("", &std::mem::take(&mut paragraph)));
        }
        lines.push(line.to_string());
    }
    lines.join("\n").trim_end().to_string()
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
