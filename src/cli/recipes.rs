//! `advlab recipes`: the built-ins, one line each.

use std::process::ExitCode;

use advlab::paint::beside;
use advlab::script::{BUILTINS, Hook, Host};
use anyhow::Result;
use console::Term;

use super::out::out;
use super::style;

pub fn run() -> Result<ExitCode> {
    let host = Host::new();
    let paint = style::whole(&Term::stdout());
    for builtin in BUILTINS {
        let recipe = host.load(builtin.name)?;
        let hooks: Vec<&str> = Hook::OF_BATCH
            .into_iter()
            .filter(|&hook| recipe.has(hook))
            .map(Hook::name)
            .collect();
        let head = format!(
            "{} {}",
            paint.bold(&format!("{:<22}", builtin.name)),
            paint.dim(&hooks.join(", "))
        );
        out!("{}", beside(&head, 42, recipe.summary(), paint.width));
    }
    out!("\n`advlab doc NAME` explains one, `advlab new FILE --from NAME` copies it.");
    Ok(ExitCode::SUCCESS)
}
