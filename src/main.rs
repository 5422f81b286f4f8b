//! The command line: parses the arguments, calls one command, prints the error.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match cli::arguments() {
        Ok(arguments) => arguments,
        Err(status) => return status,
    };
    match cli::run(arguments) {
        Ok(code) => code,
        Err(error) if cli::reader_left(&error) => ExitCode::SUCCESS,
        Err(error) => {
            cli::report(&error);
            ExitCode::from(1)
        }
    }
}
