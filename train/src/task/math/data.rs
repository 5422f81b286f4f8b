//! Questions and answers from a JSONL file.

use std::collections::HashSet;
use std::path::Path;

use serde_json::{Map, Value};

use crate::error;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::suggest::{did_you_mean, list};

/// Names that data sets give to their questions; the first that a line has counts.
const QUESTIONS: [&str; 5] = ["question", "problem", "prompt", "input", "query"];

/// Names that data sets give to answers: names of plain answers come before names of answers with a derivation.
const ANSWERS: [&str; 6] = [
    "answer",
    "final_answer",
    "ground_truth",
    "expected_answer",
    "target",
    "solution",
];

/// The question and the answer of each line, in their order; a question that was asked before is left out. The fields are
/// found by their names in the first line if they are empty.
pub(super) fn read(
    path: &Path,
    question: &str,
    answer: &str,
) -> Result<Vec<(String, String)>, Diagnostics> {
    let text = advlab::regular_file::read_to_string(path).map_err(error::io("read", path))?;
    let mut fields = [question.to_string(), answer.to_string()];
    let mut seen = HashSet::new();
    let mut pairs = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let (question, answer) =
            pair(line, &mut fields).map_err(|problem| problem.in_file(path).on_line(index + 1))?;
        if seen.insert(question.clone()) {
            pairs.push((question, answer));
        }
    }
    if pairs.is_empty() {
        let problem = Diagnostic::error("the file has no questions");
        return Err(problem.in_file(path).into());
    }
    Ok(pairs)
}

/// The question and the answer of a line; a field without a name gets the name that the line has.
fn pair(line: &str, fields: &mut [String; 2]) -> Result<(String, String), Diagnostic> {
    let row: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| Diagnostic::error(error.to_string()))?;
    for (field, names, key) in [(0, &QUESTIONS[..], "question"), (1, &ANSWERS[..], "answer")] {
        let field = &mut fields[field];
        if field.is_empty() {
            let name = names.iter().find(|name| row.contains_key(**name));
            let name = name.ok_or_else(|| {
                let message = format!(
                    "no field has a name of {key}s: {}",
                    list(names.iter().copied())
                );
                let help = format!("`{key}_field = \"NAME\"` names it");
                Diagnostic::error(message).with_help(help)
            })?;
            *field = (*name).to_string();
        }
    }
    let [question, answer] = fields;
    let question = match value(&row, question)? {
        Value::String(text) => text.clone(),
        other => {
            let problem = Diagnostic::error("this is no question").in_field(question.clone());
            return Err(problem.found(other.to_string()).expected("a string"));
        }
    };
    let wrong = |what: &str| Diagnostic::error(what).in_field(answer.clone());
    let text = match value(&row, answer)? {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        other => {
            let problem = wrong("this is no answer").found(other.to_string());
            return Err(problem.expected("a string or a number"));
        }
    };
    if text.trim().is_empty() {
        return Err(wrong("the answer is empty"));
    }
    if advlab_answers::reference(&text).is_none() {
        return Err(wrong("the solution has no answer"));
    }
    Ok((question, text))
}

fn value<'a>(row: &'a Map<String, Value>, field: &str) -> Result<&'a Value, Diagnostic> {
    row.get(field).ok_or_else(|| {
        let near = did_you_mean(field, row.keys().map(String::as_str));
        Diagnostic::error(format!("there is no `{field}`")).with_help(near)
    })
}
