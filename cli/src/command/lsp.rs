//! `advlab lsp`: the language server, which an editor starts.

use anyhow::Result;
use clap::Args;
use lsp_server::Connection;

use crate::lsp;

/// Serve an editor over standard input and output: docs/editors.md.
#[derive(Args)]
pub struct LanguageServer {
    /// Ignored; some editors pass it to every server
    #[arg(long, hide = true)]
    stdio: bool,
}

impl LanguageServer {
    pub fn run(self) -> Result<bool> {
        let (connection, threads) = Connection::stdio();
        let is_right = lsp::serve(connection)?;
        threads.join()?;
        Ok(is_right)
    }
}
