//! What the bench is asked to do.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};

/// How much of the machine each proxy is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// one worker or thread each, on core 0; engine and client on core 1
    PerCore,
    /// each as it is when told nothing; nothing is pinned
    Defaults,
}

/// Evenkeel beside other proxies and a bare copy of bytes, in one run, on one machine.
#[derive(Debug, Parser)]
#[command(name = "benches/peers/run")]
pub struct Args {
    /// Cells to run; left out: the five that are not run by name only
    pub cells: Vec<String>,
    /// Rounds of each cell; 0 counts system calls only
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Proxies to run, besides `direct`
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// How much of the machine each proxy is given
    #[arg(long, value_enum, default_value = "per-core")]
    pub shape: Shape,
    /// Scale curves in place of cells: streams, size, instances, rate, workers; bare for all
    #[arg(long, value_delimiter = ',', num_args = 0.., value_name = "CURVE")]
    pub curves: Option<Vec<String>>,
    /// Leave out the run that counts system calls
    #[arg(long)]
    pub no_calls: bool,
    /// Write every row and the summary there
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Run nothing: take the rows of these files together
    #[arg(long, num_args = 1.., value_name = "FILE")]
    pub show: Vec<PathBuf>,
    /// Say which ratios to haproxy are more than 10 % worse than there
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    /// Put this run's ratios into that file, beside those of other cells
    #[arg(long, value_name = "FILE")]
    pub save_ratios: Option<PathBuf>,

    /// Be the bare copy of bytes, listening there
    #[arg(long, hide = true)]
    pub splice: Option<SocketAddr>,
    /// Where the bare copy goes
    #[arg(long, hide = true, value_delimiter = ',')]
    pub to: Vec<SocketAddr>,
    /// What cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}
