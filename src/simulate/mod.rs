//! The fleet in virtual time: engine models driven by the same scheduler as the live proxy.
//!
//! Nothing here knows the proxy, a socket or the wall clock. What a policy does here is what it
//! does in production, because it is the same code behind the same calls in the same order.

pub mod clockwork;
pub mod outcome;

pub use clockwork::{FleetSpec, run};
pub use outcome::{SimRequest, SimResult};

/// What can stop a simulation before it runs.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// no instances
    #[error("a fleet needs at least one instance")]
    NoInstance,
    /// the policy's configuration does not hold
    #[error(transparent)]
    Policy(#[from] evenkeel_policies::ConfigError),
}
