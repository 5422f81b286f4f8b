//! `advlab recipes`: the built-ins, one line each.

use std::process::ExitCode;

use advlab::script::{BUILTINS, Hook, Host};
use anyhow::Result;

use super::out::out;
use super::style;

/// Lists the built-in recipes.
pub fn run() -> Result<ExitCode> {
    let host = Host::new();
    for builtin in BUILTINS {
        let recipe = host.load(builtin.name)?;
        let hooks: Vec<&str> = Hook::OF_BATCH
            .into_iter()
            .filter(|&hook| recipe.has(hook))
            .map(Hook::name)
            .collect();
        let name = style::on_stdout().bold(&format!("{:<22}", builtin.name));
        out!(
            "{name} {:<18} {}",
            style::on_stdout().dim(&hooks.join(", ")),
            recipe.summary()
        );
    }
    out!("\n`advlab doc NAME` explains one, `advlab new FILE --from NAME` copies one to edit.");
    Ok(ExitCode::SUCCESS)
}
