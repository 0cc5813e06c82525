//! The options of `evenkeel sweep`.

use std::path::PathBuf;

use clap::Args;

/// Run a plan of many points and keep a study of them.
///
/// A plan names instance counts, loads, lengths, policies and counter-experiments; each combination is a point, run
/// one after the other and kept in files as soon as it is done. A sweep that was stopped or killed goes on where it
/// was when the same command is given again. `configs/sweeps/` has plans that run as they are.
#[derive(Debug, Clone, Args)]
pub struct SweepArgs {
    /// The plan, a TOML file
    #[arg(value_name = "PLAN")]
    pub plan: PathBuf,
    /// Folder of the study, made if it is not there
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    pub out: Option<PathBuf>,
    /// Run in virtual time: the engine's model and the scheduler, without sockets and waiting
    #[arg(long)]
    pub simulate: bool,
    /// Print the points in their order, and run none
    #[arg(long)]
    pub list: bool,
}
