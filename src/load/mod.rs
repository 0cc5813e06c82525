//! The load generator: what to send (arrivals, workload), and sending it on time (client, runner).

pub mod arrivals;
pub mod client;
pub mod cpu;
pub mod http1;
pub mod pacer;
pub mod progress;
pub mod request;
pub mod runner;
pub mod sample;
pub mod workload;

/// What can be wrong with a load that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// a rate that is not a positive finite number
    #[error("the rate must be a positive number of requests per second, not {0}")]
    Rate(f64),
    /// a burstiness that is not a positive finite number
    #[error("the burstiness must be a positive number, not {0}: 1 is Poisson, below 1 in bursts")]
    Burstiness(f64),
    /// a mix with no class of positive share
    #[error("the mix of requests has no class with a positive share")]
    EmptyMix,
    /// a length distribution that cannot be drawn from
    #[error("the length distribution {0} is not usable: {1}")]
    Lengths(String, &'static str),
    /// the thread or runtime of a run could not be started
    #[error("cannot start a run: {0}")]
    Start(#[from] std::io::Error),
    /// a run ended by a panic
    #[error("a run ended unexpectedly")]
    Panicked,
}
