//! Configuration: read as written, checked into what the rest uses.

pub mod checked;
mod policy;

pub use checked::*;
