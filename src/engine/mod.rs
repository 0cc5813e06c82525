//! The simulated engine: a continuous-batching model on a virtual clock ([`model`], pure), and
//! that model behind HTTP in vLLM's wire shape ([`server`]).

pub mod activity;
mod answer;
pub mod apart;
mod ask;
mod body;
pub mod cli;
pub mod cost;
pub mod faults;
mod hardware;
pub mod kv;
mod metrics;
pub mod model;
mod prepare;
pub mod profile;
mod routes;
mod runner;
pub mod server;
mod tokenizer;
mod wire;

use thiserror::Error;

/// What can go wrong before an engine runs.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The profile is unknown, unreadable or makes no sense.
    #[error("hardware profile `{name}`: {problem}")]
    Profile {
        /// Name or path as given.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A listener could not be opened.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// The address wanted.
        addr: std::net::SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// A thread or runtime could not be started.
    #[error("cannot start: {0}")]
    Start(std::io::Error),
    /// The options contradict themselves.
    #[error("{0}")]
    Options(String),
}
