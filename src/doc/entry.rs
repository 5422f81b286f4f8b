//! One name explained: a function or member with its example, a recipe with its parameters.

use crate::Batch;
use crate::batch::known;
use crate::diagnostic::Diagnostics;
use crate::figures::value;
use crate::paint::{Paint, beside, wrapped};
use crate::script::{Answer, Computed, Host, Member, Recipe};
use crate::tensor::Level;
use crate::tensor::op::Op;

pub(super) fn function(host: &Host, op: &'static Op, paint: Paint) -> Result<String, Diagnostics> {
    let levels = format!("{}: {}", op.class, op.class.levels());
    let source = format!("source: {}", op.source);
    let notes: &[&str] = match op.source {
        "" => &[&levels],
        _ => &[&levels, &source],
    };
    entry(host, &op.signature(), op.doc, notes, op.example, paint)
}

pub(super) fn member(host: &Host, member: &Member, paint: Paint) -> Result<String, Diagnostics> {
    entry(host, member.call, member.doc, &[], member.example, paint)
}

fn entry(
    host: &Host,
    call: &str,
    doc: &str,
    notes: &[&str],
    example: &str,
    paint: Paint,
) -> Result<String, Diagnostics> {
    let indented = |text: &str| wrapped("  ", text, paint.width);
    let mut lines = vec![paint.bold(call), indented(doc)];
    lines.extend(notes.iter().map(|note| paint.dim(&indented(note))));
    lines.extend(self::example(host, example)?);
    Ok(lines.join("\n"))
}

/// An example, run on the batch of the examples: the columns that it reads and its result, group by group.
fn example(host: &Host, script: &str) -> Result<Vec<String>, Diagnostics> {
    let batch = Batch::example();
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for column in columns(script, &batch) {
        if let Answer::Tensor(computed) = host.evaluate(&column, &batch)? {
            rows.push((column, by_group(&computed)));
        }
    }
    rows.push(match host.evaluate(script, &batch)? {
        Answer::Tensor(computed) => (format!("= {}", computed.level()), by_group(&computed)),
        other => ("=".to_string(), vec![shown(&other)]),
    });
    let names = rows.iter().map(|(name, _)| name.len());
    let of_name = names.max().unwrap_or(0);
    let grouped = rows.iter().filter(|(_, groups)| groups.len() > 1);
    let of_first = grouped
        .map(|(_, groups)| groups[0].len())
        .max()
        .unwrap_or(0);
    let mut lines = vec![String::new(), format!("  > {script}")];
    for (name, mut groups) in rows {
        if groups.len() > 1 {
            groups[0] = format!("{:<of_first$}", groups[0]);
        }
        lines.push(format!("  {name:<of_name$}  {}", groups.join("  ")));
    }
    Ok(lines)
}

/// The columns of the example batch that a script reads, as it writes them, but for its own result.
fn columns(script: &str, batch: &Batch) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    // A batch, or one of its groups.
    for (at, owner) in ["batch.", "g."]
        .iter()
        .flat_map(|owner| script.match_indices(owner))
        .filter(|(at, _)| !script[..*at].ends_with(is_part))
    {
        let rest = &script[at + owner.len()..];
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let name = &rest[..end];
        let is_column =
            batch.columns().any(|column| column == name) || known::column(name).is_some();
        let column = format!("batch.{name}");
        if is_column && column != script && !found.contains(&column) {
            found.push(column);
        }
    }
    found
}

/// The values of a tensor, a string for each group.
fn by_group(computed: &Computed) -> Vec<String> {
    let (layout, level) = (computed.layout(), computed.level());
    let values: Vec<f64> = computed.buffer().iter().collect();
    let texts = |values: &[f64]| -> Vec<String> { values.iter().map(|x| value(*x)).collect() };
    let of_group = |group: usize| {
        let members = layout.members(group).iter().map(|&member| member as usize);
        let numbers: Vec<String> = match level {
            Level::Group => texts(&values[group..=group]),
            Level::Position => texts(&values[layout.positions_of(group)]),
            Level::Token => members
                .map(|member| format!("[{}]", texts(&values[layout.tokens_of(member)]).join(" ")))
                .collect(),
            _ => members.map(|member| value(values[member])).collect(),
        };
        let name = layout.group_id(group).name();
        format!("{name}: {}", numbers.join(" "))
    };
    match level {
        Level::Batch => texts(&values),
        _ => (0..layout.groups()).map(of_group).collect(),
    }
}

/// The result of an example, in full.
pub(super) fn shown(answer: &Answer) -> String {
    match answer {
        Answer::Tensor(computed) => {
            let values: Vec<String> = computed
                .buffer()
                .iter()
                .map(|value| format!("{value}"))
                .collect();
            format!("{} [{}]", computed.level(), values.join(", "))
        }
        Answer::String(text) => text.clone(),
        Answer::Array(items, _) => {
            let items = items.iter().flat_map(Answer::numbers);
            let items: Vec<String> = items.map(|item| format!("{item:?}")).collect();
            format!("[{}]", items.join(", "))
        }
        answer => {
            let numbers = answer.numbers();
            numbers.first().map_or(String::new(), f64::to_string)
        }
    }
}

/// A recipe: its doc and its parameters.
pub fn recipe(recipe: &Recipe, paint: Paint) -> String {
    let mut text = format!(
        "{} {}\n\n{}",
        paint.bold(recipe.name()),
        paint.dim(recipe.version().short()),
        filled(recipe.doc(), paint.width)
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
    let indent = 2 + width + 2;
    let mut lines = Vec::new();
    for ((parameter, _), name) in recipe.params().iter().zip(&names) {
        let head = format!("  {name}");
        lines.push(beside(&head, indent, &parameter.doc, paint.width));
        let takes = wrapped(&" ".repeat(indent), &parameter.takes(), paint.width);
        lines.push(paint.dim(&takes));
    }
    lines.join("\n")
}

/// A doc comment with its paragraphs filled anew for lines of so many columns; what is indented, formulas, stays.
pub(super) fn filled(doc: &str, columns: usize) -> String {
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
            lines.push(wrapped("", &std::mem::take(&mut paragraph), columns));
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
                Ok(answer) => shown(&answer),
                Err(error) => panic!("{}: {}", member.call, error.render(false)),
            };
            assert_eq!(got, member.shows, "{}", member.call);
        }
    }
}
