//! `advlab verify FILE`: compares completions' answers with reference solutions.

use std::path::{Path, PathBuf};

use crate::number_text::{count, counted, share, value};
use crate::paint::{Paint, cut, visible};
use advlab::diagnostic::Diagnostic;
use advlab::files::{Compared, Verified, verify_lines};
use advlab_answers::Verdict;
use anyhow::Result;
use clap::Args;
use console::Term;
use serde_json::{Value, json};

use super::{Tokenizing, end_cleanly, files, streams};

/// The text that is shown instead of a verdict for a response whose reference has no answer.
const NO_REFERENCE: &str = "no reference";

/// Compare the answers of completions with reference solutions.
///
/// A table says how many completions are right, are wrong, have no answer, or could not be decided; the last two kinds count as
/// wrong, and a response whose reference has no answer is not judged. With `--tokenizer`, the tokens of each
/// completion on a line without a `length` are counted, and the table gives the mean number of tokens for each verdict.
#[derive(Args)]
pub struct Verify {
    /// The responses, one per line (.jsonl, .gz, .zst) or per row (.parquet)
    input: PathBuf,
    /// Write a copy of the input with the field `correct` and, if tokens were counted, `length`; `-` is standard output, and the
    /// table then goes to standard error
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Let the output replace the input
    #[arg(long, requires = "output")]
    force: bool,
    /// The field of the completion, or its path, such as `choices[0].message.content`, if `verify` does not find it
    #[arg(long, value_name = "FIELD")]
    completion: Option<String>,
    /// The field of the reference, or its path, such as `reward_model.ground_truth`, if `verify` does not find it
    #[arg(long, value_name = "FIELD")]
    solution: Option<String>,
    #[command(flatten)]
    tokenizing: Tokenizing,
    /// Show each response that is not right: the answer that was found, and the answer of the reference
    #[arg(long)]
    explain: bool,
    /// Print one JSON object instead of the table: the number of responses, their share and their mean length by verdict
    #[arg(long, conflicts_with = "explain")]
    json: bool,
}

impl Verify {
    pub fn run(self) -> Result<bool> {
        if let Some(output) = &self.output {
            files::spare_the_input(&self.input, output, self.force)?;
        }
        end_cleanly(streams::interrupted)?;
        let stream = files::report_stream(self.output.as_deref());
        let paint = streams::whole(&stream);
        let tokenizer = self.tokenizing.load()?;
        // Each row has, for one verdict, the number of responses, the number of responses whose tokens were counted, and the
        // number of these tokens. The last row is for responses without a reference.
        let mut counts = [[0; 3]; Verdict::ALL.len() + 1];
        let mut told = |line: usize, verified: Verified| {
            let row = verified
                .verdict
                .map_or(Verdict::ALL.len(), |verdict| verdict as usize);
            let [responses, counted, tokens] = &mut counts[row];
            *responses += 1;
            *counted += usize::from(verified.length.is_some());
            *tokens += verified.length.unwrap_or(0);
            if self.explain && verified.verdict != Some(Verdict::Equal) {
                let text = explained(line, &verified, paint);
                // The error is ignored here, because printing the table below then fails too, and reports the error.
                let _ = streams::lines(&stream, &text);
            }
        };
        let asked = [self.completion.as_deref(), self.solution.as_deref()];
        let bar = streams::bytes_bar("reading");
        let (input, tokenizer) = (&self.input, tokenizer.as_deref());
        let mut verify = |output: Option<&Path>| -> Result<Compared> {
            Ok(verify_lines(
                input, asked, tokenizer, &bar, output, &mut told,
            )?)
        };
        let compared = match &self.output {
            Some(output) => files::written(output, input, |output| verify(Some(output)))?,
            None => verify(None)?,
        };
        // The bar is cleared before anything is printed.
        drop(bar);
        self.tell(&counts, &compared, &stream)?;
        streams::tell(&compared.notes);
        if tokenizer.is_some() && counts.iter().all(|[_, counted, _]| *counted == 0) {
            let note = "the tokenizer is not used, because each line has a `length`";
            streams::tell(&[Diagnostic::note(note)]);
        }
        if let Some(output) = self
            .output
            .filter(|output| !self.json && !files::is_stdout(output))
        {
            streams::lines(
                &stream,
                &format!("  {:<15} {}", "written", output.display()),
            )?;
        }
        Ok(true)
    }

    /// Prints the fields that were compared, and the number of responses with each verdict, and of responses without
    /// a verdict.
    fn tell(&self, counts: &[[usize; 3]], compared: &Compared, stream: &Term) -> Result<()> {
        let all: usize = counts.iter().map(|[responses, ..]| responses).sum();
        let input = self.input.display();
        if self.json {
            let names = Verdict::ALL
                .map(Verdict::name)
                .into_iter()
                .chain([NO_REFERENCE]);
            let verdicts = names
                .zip(counts)
                .map(|(name, &[responses, counted, tokens])| {
                    let mean = (counted > 0).then(|| tokens as f64 / counted as f64);
                    let share = responses as f64 / all.max(1) as f64;
                    let own =
                        json!({ "responses": responses, "share": share, "mean_tokens": mean });
                    (name.to_string(), own)
                });
            let verdicts: Value = verdicts.collect();
            let Compared {
                completion,
                references,
                ..
            } = compared;
            let shown = json!({ "input": self.input, "completion": completion, "references": references, "responses": all, "verdicts": verdicts });
            return Ok(stream.write_line(&shown.to_string())?);
        }
        let (completion, references) = (&compared.completion, compared.references.join("` or `"));
        let fields = format!("compared `{completion}` with `{references}`");
        streams::lines(
            stream,
            &format!("{input}: {}, {fields}\n", counted(all, "response")),
        )?;
        let names = Verdict::ALL.iter().map(|verdict| verdict.name());
        for (name, &[responses, counted, tokens]) in names.chain([NO_REFERENCE]).zip(counts) {
            if name == NO_REFERENCE && responses == 0 {
                continue;
            }
            let (number, share) = (count(responses), share(responses, all));
            let mut line = format!("  {name:<15} {number:>9}   {share:>7}");
            if counted > 0 {
                let mean = tokens as f64 / counted as f64;
                line.push_str(&format!("   {} tokens on average", value(mean)));
            }
            streams::lines(stream, &line)?;
        }
        Ok(())
    }
}

/// Returns the line that `--explain` prints for a response that is not right.
fn explained(line: usize, verified: &Verified, paint: Paint) -> String {
    let shown = |answer: &Option<String>| match answer {
        Some(answer) => cut(&visible(&answer.replace('\n', " ")), 60),
        None => "none".to_string(),
    };
    let (reference, answer) = (shown(&verified.reference), shown(&verified.answer));
    let line = format!("line {line}");
    let verdict = verified.verdict.map_or(NO_REFERENCE, Verdict::name);
    let verdict = paint.bold(verdict);
    format!("{line:<10} {verdict}: {answer}   (reference: {reference})")
}
