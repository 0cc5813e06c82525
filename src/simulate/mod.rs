//! The fleet in virtual time: engine models driven by the same scheduler as the live proxy.
//!
//! Nothing here knows the proxy, a socket or the wall clock. What a policy does here is what it
//! does in production, because it is the same code behind the same calls in the same order.

pub mod clockwork;
pub mod connections;
mod flow;
pub mod generator;
mod job;
mod looks;
pub mod outcome;
pub mod planted;
pub mod point;
mod seen;

pub use clockwork::{FleetSpec, run};
pub use generator::GeneratorCost;
pub use looks::instance_name;
pub use outcome::{SimRequest, SimResult};
pub use point::{Fleet, PointSpec, SimPoint, run_point};

/// What can stop a simulation before it runs.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// no instances
    #[error("a fleet needs at least one instance")]
    NoInstance,
    /// the policy's configuration does not hold
    #[error(transparent)]
    Policy(#[from] evenkeel_policies::ConfigError),
    /// a policy that needs settings, or none at all
    #[error("the policy `{0}` cannot be simulated by its name alone: {1}")]
    PolicyName(String, String),
    /// the engine's profile or its settings do not hold
    #[error(transparent)]
    Engine(#[from] crate::engine::EngineError),
    /// the load does not hold
    #[error("{0}")]
    Load(String),
    /// a monitor that never looks
    #[error("a monitor looks at intervals of a positive number of seconds, not {0}")]
    Looks(f64),
}
