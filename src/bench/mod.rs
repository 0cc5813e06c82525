//! `evenkeel bench`: a load, sent on time, and what users would have waited for.

pub mod closing;
pub mod command;
pub mod models;
pub mod opening;
pub mod options;
pub mod output;
pub mod plan;
pub mod progress;
pub mod replay;
pub mod request_lines;
pub mod result_file;
pub mod settings;
pub mod target;

use std::path::PathBuf;

/// Why a load could not be run, or its results not be kept.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// options that do not fit together or name something that is not there
    #[error("{0}")]
    Options(String),
    /// nobody to send to
    #[error("cannot reach {target}: {why}")]
    Target {
        /// as it was given
        target: String,
        /// what was found
        why: String,
    },
    /// a file that cannot be written
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// the file
        path: PathBuf,
        /// why
        source: std::io::Error,
    },
    /// the run
    #[error(transparent)]
    Load(#[from] crate::load::LoadError),
    /// a trace that cannot be read
    #[error(transparent)]
    Trace(#[from] crate::load::traces::TraceError),
    /// a result that could not be put into JSON
    #[error("cannot write the result as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// the thread that watches the run
    #[error("cannot watch the run: {0}")]
    Watch(std::io::Error),
}

impl BenchError {
    /// Whether the command line is to blame.
    pub fn is_usage(&self) -> bool {
        matches!(self, BenchError::Options(_))
    }
}
