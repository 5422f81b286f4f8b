//! The command line: what the library's [`advlab_cli::command_line`] does with the arguments.

use std::process::ExitCode;

fn main() -> ExitCode {
    advlab_cli::command_line(std::env::args_os())
}
