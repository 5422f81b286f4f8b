//! Compares the completions in a JSONL or parquet file with their references, line by line, so that the file may be larger than
//! the memory.

use std::path::Path;

use safetensors::Dtype;

use super::added::NewColumn;
use super::blocks::Blocks;
use super::cell::{self, JsonType};
use super::format::Format;
use super::json;
use super::jsonl::too_late;
use super::messages::{self, COMPLETION, Choice, Choices, REFERENCE, TextKind};
use super::parquet;
use super::place::Result;
use super::schema::{Fields, has_spare, is_dialogue, late_references, likely_texts};
use super::words::{self, Tokenize};
use crate::batch::{Column, SOLUTIONS, compared, is_replaced, references};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::suggest;
use advlab_answers::Verdict;

const CORRECT: &str = "correct";
const LENGTH: &str = "length";

/// A line that was verified.
#[derive(Debug)]
pub struct Verified {
    /// The answer of the reference; `None` if the reference has no answer.
    pub reference: Option<String>,
    /// The answer of the completion; `None` if the completion has no answer.
    pub answer: Option<String>,
    /// The result of comparing these answers; `None` if the reference has no answer.
    pub verdict: Option<Verdict>,
    /// The number of tokens of the completion, if a tokenizer counted them.
    pub length: Option<usize>,
}

/// What was compared.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Compared {
    /// The field with the completion, or its path.
    pub completion: String,
    /// The field with the reference, or its path. A line may have a short `answer` in addition to a worked `solution`.
    pub references: Vec<String>,
    /// Notes on which references were used.
    pub notes: Vec<Diagnostic>,
    /// Whether `answer` is compared if the reference is blank.
    has_spare: bool,
    /// The fields that the first lines lack, and that would be compared instead if the first lines had them.
    late: Vec<&'static str>,
    kind: TextKind,
}

impl Verified {
    /// Compares the completion in a line's fields with the reference. Also returns how the reference was chosen.
    fn new(
        fields: &[(&str, &str)],
        names: &Compared,
        tokenizer: Option<&dyn Tokenize>,
    ) -> Result<(Verified, Vec<Choice>)> {
        let is_late = |(key, raw): &&(&str, &str)| {
            *raw != "null" && names.late.contains(&&key[1..key.len() - 1])
        };
        if let Some((key, _)) = fields.iter().find(is_late) {
            return Err(too_late(&json::text(key)));
        }
        let value = |name: &str| Ok(json::value_at(fields, name)?.unwrap_or("null"));
        let wrong = |name: &str, option, expected, found: String| {
            let help = format!("`--{option} {name}.FIELD` reads a field of this object");
            let is_object = found == "an object";
            let error = Diagnostic::error("").found(found).in_field(name);
            let error = error.expected(expected);
            if is_object {
                error.with_help(help)
            } else {
                error
            }
        };
        let completion = &names.completion;
        let raw = value(completion)?;
        let said = names.kind.said(raw);
        let said = said.map_err(|found| wrong(completion, "completion", COMPLETION, found))?;
        let is_counted = json::value_of(fields, LENGTH).is_none();
        let length = tokenizer.filter(|_| is_counted).map(|tokenizer| {
            let counts = said.iter().map(|text| words::count(text, Some(tokenizer)));
            counts.sum::<Result<usize, String>>()
        });
        let cannot = |what: String| Diagnostic::error("").found(what).in_field(completion);
        let length = length.transpose().map_err(cannot)?;
        let reference = |name: &str| {
            let raw = value(name)?;
            let text = messages::reference(raw)
                .map_err(|found| wrong(name, "solution", REFERENCE, found))?;
            let is_object = cell::type_of(raw) == JsonType::Object;
            Ok::<_, Diagnostic>((text.unwrap_or_default(), is_object))
        };
        let (mut text, mut is_object) = reference(&names.references[0])?;
        let mut choices = Vec::from_iter((raw == "null").then_some(Choice::NoCompletion));
        let second = names.references.get(1).map(|name| reference(name));
        if let Some((answer, is_field)) = second.transpose()?
            && is_replaced(&text, &answer)
        {
            choices.extend((!text.trim().is_empty()).then_some(Choice::Answer));
            (text, is_object) = (answer, is_field);
        }
        if names.has_spare && text.trim().is_empty() {
            (text, is_object) = reference("answer")?;
            choices.extend((!text.trim().is_empty()).then_some(Choice::Spare));
        }
        choices.extend((references(&text).len() > 1).then_some(Choice::AnyOfList));
        choices.extend(is_object.then_some(Choice::FieldOfObject));
        let (verdict, reference, answer) = compared(&text, &messages::answer(said));
        let verified = Verified {
            verdict: reference.is_some().then_some(verdict),
            reference,
            answer,
            length,
        };
        Ok((verified, choices))
    }
}

/// Compares the completion of each line of a file with its solution, in parallel, and calls `told` with each result and its line
/// number, in order. If there is an `output`, a copy of the file with the field `correct` is written there.
///
/// `asked` has the names of the fields with the completion and the solution, if these fields do not have their usual names. If
/// there is a tokenizer, it counts the tokens of completions in lines without a `length`, and the copy has the counts as
/// `length`. Returns the fields that were compared.
///
/// # Errors
/// The error names the line and its problem, a missing field, or why the output cannot be written. No incomplete file is left.
pub fn verify_lines(
    path: &Path,
    asked: [Option<&str>; 2],
    tokenizer: Option<&dyn Tokenize>,
    progress: &(dyn Fn(u64, u64) + Sync),
    output: Option<&Path>,
    told: &mut (dyn FnMut(usize, Verified) + Send),
) -> Result<Compared, Diagnostics> {
    let format = Format::among(path, |format| format != Format::Safetensors)?;
    if format == Format::Safetensors {
        let what = "`verify` reads JSONL or parquet; this file has tensors, but no texts";
        return Err(Diagnostic::error(what).in_file(path).into());
    }
    if let Some(output) = output {
        format.check_copy("the verdict", output)?;
    }
    let mut blocks = Blocks::new(path, parquet::lines(path, Some(progress)), asked[0])?;
    let first = blocks.begin()?;
    let field = |ours, asked: Option<&str>, taken: &str| {
        let likely = || likely_texts(ours, &first);
        let mut names = asked.map_or_else(likely, |asked| vec![asked]).into_iter();
        let found = names.find(|name| *name != taken && blocks.has(name));
        let wrong = || no_field(ours, asked, taken, &first).in_file(path);
        found.map(str::to_string).ok_or_else(wrong)
    };
    let completion = field("completion", asked[0], "")?;
    let reference = field("solution", asked[1], &completion)?;
    let chosen = reference.clone();
    let (mut references, mut left_out, mut is_spare) = (vec![reference], None, false);
    let is_first = |name: &str| first.iter().any(|(field, _)| field == name);
    // A line may have a `solution` or an `answer` although the first lines have none.
    let is_usable = |name: &&str| *name != completion;
    let own: Vec<&str> = SOLUTIONS.into_iter().filter(is_usable).collect();
    if asked[1].is_none() && own.contains(&&*references[0]) {
        references = own.iter().map(|name| name.to_string()).collect();
    } else if own.contains(&"answer") && references[0] != "answer" {
        let reference = &references[0];
        let note = format!("`answer` is not compared, because the reference is `{reference}`");
        left_out = is_first("answer").then(|| Diagnostic::note(note));
        is_spare = asked[1].is_none() && has_spare(&first);
    }
    let is_late = |name: &&str| asked[1].is_none() && *name != completion;
    let late = late_references(&chosen, &first);
    let late = late.into_iter().filter(is_late).collect();
    let mut names = Compared {
        completion,
        references,
        notes: Vec::new(),
        has_spare: is_spare,
        late,
        kind: TextKind::Completion(is_dialogue(&first)),
    };
    let parse = |fields: &[(&str, &str)]| Verified::new(fields, &names, tokenizer);
    let mut all_choices = Choices::default();
    // Passes a result on to the caller's `told`, and returns the values to write: whether the answer is correct (`None` if the
    // reference has no answer), and the length if it was counted.
    let mut told = |line, (verified, choices): (Verified, Vec<Choice>)| {
        for choice in choices {
            if choice == Choice::Spare {
                left_out = None;
            }
            all_choices.add(choice, 1, format!("line {line}"));
        }
        let is_right = verified.verdict.map(|verdict| verdict == Verdict::Equal);
        let length = verified.length;
        told(line, verified);
        (is_right, length)
    };
    match output.filter(|_| format == Format::Lines) {
        Some(output) => {
            let values = |line, verified| {
                let (is_right, length) = told(line, verified);
                let is_right = is_right.map_or("null".to_string(), |is| is.to_string());
                let length = length.map(|length| length.to_string().into_bytes());
                Ok(vec![Some(is_right.into_bytes()), length])
            };
            blocks.copy(output, &[CORRECT, LENGTH], parse, values, None)?;
        }
        None => {
            let (mut verdicts, mut lengths) = (Vec::new(), Vec::new());
            let parse = |line: &str| parse(&json::fields(line)?);
            blocks.each_line(parse, |line, _, verified| {
                let verified = verified.map(|verified| told(line, verified));
                if let (Some((is_right, length)), Some(_)) = (verified, output) {
                    verdicts.push(is_right.map_or(f64::NAN, |is| f64::from(u8::from(is))));
                    // The conversion is exact, because a text has far fewer than 2^53 tokens.
                    lengths.push(length.map_or(f64::NAN, |length| length as f64));
                }
                Ok(())
            })?;
            if let Some(output) = output {
                let columns = [
                    (CORRECT, verdicts, Dtype::BOOL),
                    (LENGTH, lengths, Dtype::I64),
                ];
                let columns = columns.into_iter().filter(|(name, values, _)| {
                    *name == CORRECT || values.iter().any(|value| !value.is_nan())
                });
                let columns = columns.map(|(name, values, dtype)| NewColumn {
                    name,
                    values: Column::Response(values.into()),
                    tokens: None,
                    whole: None,
                    dtype,
                });
                parquet::add(path, &columns.collect::<Vec<_>>(), output, None)?;
            }
        }
    }
    names
        .references
        .retain(|name| *name == chosen || is_first(name));
    let of_choices = all_choices.notes().map(Diagnostic::note);
    names.notes.extend(left_out.into_iter().chain(of_choices));
    Ok(names)
}

/// Returns the error for a field that is not there, or that no field seems to be; `taken` is the field with the completion.
fn no_field(ours: &str, asked: Option<&str>, taken: &str, first: Fields) -> Diagnostic {
    let what = match asked {
        Some(asked) => format!("there is no field `{asked}`"),
        None => format!("nothing says which field has the {ours}"),
    };
    let near = suggest::list(first.iter().map(|(field, _)| field.as_str()));
    let mut help = format!("there is {near}: `--{ours} FIELD` names the field with the {ours}");
    if let Some((field, _)) = first.iter().find(|(_, kind)| **kind == JsonType::Object) {
        help += &format!(", and `--{ours} {field}.FIELD` names a field inside an object");
    }
    if !taken.is_empty() {
        help += &format!("; the completion is `{taken}`");
    }
    Diagnostic::error(what).with_help(help)
}
