//! The `evenkeel` command.

mod cli;

use std::process::ExitCode;

use clap::Parser;
use evenkeel::bench::BenchError;
use evenkeel::config::{ConfigErrors, cli::told};
use evenkeel::sweep::SweepError;

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
    let plan = match error.downcast_ref() {
        Some(SweepError::Plan(errors)) => Some(errors),
        _ => None,
    };
    if let Some(errors) = plan.or(error.downcast_ref::<ConfigErrors>()) {
        eprintln!("{}", told(errors));
        return ExitCode::from(2);
    }
    eprintln!("evenkeel: {error:#}");
    let usage = error.downcast_ref().is_some_and(BenchError::is_usage)
        || error.downcast_ref().is_some_and(SweepError::is_usage);
    if usage {
        return ExitCode::from(2);
    }
    ExitCode::FAILURE
}
