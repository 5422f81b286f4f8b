//! The command line: parses the arguments, calls one command, prints the error.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::arguments().map(cli::run) {
        Ok(Ok(code)) | Err(code) => code,
        Ok(Err(error)) if cli::reader_left(&error) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            cli::report(&error);
            ExitCode::from(1)
        }
    }
}
