//! `evenkeel demo`: simulated engines, one of them slow, behind the real proxy under each policy in turn.
//!
//! Read in this order: [`options`] (what is run), [`arm`] (one policy's turn), [`records`] (what it
//! left), [`summary`] and [`compare`] (the figures), [`words`] (what the end says).

pub mod arm;
pub mod cli;
pub mod compare;
pub mod options;
pub mod progress;
pub mod quantiles;
pub mod records;
pub mod speed;
pub mod summary;
pub mod words;

use std::path::PathBuf;

/// What can stop the demo.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// the folder for the results exists and holds results
    #[error("{0} is not empty; give another folder with --out")]
    NotEmpty(PathBuf),
    /// a file or folder
    #[error("{path}: {source}", path = path.display())]
    File {
        /// which
        path: PathBuf,
        /// why
        source: std::io::Error,
    },
    /// a record that cannot be read back
    #[error("{path} holds a line that is no record: {source}", path = path.display())]
    Record {
        /// which
        path: PathBuf,
        /// why
        source: serde_json::Error,
    },
    /// the summary could not be written as JSON
    #[error("cannot write the summary: {0}")]
    Summary(#[from] serde_json::Error),
    /// a thread or runtime could not be started
    #[error("cannot start: {0}")]
    Start(std::io::Error),
    /// the load
    #[error(transparent)]
    Load(#[from] crate::load::LoadError),
    /// the simulated engines
    #[error(transparent)]
    Engine(#[from] crate::engine::EngineError),
    /// the proxy's configuration
    #[error(transparent)]
    Config(#[from] crate::config::ConfigErrors),
    /// the proxy
    #[error(transparent)]
    Proxy(#[from] crate::proxy::server::StartError),
}
