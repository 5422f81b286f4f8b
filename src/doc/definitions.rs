//! Definition files for editors: the op table and the members as Rhai declarations with their docs.

use super::{SECTIONS, members};
use crate::script::{Owner, language_definitions};
use crate::tensor::op::{self, Op, ParamKind};

/// Files by their names, with their content: `advlab.d.rhai` for what advlab adds, and those of the language itself.
pub fn definitions() -> Vec<(String, String)> {
    let mut text = String::from("module static;\n");
    for (title, about, of) in SECTIONS {
        text.push_str(&format!("\n// {title}: {about}\n"));
        for member in members(of).filter(|member| !["column", "index"].contains(&member.name)) {
            text.push_str(&format!(
                "\n/// {}\n///\n/// `{}`\n",
                member.doc, member.example
            ));
            text.push_str(match (member.of, member.name) {
                (Owner::Batch, "step") => "fn get step(batch: batch) -> int;\n",
                (Owner::Batch, "groups") => "fn get groups(batch: batch) -> array;\n",
                (Owner::Batch, "map_groups") => "fn map_groups(batch: batch, f: Fn) -> tensor;\n",
                (Owner::Batch, "regroup") => "fn regroup(batch: batch, key: tensor) -> batch;\n",
                (Owner::Batch, "has") => "fn has(batch: batch, name: string) -> bool;\n",
                (Owner::Batch, _) => "fn random(batch: batch, level: string) -> tensor;\n",
                (Owner::Tensor, "level") => "fn get level(x: tensor) -> string;\n",
                (Owner::Tensor, "value") => "fn value(x: tensor) -> float;\n",
                (Owner::Tensor, "values") => "fn values(x: tensor) -> array;\n",
                (Owner::Tensor, _) => "fn len(x: tensor) -> int;\n",
                (Owner::Nobody, "metric") => "fn metric(name: string, x: ?);\n",
                (Owner::Nobody, _) => "fn print(x: ?);\n",
            });
        }
    }
    for op in op::table() {
        text.push_str(&declared(op));
    }
    let mut files = vec![("advlab.d.rhai".to_string(), text)];
    files.extend(language_definitions());
    files
}

/// A row as a declaration, once for each number of arguments.
fn declared(op: &'static Op) -> String {
    let needed = op.params.iter().filter(|param| !param.optional).count();
    let kind = |kind: ParamKind| match kind {
        ParamKind::Tensor => "tensor",
        ParamKind::Number => "float",
        ParamKind::Level | ParamKind::Choice(_) => "string",
    };
    let mut text = String::new();
    for count in needed..=op.params.len() {
        let params = &op.params[..count];
        let source = match op.source {
            "" => String::new(),
            source => format!("///\n/// Source: {source}\n"),
        };
        text.push_str(&format!(
            "\n/// {}\n{source}///\n/// `{}`\n",
            op.doc, op.example
        ));
        let is_sign = !op.name.starts_with(char::is_alphabetic);
        let arguments: Vec<String> = params
            .iter()
            .map(|param| match is_sign {
                true => kind(param.kind).to_string(),
                false => format!("{}: {}", param.name, kind(param.kind)),
            })
            .collect();
        let word = if is_sign { "op " } else { "fn " };
        let space = if is_sign { " " } else { "" };
        text.push_str(&format!(
            "{word}{}{space}({}) -> tensor;\n",
            op.name,
            arguments.join(", ")
        ));
    }
    text
}
