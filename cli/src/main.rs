//! The command line: passes the arguments to the library's [`advlab_cli::command_line`].

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: advlab::allocation::Counting = advlab::allocation::Counting::new();

fn main() -> ExitCode {
    advlab_cli::command_line(std::env::args_os())
}
