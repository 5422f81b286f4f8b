//! `advlab repl [INPUT]` evaluates formulas at a prompt; `advlab look FILE [WHAT]` shows responses with answers and advantages,
//! or the differences between two dumps.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use advlab::files::{Mapping, Unscored};
use advlab::script::Host;
use anyhow::Result;
use clap::Args;

use super::files::of_run;
use super::streams::{self, out};
use super::{ReadArguments, Tokenizing, load};
use crate::prompt::{self, PromptSession};
use crate::report::study::against;
use crate::{mapping, pair, unscored};

/// Try formulas at a prompt, on a real batch.
#[derive(Args)]
pub struct Repl {
    /// Rollouts (.jsonl, .gz, .zst, .parquet, .safetensors), a folder of such files (the last is read), a run's folder, or a .rhai
    /// file (the recipe on a small built-in batch); the built-in batch if not given
    input: Option<PathBuf>,
    /// Load a recipe: a built-in's name, or the path of a .rhai file
    #[arg(long, value_name = "RECIPE")]
    recipe: Option<String>,
    /// Read a field under another name, as in --map reward=score
    #[arg(long, value_name = "OURS=THEIRS", value_parser = mapping, requires = "input")]
    map: Vec<Mapping>,
    /// What to do with responses whose `reward` or `correct` is null, NaN or missing: leave-out, zero, or error (if not given)
    #[arg(long, value_name = "WHAT", value_parser = unscored, requires = "input")]
    unscored: Option<Unscored>,
    /// Set a parameter of the recipe
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair, requires = "recipe")]
    set: Vec<(String, String)>,
    /// The value of `batch.step`; for a run's folder, the batch of this step instead of the last batch
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    /// The seed of `batch.random`; if not given, the run's seed for a run's batch, 0 for other batches
    #[arg(long)]
    seed: Option<u64>,
    /// Read inputs from standard input, one per line
    #[arg(long)]
    stdin: bool,
    #[command(flatten)]
    tokenizing: Tokenizing,
}

impl Repl {
    pub fn run(self) -> Result<bool> {
        let host = Host::new();
        let mut session = PromptSession::new(&host, streams::on_stdout());
        if let Some(seed) = self.seed {
            session.set_seed(seed);
        }
        session.tokenizer = self.tokenizing.load()?;
        session.unscored = self.unscored.unwrap_or_default();
        if let Some(path) = &self.input {
            session.open(path, &self.map)?;
        }
        match self.step {
            Some(step) if session.has_run() => session.go_to(step)?,
            Some(step) => session.set_step(step),
            None => {}
        }
        if let Some(name) = &self.recipe {
            session.use_recipe(load(&host, name, &self.set)?);
        }
        if self.stdin || !io::stdin().is_terminal() {
            let wrong = prompt::piped(&mut session, io::stdin().lock(), io::stdout().lock())?;
            return Ok(wrong == 0);
        }
        prompt::terminal(session)?;
        Ok(true)
    }
}

/// Show responses: prompt, completion, the answer that was found, reward and advantage.
///
/// `:look` at the prompt shows the same. If the advantage is per token, the tokens with the largest |A| are listed.
#[derive(Args)]
pub struct Look {
    /// The rollouts, or a run's folder, whose last batch is shown
    input: PathBuf,
    /// A group's name, a response's number, `best`, `worst`, or a condition such as 'correct == 0 & advantage > 0'
    #[arg(default_value = "best", allow_negative_numbers = true)]
    what: String,
    /// Show the advantage of this recipe; if not given, the advantage in the file, or the advantage of the run's recipe
    #[arg(long, value_name = "RECIPE")]
    recipe: Option<String>,
    /// Set a parameter of the recipe
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair, requires = "recipe")]
    set: Vec<(String, String)>,
    #[command(flatten)]
    reading: ReadArguments,
    #[command(flatten)]
    tokenizing: Tokenizing,
    /// Show where this dump of the same batch differs from the input: in groups, masks, columns and texts
    #[arg(long, value_name = "FILE|RUN", conflicts_with_all = ["what", "recipe"])]
    against: Option<PathBuf>,
    /// Print a JSON object per response instead, for all selected responses; with --against, one object
    #[arg(long)]
    json: bool,
}

impl Look {
    pub fn run(self) -> Result<bool> {
        if let Some(other) = &self.against {
            let read = |path: &Path| self.reading.read(path);
            let ((a, _), (b, _)) = (read(&self.input)?, read(other)?);
            let names = [&a, &b].map(|rollouts| rollouts.path().display().to_string());
            let names = names.each_ref().map(String::as_str);
            let report = against::report(names, [&a.batch, &b.batch], streams::on_stdout())?;
            if self.json {
                streams::data(&report.about.to_string())?;
            } else {
                out!("{}", report.text);
            }
            return Ok(true);
        }
        let host = Host::new();
        let mut session = PromptSession::new(&host, streams::on_stdout());
        session.tokenizer = self.tokenizing.load()?;
        session.unscored = self.reading.fields.unscored;
        session.open(&self.input, &self.reading.fields.map)?;
        if let Some(step) = of_run(self.reading.step, &self.input)? {
            session.go_to(step)?;
        }
        if self.input.is_dir() && !self.json {
            // This line says which file of the folder is shown.
            out!("{}\n", session.about_data());
        }
        if let Some(name) = &self.recipe {
            session.use_recipe(load(&host, name, &self.set)?);
        }
        if self.json {
            for row in session.look_json(&self.what)? {
                streams::data(&row.to_string())?;
            }
        } else {
            out!("{}", session.look(&self.what)?);
        }
        Ok(true)
    }
}
