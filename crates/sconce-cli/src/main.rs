//! The `sconce` program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    sconce_cli::main()
}
