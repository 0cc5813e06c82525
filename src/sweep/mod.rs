//! `evenkeel sweep`: a plan of many points, run one after the other, kept in files as a study.
//!
//! A plan is read (`raw`) and checked (`check`) into a [`plan::Plan`] with all its points (`expand`, `variants`). An
//! [`executor::Executor`] runs a point in one of three places; what it gives back is the same and is written by `keep`.

pub mod check;
pub mod command;
pub mod drive;
pub mod engines;
pub mod executor;
pub mod expand;
pub mod hooks;
pub mod interrupt;
pub mod keep;
pub mod options;
pub mod plan;
pub mod presets;
pub mod progress;
pub mod raw;
pub mod ready;
pub mod records;
pub mod sent;
pub mod servers;
pub mod study_folder;
pub mod variants;
pub mod virtual_time;
pub mod warnings;
pub mod words;

use std::path::PathBuf;

use crate::config::ConfigErrors;
use crate::study::files::StudyError;

#[cfg(test)]
mod tests;

/// Why a sweep ended before its last point.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// a wrong plan
    #[error(transparent)]
    Plan(#[from] ConfigErrors),
    /// options that do not fit the plan, or a folder that is not this plan's
    #[error("{0}")]
    Options(String),
    /// a file or folder that the system refuses
    #[error("{}: {source}", path.display())]
    File {
        /// which
        path: PathBuf,
        /// what the system says
        source: std::io::Error,
    },
    /// the study's files
    #[error(transparent)]
    Study(#[from] StudyError),
    /// a load, or its result
    #[error(transparent)]
    Bench(#[from] crate::bench::BenchError),
    /// simulated engines
    #[error(transparent)]
    Engine(#[from] crate::engine::EngineError),
    /// a simulation
    #[error(transparent)]
    Simulate(#[from] crate::simulate::SimulateError),
    /// the proxy before simulated engines
    #[error(transparent)]
    Proxy(#[from] crate::proxy::StartError),
    /// threads, signals
    #[error("cannot start: {0}")]
    Start(std::io::Error),
    /// a hook that failed
    #[error(
        "the hook `{which}` {why}: {command}\n{output}\nMend the command or the fleet and run the same sweep again: finished points are kept. All of its output is in {}", log.display()
    )]
    Hook {
        /// `start`, `restart` or `stop`
        which: &'static str,
        /// the command
        command: String,
        /// how it ended
        why: String,
        /// the end of what it wrote
        output: String,
        /// where all of it is
        log: PathBuf,
    },
    /// a fleet that was not ready in time
    #[error(
        "{url} was not ready within {limit_s} s: {why}\nLook at the fleet's own logs, or give hooks.ready_limit_s more time; then run the same sweep again: finished points are kept"
    )]
    NotReady {
        /// which was asked
        url: String,
        /// for how long
        limit_s: f64,
        /// its last answer
        why: String,
    },
}

impl SweepError {
    /// Whether the command line is to blame.
    pub fn is_usage(&self) -> bool {
        matches!(self, SweepError::Options(_))
            || matches!(self, SweepError::Bench(error) if error.is_usage())
    }

    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> SweepError {
        let path = path.into();
        move |source| SweepError::File { path, source }
    }
}
