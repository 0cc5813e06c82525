//! The `evenkeel` command.

mod cli;

use std::process::ExitCode;

use clap::Parser;
use evenkeel::bench::BenchError;
use evenkeel::config::{ConfigErrors, cli::told};

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    evenkeel::log::start();
    match cli.run() {
        Ok(code) => code,
        Err(error) => failed(&error),
    }
}

/// Say what went wrong in plain words; a wrong configuration or command line is exit code 2.
fn failed(error: &anyhow::Error) -> ExitCode {
    if let Some(errors) = error.downcast_ref::<ConfigErrors>() {
        eprintln!("{}", told(errors));
        return ExitCode::from(2);
    }
    eprintln!("evenkeel: {error:#}");
    if error.downcast_ref().is_some_and(BenchError::is_usage) {
        return ExitCode::from(2);
    }
    ExitCode::FAILURE
}
