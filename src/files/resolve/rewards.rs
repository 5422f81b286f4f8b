//! Finds responses without a reward, rejected responses, and the references with which completions are compared.

use std::borrow::Cow;
use std::sync::Arc;

use super::Resolving;
use super::level::expected;
use crate::batch::{Batch, references};
use crate::diagnostic::Diagnostic;
use crate::files::added::Whole;
use crate::files::messages::{Choice, Choices};
use crate::files::options::Unscored;
use crate::files::place::Result;
use crate::files::schema::Reading;
use crate::number_text::counted;

impl Resolving<'_> {
    /// Sets rewards that are null, NaN or missing to 0, and records their responses as unscored. Such a reward is an error if the
    /// options do not allow it, or if they omit unscored responses and no response would remain.
    pub(super) fn score(&mut self, reading: &Reading, values: &mut [f64]) -> Result<()> {
        let all = values.len();
        let nothing: Vec<usize> = (0..all).filter(|&at| values[at].is_nan()).collect();
        nothing.iter().for_each(|&at| values[at] = 0.0);
        let how = self.options.unscored;
        let is_wrong = how == Unscored::Error || how == Unscored::LeaveOut && nothing.len() == all;
        if let Some(&first) = nothing.first().filter(|_| is_wrong) {
            let (number, all) = (nothing.len(), counted(all, "response"));
            let found = format!("no value (null, NaN or missing; {number} of {all})");
            let (at, expected) = ((Some(first), None), expected(reading, None));
            let wrong = self.place.wrong(&reading.theirs, at, found, expected);
            let help = "`--unscored leave-out` leaves such responses out, and `--unscored zero` takes 0 as their reward";
            return Err(wrong.with_help(help));
        }
        self.unscored.extend(nothing);
        Ok(())
    }

    /// Adds notes on responses without a reward and on responses that the trainer rejected. Removes the rejected responses from
    /// the batch and, if the options say so, those without a reward. If it removed any, returns all responses.
    pub(super) fn without_unscored(&mut self, batch: &mut Batch) -> Option<Whole> {
        let is_left_out = self.options.unscored == Unscored::LeaveOut;
        let what = ["scored as 0", "left out"][usize::from(is_left_out)];
        for (what, responses, why) in [
            (what, &self.unscored, "without a reward"),
            ("left out", &self.rejected, "that the trainer rejected"),
        ] {
            if !responses.is_empty() {
                let count = counted(responses.len(), "response");
                self.notes.push(format!("{what}: {count} {why}"));
            }
        }
        if is_left_out {
            self.rejected.append(&mut self.unscored);
        }
        if self.rejected.is_empty() {
            return None;
        }
        let kept = (0..self.responses).filter(|at| !self.rejected.contains(at));
        let kept: Vec<usize> = kept.collect();
        let whole = batch.layout().clone();
        *batch = batch.select(&kept);
        Some((whole, kept))
    }

    /// Fills blank references with `answer`, if the schema has it as a spare one, and leaves out `answer` otherwise.
    pub(super) fn fill_references(&mut self, batch: &mut Batch) {
        if !self.schema.has_spare || batch.reference("answer", 0).is_none() {
            return;
        }
        let (mut choices, mut is_filled) = (Choices::default(), false);
        let all = (0..self.responses).map(|at| {
            let of = |name| batch.reference(name, at).unwrap_or_default();
            let (solution, answer) = (of("solution"), of("answer"));
            let is_spare = solution.trim().is_empty() && !answer.trim().is_empty();
            if is_spare {
                choices.add(Choice::Spare, 1, self.place.name_of(at));
                is_filled = true;
            }
            Arc::from(if is_spare { answer } else { solution })
        });
        let all: Vec<Arc<str>> = all.collect();
        batch.set_references(all.into());
        self.notes.extend(choices.notes());
        let reading = self.schema.reading("solution").cloned();
        if let Some(reading) = reading.filter(|_| !is_filled) {
            let why = format!("the reference is read from `{}`", reading.theirs);
            self.left_out("answer", &why);
        }
    }

    /// Adds notes on which references were used, if completions are compared with them. A response without a reference is treated
    /// like a response without a reward.
    pub(super) fn note_references(&mut self, batch: &Batch) -> Result<()> {
        let Some(name) = self.schema.references else {
            return Ok(());
        };
        if !batch.is_verifiable() {
            let what = "nothing says how good a response is: there is no reward, and answers cannot be compared";
            let help = "every response needs a `completion` that is text, and a `solution` (or `answer`); the solutions must all be texts or all numbers";
            let error = Diagnostic::error(what).with_help(help);
            return Err(self.place.error(None, error));
        }
        let all = (0..self.responses).map(|at| batch.solution(at).unwrap_or_default());
        let all: Vec<Cow<str>> = all.collect();
        let is_blank = |text: &str| text.trim().is_empty();
        let score = |text: &Cow<str>| if is_blank(text) { f64::NAN } else { 0.0 };
        let reading = self.schema.reading(name).cloned();
        let reading = reading.unwrap_or_else(|| Reading::new(name, name));
        self.score(&reading, &mut all.iter().map(score).collect::<Vec<_>>())?;
        let (mut choices, solutions) = (Choices::default(), batch.text("solution"));
        for (response, reference) in all.iter().enumerate() {
            let is_worked = |text: &str| !is_blank(text) && *text != **reference;
            let is_answer = solutions.is_some_and(|texts| is_worked(&texts[response]));
            let is_list = references(reference).len() > 1;
            for (choice, is_made) in [(Choice::Answer, is_answer), (Choice::AnyOfList, is_list)] {
                if is_made {
                    choices.add(choice, 1, self.place.name_of(response));
                }
            }
        }
        self.notes.extend(choices.notes());
        Ok(())
    }
}
