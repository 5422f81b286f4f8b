//! `advlab view RUN...`: the page of runs, in a browser.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::report::view::{Server, Site};
use anyhow::Result;
use clap::Args;

use super::end_cleanly;
use super::streams::out;

/// Look at runs in a browser: curves, reloads, groups and responses, while they go or after
///
/// The page only reads the runs' folders, and only its address shows it: the address has a secret token.
#[derive(Args)]
pub struct ShowRuns {
    /// Folders of runs, also of a trainer's, or folders that have runs in them
    #[arg(value_name = "RUN|FOLDER", required = true)]
    runs: Vec<PathBuf>,
    /// The port of 127.0.0.1; 8765, or a free one where that is taken, if not given
    #[arg(long)]
    port: Option<u16>,
    /// Write the page to a file that needs no server, and end
    #[arg(long, value_name = "FILE.html", conflicts_with = "port")]
    export: Option<PathBuf>,
}

impl ShowRuns {
    pub fn run(self) -> Result<ExitCode> {
        let site = Site::of(&self.runs)?;
        if let Some(path) = &self.export {
            site.export(path)?;
            out!("written to {}", path.display());
            return Ok(ExitCode::SUCCESS);
        }
        let server = Server::bind(site, self.port)?;
        // To end it so is the usual way.
        end_cleanly(|| ())?;
        out!("{}  Ctrl-C ends it", server.address()?);
        server.serve();
        Ok(ExitCode::SUCCESS)
    }
}
