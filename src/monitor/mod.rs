//! What engines, GPUs, hosts and the generator say of themselves while a load runs.
//!
//! One thread of its own asks every endpoint at an interval, so that neither the load nor a source that hangs
//! disturbs the others. A source that does not answer is noted and absent, never 0.

pub mod exposition;
pub mod names;
pub mod own;
pub mod rates;
pub mod watcher;

pub use watcher::{Endpoint, Kind, Monitor, Seen};
