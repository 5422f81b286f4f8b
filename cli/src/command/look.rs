//! `advlab look FILE [WHAT]`: responses of a file, with their answers and advantages.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::prompt::Session;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::script::Host;
use anyhow::Result;
use clap::Args;

use super::streams::{self, out};
use super::{AtStep, Tokenizing, pair};

/// Show responses: prompt, completion, the answer that was found, its reward and advantage.
///
/// As `:look` at the prompt. Where the advantage is one of tokens, those with the largest |A| are marked.
#[derive(Args)]
pub struct Look {
    /// The rollouts, or a run's folder: its last batch
    input: PathBuf,
    /// A group's name, a response's number, `best`, `worst`, or a condition such as 'correct == 0 & advantage > 0'
    #[arg(default_value = "best", allow_negative_numbers = true)]
    what: String,
    /// The recipe whose advantage is shown; the file's own if not given
    #[arg(long, value_name = "RECIPE")]
    recipe: Option<String>,
    /// Set a parameter of the recipe
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair, requires = "recipe")]
    set: Vec<(String, String)>,
    /// Read a field under another name, as in --map reward=score
    #[arg(long, value_name = "OURS=THEIRS", value_parser = pair)]
    map: Vec<(String, String)>,
    #[command(flatten)]
    at: AtStep,
    #[command(flatten)]
    tokenizing: Tokenizing,
}

impl Look {
    pub fn run(self) -> Result<ExitCode> {
        let host = Host::new();
        let mut session = Session::new(&host, streams::on_stdout());
        session.set_tokenizer(self.tokenizing.load()?);
        session.open(&self.input, &super::mappings(&self.map))?;
        if let Some(step) = self.at.of_run(&self.input)? {
            session.go_to(step)?;
        }
        if self.input.is_dir() {
            // Which of its files this is.
            out!("{}\n", session.about_data());
        }
        if let Some(name) = &self.recipe {
            session.use_recipe(super::load(&host, name, &self.set)?);
        }
        let shown = session.look(&self.what);
        if shown.is_err() && Path::new(&self.what).is_file() {
            let what = format!("{} is a second file, and one is shown", self.what);
            let help = "behind the file comes a group, a number, `best`, or a condition";
            return Err(Diagnostics::from(Diagnostic::error(what).with_help(help)).into());
        }
        out!("{}", shown?);
        Ok(ExitCode::SUCCESS)
    }
}
