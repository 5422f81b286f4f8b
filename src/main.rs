//! The command line: what the library's [`advlab::command_line`] does with the arguments.

use std::process::ExitCode;

fn main() -> ExitCode {
    advlab::command_line(std::env::args_os())
}
