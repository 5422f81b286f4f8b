//! The commands for a run's folder: `advlab replay RUN`, `advlab export RUN DIR`, and `advlab view RUN...`.

use std::path::PathBuf;

use advlab_train::{Event, Replay};
use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Value, json};

use super::streams::{self, err, out};
use super::{Natively, end_cleanly};
use crate::number_text::counted;
use crate::report::view::{Server, Site};

/// Repeat a run with its reloads, and report the first number that differs, if any.
///
/// On the same kind of CPU, the same build gives the same numbers, bit for bit; times and GPU memory are not compared. For a
/// trainer's run, only the recipe's numbers at steps with a saved batch are repeated. The run's folder is not changed.
#[derive(Args)]
pub struct ReplayArguments {
    /// The run's folder
    #[arg(value_name = "DIR")]
    run: PathBuf,
    #[command(flatten)]
    natively: Natively,
    /// Print one JSON object instead: the number of steps, whether they agree, and the first difference or null
    #[arg(long)]
    json: bool,
}

impl ReplayArguments {
    /// Repeats the run. Returns `false` if a number differs.
    pub fn run(self) -> Result<bool> {
        let replay = Replay::open(&self.run, self.natively.native)?;
        let run = self.run.display();
        let (note, steps) = (replay.note.clone(), replay.steps);
        if let Some(note) = note.as_ref().filter(|_| !self.json) {
            out!("note: {note}");
        }
        let bar = streams::steps_bar("replaying", steps, 0);
        let difference = replay.go(&mut |event: &Event<'_>| {
            if let Event::Step { row, .. } = event {
                bar.set_position(row.step + 1);
            }
        });
        bar.finish_and_clear();
        if self.json {
            let found = difference?;
            let first = found.as_ref().map(|found| {
                json!({ "step": found.step, "field": found.field, "recorded": found.recorded, "repeated": found.repeated })
            });
            let shown = json!({ "run": self.run, "steps": steps, "agrees": first.is_none(), "difference": first, "note": note });
            streams::data(&shown.to_string())?;
            return Ok(found.is_none());
        }
        let Some(found) = difference? else {
            match steps {
                0 => out!("{run}: there is no step to repeat"),
                _ => {
                    let steps = counted(steps as usize, "recorded step");
                    out!("{run}: the replay agrees with {steps}, bit for bit");
                }
            }
            return Ok(true);
        };
        let shown = |value: Option<Value>| value.map_or("nothing".to_string(), |v| v.to_string());
        let (field, blank) = (&found.field, " ".repeat(found.field.len()));
        out!("{run}: step {} is the first that differs", found.step);
        out!("  {field}: recorded {}", shown(found.recorded));
        out!("  {blank}  repeated {}", shown(found.repeated));
        let question = "was a file edited, or is this another build?";
        out!("On the same kind of CPU, a build of advlab repeats its own runs exactly: {question}");
        Ok(false)
    }
}

/// Write a run's model as a folder for transformers (Python).
///
/// The model is that of the newest usable checkpoint. Files that came with the model, such as its tokenizer, are copied.
#[derive(Args)]
pub struct Export {
    /// The run's folder
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// The folder to write, which must be empty or not exist yet
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Export {
    pub fn run(self) -> Result<bool> {
        let (step, notes) = advlab_train::export(&self.run, &self.folder)?;
        for note in notes {
            err!("note: {note}");
        }
        let (run, folder) = (self.run.display(), self.folder.display());
        out!("{folder} contains the model of {run} after {step} steps");
        Ok(true)
    }
}

/// Look at runs in a browser, also while they are in progress: curves, reloads, groups and responses
///
/// The page only reads the runs' folders. The server's page opens only at its full address, which contains a secret token.
#[derive(Args)]
pub struct ShowRuns {
    /// Folders of runs (including trainers' runs), or folders that contain runs
    #[arg(value_name = "RUN|FOLDER", required = true)]
    runs: Vec<PathBuf>,
    /// The port of 127.0.0.1; if not given, 8765, or a free port if 8765 is in use
    #[arg(long)]
    port: Option<u16>,
    /// Write the page to one file that needs no server
    #[arg(long, value_name = "FILE.html", conflicts_with = "port")]
    export: Option<PathBuf>,
}

impl ShowRuns {
    pub fn run(self) -> Result<bool> {
        let site = Site::of(&self.runs)?;
        if let Some(path) = &self.export {
            if path.extension().is_none_or(|ending| ending != "html") {
                let better = path.with_extension("html");
                bail!(
                    "{}: the name of the page's file must end in .html, as in {}",
                    path.display(),
                    better.display()
                );
            }
            site.export(path)?;
            out!("written to {}", path.display());
            return Ok(true);
        }
        let server = Server::bind(site, self.port)?;
        // Nothing is reported at Ctrl-C, because Ctrl-C is the usual way to end the server.
        end_cleanly(|| ())?;
        out!("{}  Ctrl-C ends the server", server.address()?);
        server.serve();
        Ok(true)
    }
}
