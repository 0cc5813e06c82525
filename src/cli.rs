//! The command line: one subcommand each, run by the room it belongs to.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A load balancer for LLM servers that measures what it routes.
///
/// Put it in front of inference servers that speak the OpenAI or Anthropic HTTP API (vLLM, SGLang,
/// llama.cpp): it spreads the requests over them, streams the answers through unchanged, and
/// tells what users wait for, instance by instance.
///
/// Exit codes: 0 all went well; 1 something failed; 2 the command line or the configuration is
/// wrong; 130 a bench run or a sweep was interrupted. EVENKEEL_LOG sets what is logged, such as "debug" or "info,evenkeel::proxy=trace".
#[derive(Debug, Parser)]
#[command(name = "evenkeel", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put Evenkeel in front of a fleet
    Serve(evenkeel::proxy::cli::ServeArgs),
    // Its options say what it is: their text has more than a line.
    Bench(Box<evenkeel::bench::options::BenchArgs>),
    // The same.
    Sweep(evenkeel::sweep::options::SweepArgs),
    // The same.
    Report(evenkeel::report::command::ReportArgs),
    /// Serve simulated vLLM instances, with faults on demand
    Engine(evenkeel::engine::cli::EngineArgs),
    /// See it work: simulated engines, one of them slow, under three policies in turn
    Demo(evenkeel::demo::options::DemoArgs),
    /// Check a configuration file and print what it will serve
    Check(evenkeel::config::cli::CheckArgs),
    /// Print the hash of an API key, for `[[keys]]`: the key is read from standard input
    HashKey(evenkeel::config::hash_key::HashKeyArgs),
}

impl Cli {
    /// Run the chosen subcommand.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Serve(args) => evenkeel::proxy::cli::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Bench(args) => Ok(evenkeel::bench::command::run(&args)?),
            Command::Sweep(args) => Ok(evenkeel::sweep::command::run(&args)?),
            Command::Report(args) => {
                Ok(evenkeel::report::command::run(&args).map(|()| ExitCode::SUCCESS)?)
            }
            Command::Engine(args) => evenkeel::engine::cli::run(args).map(|()| ExitCode::SUCCESS),
            Command::Demo(args) => Ok(evenkeel::demo::cli::run(&args).map(|()| ExitCode::SUCCESS)?),
            Command::Check(args) => Ok(evenkeel::config::cli::run(&args)),
            Command::HashKey(args) => {
                evenkeel::config::hash_key::run(&args).map(|()| ExitCode::SUCCESS)
            }
        }
    }
}
