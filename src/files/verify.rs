//! Completions in a file of lines compared with their references, line by line: the file may be many times the memory.

use std::path::Path;

use super::format::Format;
use super::json::{self, JsonType};
use super::lines::Blocks;
use super::parquet::{Shape, ValueType};
use super::words::{self, Tokenize};
use super::{Progress, Result};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::suggest;
use advlab_answers::Verdict;

/// The fields of completions and of their references, unless the user names others.
const FIELDS: [(&str, &[&str]); 2] = [
    ("completion", &["completion", "output"]),
    ("solution", &["solution", "answer", "gts"]),
];

const LENGTH: &str = "length";

/// The fields that are written, with their types in parquet.
const WRITTEN: [(&str, Shape); 2] = [
    ("correct", (ValueType::Bool, false)),
    (LENGTH, (ValueType::Int, false)),
];

/// A line that was verified.
#[derive(Debug)]
pub struct Verified {
    /// The reference's answer; `None` if there is none.
    pub reference: Option<String>,
    /// The completion's answer; `None` if there is none.
    pub answer: Option<String>,
    /// How they compare.
    pub verdict: Verdict,
    /// The completion's tokens, if a tokenizer counted them.
    pub length: Option<usize>,
}

impl Verified {
    /// Compares the texts of a line's fields. A number counts as its text in the file, a chat as the text of its messages.
    fn new(
        fields: &[(&str, &str)],
        names: &[String; 2],
        tokenizer: Option<&dyn Tokenize>,
    ) -> Result<Verified> {
        let [completion, solution] = names.each_ref().map(|name| json::value_of(fields, name));
        let text = |raw: Option<&str>| match raw.map(|raw| (raw, json::type_of(raw))) {
            Some((raw, JsonType::String)) => json::text(raw).into_owned(),
            Some((raw, JsonType::Array)) => words::text_of_chat(raw).unwrap_or_default(),
            None | Some((_, JsonType::Null)) => String::new(),
            Some((raw, _)) => raw.to_string(),
        };
        let (text, reference) = (text(completion), text(solution));
        let tokenizer = tokenizer.filter(|_| json::value_of(fields, LENGTH).is_none());
        let counted = match completion.filter(|_| tokenizer.is_some()) {
            Some(raw) => words::count_value(raw, &text, tokenizer),
            None => Ok(None),
        };
        let wrong = |what: String| Diagnostic::error("").found(what).in_field(&names[0]);
        let length = counted.map_err(wrong)?;
        let (verdict, reference, answer) = advlab_answers::compared(&reference, &text);
        Ok(Verified {
            reference,
            answer,
            verdict,
            length,
        })
    }
}

/// Compares the completion of each line of a file with its solution, in parallel, and calls `told` in order with each result
/// and its line number. If there is an `output`, each line is written there with the field `correct`.
///
/// `asked` has names for the fields of the completion and the solution, if these are not the usual ones. A tokenizer counts
/// the tokens of completions in lines without a `length`, and writes the counts as `length`.
///
/// # Errors
/// The line and what is wrong in it, a field that is not there, or why the output cannot be written; nothing half-written
/// is left.
pub fn verify_lines(
    path: &Path,
    asked: [Option<&str>; 2],
    tokenizer: Option<&dyn Tokenize>,
    progress: &(dyn Fn(u64, u64) + Sync),
    output: Option<&Path>,
    told: &mut (dyn FnMut(usize, Verified) + Send),
) -> Result<(), Diagnostics> {
    if Format::named(path).is_some_and(|format| format != Format::Lines) {
        let error = Diagnostic::error("it holds tensors, and answers are compared in lines");
        let help = "`advlab convert` writes its texts as lines, if it has some";
        return Err(error.in_file(path).with_help(help).into());
    }
    if let Some(output) = output {
        Format::Lines.check_copy("the verdict", output)?;
    }
    let progress = Progress::new(Some(progress));
    let mut blocks = Blocks::open(path, &progress)?;
    let first = blocks.begin()?;
    let all: Vec<&str> = first.iter().map(|(field, _)| field.as_str()).collect();
    let field = |at: usize| field(at, asked[at], &all).map_err(|error| error.in_file(path));
    let names = [field(0)?, field(1)?];
    let parse = |fields: &[(&str, &str)]| Verified::new(fields, &names, tokenizer);
    let values = |line, verified: Verified| {
        let is_right = (verified.verdict == Verdict::Equal).to_string();
        let length = verified
            .length
            .map(|length| length.to_string().into_bytes());
        told(line, verified);
        Ok(vec![Some(is_right.into_bytes()), length])
    };
    blocks.copy(output, &WRITTEN, parse, values, None)?;
    progress.finish();
    Ok(())
}

/// The field of completions (0) or of solutions (1) in lines that have all these.
fn field(at: usize, asked: Option<&str>, all: &[&str]) -> Result<String> {
    let (ours, known) = FIELDS[at];
    let is_there = |name: &&str| all.contains(name);
    let found = match asked {
        Some(asked) => Some(asked).filter(is_there),
        None => known.iter().copied().find(is_there),
    };
    found.map(str::to_string).ok_or_else(|| {
        let what = match asked {
            Some(asked) => format!("there is no field `{asked}`"),
            None => format!("nothing says which field has the {ours}"),
        };
        let near = suggest::list(all.iter().copied());
        let help = format!("there is {near}: `--{ours} FIELD` names the one that has the {ours}");
        Diagnostic::error(what).with_help(help)
    })
}
