//! Definition files for editors: the op table and the members as Rhai declarations with their docs.

use super::{OWNERS, members};
use crate::batch::known;
use crate::script::{Member, language_definitions};
use crate::tensor::op::{self, Class, Op, Param, ParamKind};

/// Files by their names, with their content: `advlab.d.rhai` for what advlab adds, and those of the language itself.
pub fn definitions() -> Vec<(String, String)> {
    let mut text = String::from("module static;\n");
    for (title, about, of) in OWNERS {
        text.push_str(&format!("\n// {title}: {about}\n"));
        members(of).for_each(|member| text.push_str(&of_member(member)));
    }
    for op in op::table() {
        text.push_str(&of_row(op));
    }
    let mut files = vec![("advlab.d.rhai".to_string(), text)];
    files.extend(language_definitions());
    files
}

fn of_member(member: &Member) -> String {
    match (member.name, member.declared) {
        ("column", "") => columns(),
        (_, "") => String::new(),
        (_, declared) => comment(member.doc, "", member.example) + declared + "\n",
    }
}

/// The columns that every batch may have. An editor cannot know those that only one file has.
fn columns() -> String {
    let getter = |known: &known::Known| {
        let (name, level) = (known.name, known.level);
        format!("\n/// a column: a {level} tensor\nfn get {name}(batch: batch) -> tensor;\n")
    };
    known::columns().map(getter).collect()
}

fn comment(doc: &str, source: &str, example: &str) -> String {
    let source = match source {
        "" => String::new(),
        source => format!("///\n/// Source: {source}\n"),
    };
    format!("\n/// {doc}\n{source}///\n/// `{example}`\n")
}

/// A row as declarations: for each number of arguments, and for each mix of tensors and numbers.
fn of_row(op: &'static Op) -> String {
    let is_sign = !op.name.starts_with(char::is_alphabetic);
    let needed = op.params.iter().filter(|param| !param.optional).count();
    let mut text = String::new();
    for count in needed..=op.params.len() {
        let params = &op.params[..count];
        for tensor in tensors(op, params) {
            let arguments = params.iter().enumerate().map(|(index, param)| {
                let kind = kind(param.kind, index == tensor);
                if is_sign {
                    kind.to_string()
                } else {
                    format!("{}: {kind}", param.name)
                }
            });
            let arguments = arguments.collect::<Vec<_>>().join(", ");
            let name = op.name;
            let head = if is_sign {
                format!("op {name} ")
            } else {
                format!("fn {name}")
            };
            // Of single values, a comparison is a plain true or false.
            let is_logic = op.class == Class::Logic;
            let result = if is_logic { "?" } else { "tensor" };
            text.push_str(&comment(op.doc, op.source, op.example));
            text.push_str(&format!("{head}({arguments}) -> {result};\n"));
        }
    }
    text
}

/// The indices of the arguments of which one must be a tensor, the others being tensors or numbers; a reduction and its
/// like are of their first argument.
fn tensors(op: &Op, params: &[Param]) -> Vec<usize> {
    if matches!(op.class, Class::Reduction | Class::Order | Class::Scan) {
        return vec![0];
    }
    let is_tensor = |index: &usize| params[*index].kind == ParamKind::Tensor;
    (0..params.len()).filter(is_tensor).collect()
}

/// An argument's type for editors, which have none for `a tensor or a number` but `?`.
fn kind(kind: ParamKind, is_tensor: bool) -> &'static str {
    match kind {
        ParamKind::Tensor if is_tensor => "tensor",
        ParamKind::Tensor | ParamKind::Number => "?",
        ParamKind::Level | ParamKind::Choice(_) => "string",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::MEMBERS;

    fn declared() -> String {
        definitions().swap_remove(0).1
    }

    #[test]
    fn numbers_stand_on_either_side_of_a_tensor() {
        let text = declared();
        for line in [
            "op - (tensor, ?) -> tensor;",
            "op - (?, tensor) -> tensor;",
            "op - (tensor) -> tensor;",
            "op < (?, tensor) -> ?;",
            "fn where(c: ?, a: tensor, b: ?) -> tensor;",
            "fn mean(x: tensor, level: string) -> tensor;",
        ] {
            assert!(text.lines().any(|declared| declared == line), "{line}");
        }
    }

    #[test]
    fn every_member_and_known_column_is_declared_under_its_own_name() {
        let text = declared();
        for known in known::columns() {
            let line = format!("fn get {}(batch: batch) -> tensor;", known.name);
            assert_eq!(text.matches(&line).count(), 1, "{line}");
        }
        for member in MEMBERS.iter() {
            let (name, declared) = (member.name, member.declared);
            match name {
                "column" | "index" if declared.is_empty() => {}
                _ => assert!(
                    declared.starts_with(&format!("fn get {name}("))
                        || declared.starts_with(&format!("fn {name}(")),
                    "{name}: {declared}"
                ),
            }
        }
    }
}
