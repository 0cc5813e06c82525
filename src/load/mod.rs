//! The load generator: what to send (arrivals, workload, traces, replay), and sending it on time (client, runner).

pub mod agreement;
pub mod arrivals;
pub mod client;
pub mod cpu;
mod draws;
pub mod fetch;
pub mod http1;
pub mod lengths;
pub mod mixes;
pub mod pacer;
pub mod prefix;
pub mod progress;
pub mod replay;
pub mod request;
pub mod runner;
pub mod sample;
pub mod ticks;
pub mod traces;
pub mod traffic;
pub mod workload;

/// What can be wrong with a load that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// a rate that is not a positive finite number
    #[error("the rate must be a positive number of requests per second, not {0}")]
    Rate(f64),
    /// more requests than a plan may have
    #[error(
        "a plan of {0:.0} requests is asked for, and at most {1} are possible: lower the rate or the duration"
    )]
    TooManyRequests(f64, usize),
    /// a burstiness that is no shape of a gamma distribution
    #[error(
        "the burstiness must be a number from 0.001 (bursts) over 1 (Poisson) to 1000000 (even gaps), not {0}"
    )]
    Burstiness(f64),
    /// an end of a ramp that is not a rate
    #[error(
        "both ends of a ramp must be rates of 0 or more requests per second, and one of them above 0; {0} is given"
    )]
    RampRate(f64),
    /// a ramp of no time
    #[error("a ramp must last a positive number of seconds, not {0}")]
    RampTime(f64),
    /// a schedule that is not one
    #[error(
        "arrival number {0} of the schedule is at {1} s: it must be a number, and not before {2} s"
    )]
    Schedule(usize, f64, f64),
    /// seen lengths without any weight
    #[error(
        "the lengths seen are not usable: give lengths of at least 1 token, with weights above 0"
    )]
    SeenLengths,
    /// a mix with no class of positive share
    #[error("the mix of requests has no class with a positive share")]
    EmptyMix,
    /// a length distribution that cannot be drawn from
    #[error("the length distribution {0} is not usable: {1}")]
    Lengths(String, &'static str),
    /// a trace without times, to be replayed at its own
    #[error(
        "the trace {0} has no times of its own: give arrivals (a rate, or a schedule) to send its requests by"
    )]
    NoTimes(String),
    /// a part of a trace in which there is nothing to send
    #[error(
        "none of the {1} requests of the trace {0} is to be sent: widen the part asked for, or the longest length"
    )]
    NothingToReplay(String, usize),
    /// a time scale that is none
    #[error("the time scale must be a positive number, such as 0.5 for twice as fast, not {0}")]
    TimeScale(f64),
    /// a replay that would never end
    #[error(
        "the replayed trace would last {0:.0} s: give a smaller time scale, or a part of the trace"
    )]
    ReplayTime(f64),
    /// a part of a trace that is none
    #[error(
        "the part of the trace must begin at 0 s or later and end after that; from {0} s to {1} s is given"
    )]
    TraceWindow(f64, f64),
    /// a tick that is none
    #[error("the tick that requests are spread over must be a positive number of seconds, not {0}")]
    Tick(f64),
    /// the thread or runtime of a run could not be started
    #[error("cannot start a run: {0}")]
    Start(#[from] std::io::Error),
    /// a run ended by a panic
    #[error("a run ended unexpectedly")]
    Panicked,
}
