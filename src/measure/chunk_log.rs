//! The delta-coded log of a stream's output chunks.

/// Placeholder shape; see the meter.
#[derive(Debug, Clone, Default)]
pub struct ChunkLog {}
