//! `evenkeel check`: is a configuration right, and what does it do?

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use super::error::ConfigErrors;
use super::{load, schema, summary};

/// Arguments of `evenkeel check`.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// Configuration file to check
    #[arg(value_name = "FILE", required_unless_present_any = ["schema", "record_schema"])]
    file: Option<PathBuf>,
    /// Print the JSON schema of the configuration file, for editors
    #[arg(long)]
    schema: bool,
    /// Print the JSON schema of a record, one line of records-*.jsonl
    #[arg(long)]
    record_schema: bool,
}

/// Check a file and print what it will serve; exit code 2 if it is wrong.
pub fn run(args: &CheckArgs) -> ExitCode {
    if args.schema {
        say(&format!("{:#}\n", schema()));
    }
    if args.record_schema {
        say(&format!("{:#}\n", crate::measure::record::record_schema()));
    }
    let Some(file) = &args.file else {
        return ExitCode::SUCCESS;
    };
    match load(file) {
        Ok(config) => {
            println!(
                "{} is right.\n\n{}",
                file.display(),
                summary(&config).trim_end()
            );
            ExitCode::SUCCESS
        }
        Err(errors) => {
            eprintln!("{}", told(&errors));
            ExitCode::from(2)
        }
    }
}

/// The errors as a person at a terminal should see them.
pub fn told(errors: &ConfigErrors) -> String {
    match errors {
        ConfigErrors::Invalid(report) => {
            let count = match report.faults.len() {
                1 => "1 error".to_owned(),
                many => format!("{many} errors"),
            };
            format!(
                "{}\n\n{}: {count}",
                report.render(std::io::stderr().is_terminal()),
                report.name
            )
        }
        other => other.to_string(),
    }
}

/// A reader that has seen enough (`| head`) is no error.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
