//! Evenkeel's routing policies and the scheduler that drives them.
//!
//! Pure: nothing here does I/O, reads a clock, awaits or knows an HTTP type. Time comes in as
//! nanoseconds on any monotonic clock, randomness from a seed. The live proxy and the simulator
//! drive the same [`scheduler::Scheduler`].
//!
//! # To add a policy
//! 1. Write one file: a struct that implements [`Policy`]. Look at every
//!    [`view::FleetView::candidates`] (instances that may take the request now) and return one of
//!    them; [`view::least`] finds the lowest score and breaks ties at random. Allocate nothing.
//! 2. Give it a variant in [`config::PolicyConfig`], with its settings as fields.
//! 3. Name it in [`build`].
//!
//! Counting, queues, leases, draining and retries are the scheduler's: a policy only chooses.
//! ```
//! use evenkeel_policies::{Choice, Policy, PolicyRng, shape::RequestShape, view::{FleetView, least}};
//!
//! struct LeastPrefill;
//! impl Policy for LeastPrefill {
//!     fn name(&self) -> &'static str {
//!         "least_prefill"
//!     }
//!     fn choose(&mut self, _: &RequestShape, fleet: &FleetView<'_>, rng: &mut PolicyRng) -> Option<Choice> {
//!         least(fleet, rng, |one| one.load.prefill_tokens as f64 / one.load.weight)
//!     }
//! }
//! ```
#![forbid(unsafe_code)]

pub mod config;
pub mod estimate;
pub mod event;
pub mod lanes;
pub mod least_outstanding_tokens;
pub mod least_requests;
pub mod load;
mod output;
pub mod progress;
mod queue;
pub mod random;
pub mod round_robin;
pub mod scheduler;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod scheduler_properties;
pub mod shape;
pub mod view;

pub use config::{ConfigError, LaneConfig, LanesConfig, PolicyConfig, QueueConfig};

use event::Observation;
use shape::RequestShape;
use view::FleetView;

/// The generator policies draw from; the same numbers on every machine for the same seed.
pub type PolicyRng = rand::rngs::Xoshiro256PlusPlus;

/// An instance chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// [`view::Candidate::index`] of the instance
    pub index: usize,
}

/// Chooses an instance for a request from the state of the pool.
pub trait Policy: Send {
    /// Name, as in the configuration.
    fn name(&self) -> &'static str;
    /// One of the fleet's candidates; `None` if there is none.
    fn choose(
        &mut self,
        shape: &RequestShape,
        fleet: &FleetView<'_>,
        rng: &mut PolicyRng,
    ) -> Option<Choice>;
    /// What came of a request.
    fn observe(&mut self, _observation: &Observation) {}
    /// Decisions that could not follow the policy's own rule.
    fn fallbacks(&self) -> u64 {
        0
    }
}

/// The policy a configuration names.
pub fn build(config: &PolicyConfig) -> Box<dyn Policy> {
    use config::InnerPolicy as Inner;
    match config {
        PolicyConfig::Random {} => simple(Inner::Random),
        PolicyConfig::RoundRobin {} => simple(Inner::RoundRobin),
        PolicyConfig::LeastRequests {} => simple(Inner::LeastRequests),
        PolicyConfig::LeastOutstandingTokens {} => simple(Inner::LeastOutstandingTokens),
        PolicyConfig::Lanes(lanes) => Box::new(lanes::Lanes::new(lanes, simple(lanes.inner))),
    }
}

fn simple(inner: config::InnerPolicy) -> Box<dyn Policy> {
    use config::InnerPolicy as Inner;
    match inner {
        Inner::Random => Box::new(random::Random),
        Inner::RoundRobin => Box::new(round_robin::RoundRobin::default()),
        Inner::LeastRequests => Box::new(least_requests::LeastRequests),
        Inner::LeastOutstandingTokens => Box::new(least_outstanding_tokens::LeastOutstandingTokens),
    }
}
