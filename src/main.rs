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
    eprintln!("evenkeel: {}", with_causes(error));
    let usage = error.downcast_ref().is_some_and(BenchError::is_usage)
        || error.downcast_ref().is_some_and(SweepError::is_usage);
    if usage {
        return ExitCode::from(2);
    }
    ExitCode::FAILURE
}

/// An error and its causes, but none that its text already says.
fn with_causes(error: &anyhow::Error) -> String {
    error
        .chain()
        .map(ToString::to_string)
        .reduce(|said, cause| match said.contains(&cause) {
            true => said,
            false => format!("{said}: {cause}"),
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let file = BenchError::File {
            path: "no/where.json".into(),
            source: missing(),
        };
        let said = with_causes(&file.into());
        assert_eq!(said, format!("cannot write no/where.json: {}", missing()));
        let said = with_causes(&anyhow::Error::new(missing()).context("reading"));
        assert_eq!(said, format!("reading: {}", missing()));
    }
}
