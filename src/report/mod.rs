//! What is drawn from runs for people to read.

pub mod statistics;
pub mod terminal;
