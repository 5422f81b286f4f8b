//! The command line: parses the arguments, calls one command, prints the error.

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::run(cli::Arguments::parse()) {
        Ok(code) => code,
        Err(error) if cli::reader_left(&error) => ExitCode::SUCCESS,
        Err(error) => {
            cli::report(&error);
            ExitCode::from(1)
        }
    }
}
