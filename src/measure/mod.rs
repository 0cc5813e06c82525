//! Everything that turns bytes and stamps into figures.

pub mod chunk_log;
pub mod clock;
pub mod outcome;
pub mod summary;
