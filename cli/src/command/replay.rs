//! `advlab replay RUN`: repeats a run with its reloads, and says whether every number agrees.

use std::path::PathBuf;
use std::process::ExitCode;

use advlab_train::{Difference, Event, Replay as Repetition};
use anyhow::Result;
use clap::Args;
use serde_json::Value;

use super::Natively;
use super::streams::{self, out};

/// Repeat a run with its reloads, and say whether every number agrees.
///
/// The same versions at the same steps give the same numbers, bit for bit; only times are not compared. The run's folder
/// is not changed.
#[derive(Args)]
pub struct Replay {
    /// The run's folder
    #[arg(value_name = "DIR")]
    run: PathBuf,
    #[command(flatten)]
    natively: Natively,
}

impl Replay {
    /// Repeats the run; the exit status is 1 where a number differs.
    pub fn run(self) -> Result<ExitCode> {
        let replay = Repetition::open_with(&self.run, self.natively.native)?;
        let run = self.run.display();
        if let Some(note) = replay.note() {
            out!("note: {note}");
        }
        let steps = replay.steps();
        let bar = streams::steps_bar("replaying", steps, 0);
        let difference = replay.go(&mut |event: &Event<'_>| {
            if let Event::Step { row, .. } = event {
                bar.set_position(row.step + 1);
            }
        });
        bar.finish_and_clear();
        let Some(difference) = difference? else {
            match steps {
                0 => out!("{run}: it has done no step yet"),
                _ => out!("{run}: every number of {steps} steps agrees, bit for bit"),
            }
            return Ok(ExitCode::SUCCESS);
        };
        let share = relative(&difference);
        let Difference { step, field, .. } = difference;
        let shown = |value: Option<Value>| value.map_or("nothing".to_string(), |v| v.to_string());
        let blank = " ".repeat(field.len());
        out!("{run}: step {step} is the first that differs");
        out!("  {field}: recorded {}", shown(difference.recorded));
        out!("  {blank}  repeated {}", shown(difference.repeated));
        if let Some(share) = share {
            out!("  {blank}  {share:.1e} of it apart");
        }
        out!(
            "The same build of advlab repeats its own runs: has a file been edited, or is this another build?"
        );
        Ok(ExitCode::from(1))
    }
}

/// How far the repeated number is from the recorded one, as a share of that.
fn relative(difference: &Difference) -> Option<f64> {
    let number = |value: &Option<Value>| value.as_ref().and_then(Value::as_f64);
    let (recorded, repeated) = (number(&difference.recorded)?, number(&difference.repeated)?);
    (recorded != 0.0).then(|| ((repeated - recorded) / recorded).abs())
}
