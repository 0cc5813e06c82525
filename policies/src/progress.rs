//! When the progress of a stream is worth telling: a scheduler counts tokens coarsely, and telling costs its lock.

/// Output chunks after which progress is told at once.
const CHUNKS: u64 = 16;
/// After so many it is told every 100 ms.
const FEW_CHUNKS: u64 = 4;
const SOON_NS: u64 = 100_000_000;
/// A slow stream is told of every second.
const LATE_NS: u64 = 1_000_000_000;

/// True if `chunks` output chunks (or tokens), that came in the `since_ns` after the last report, are to be told.
#[inline]
pub fn is_due(chunks: u64, since_ns: u64) -> bool {
    let due = if chunks < FEW_CHUNKS {
        LATE_NS
    } else {
        SOON_NS
    };
    chunks >= CHUNKS || since_ns >= due
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn fast_streams_are_told_by_chunks_and_slow_ones_by_time() {
        assert!(is_due(16, 0));
        assert!(!is_due(15, 99 * MS));
        assert!(is_due(4, 100 * MS));
        assert!(!is_due(3, 999 * MS));
        assert!(is_due(1, 1000 * MS));
    }
}
