//! `advlab lsp`: the language server, which an editor starts.

use std::io::{self, IsTerminal};

use anyhow::Result;
use clap::Args;
use lsp_server::Connection;

use crate::{lsp, wrong};

/// Serve an editor over standard input and output (see docs/editors.md).
#[derive(Args)]
pub struct LanguageServer {
    /// Ignored; some editors pass it to every server
    #[arg(long, hide = true)]
    stdio: bool,
}

impl LanguageServer {
    pub fn run(self) -> Result<bool> {
        if io::stdin().is_terminal() {
            let help =
                "docs/editors.md says how to configure Neovim, Helix, Emacs, Zed and VS Code";
            return Err(wrong("editors start this command and send it messages", help).into());
        }
        let (connection, threads) = Connection::stdio();
        let is_right = lsp::serve(connection)?;
        threads.join()?;
        Ok(is_right)
    }
}
