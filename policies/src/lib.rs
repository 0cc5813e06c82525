//! Evenkeel's routing policies and the scheduler that drives them.
//!
//! Pure: nothing here does I/O, reads a clock, awaits or knows an HTTP type. Time comes in as
//! nanoseconds on any monotonic clock, randomness from a seed. The live proxy and the simulator
//! drive the same [`scheduler::Scheduler`].
#![forbid(unsafe_code)]

pub mod shape;
