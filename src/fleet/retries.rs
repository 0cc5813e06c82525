//! The retry budget: a failing fleet must not be hammered with second tries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Retries that are under way in a pool.
#[derive(Debug, Default)]
pub struct RetryBudget {
    open: AtomicU32,
    refused: AtomicU64,
}

/// Retries of a pool: now, and since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetryCounts {
    /// under way
    pub open: u32,
    /// not made, because the budget had no place
    pub refused: u64,
}

/// A retry under way; dropping it gives its place in the budget back.
#[derive(Debug)]
pub struct Retry(Arc<RetryBudget>);

impl RetryBudget {
    /// A place for one more retry, if they are fewer than `share` of the `live` requests, or than `least`.
    pub fn take(self: &Arc<Self>, live: u64, share: f64, least: u32) -> Option<Retry> {
        let most = ((live as f64 * share) as u32).max(least);
        let one_more = |open| (open < most).then_some(open + 1);
        if self.open.fetch_update(Relaxed, Relaxed, one_more).is_err() {
            self.refused.fetch_add(1, Relaxed);
            return None;
        }
        Some(Retry(self.clone()))
    }

    /// What there was of them.
    pub fn counts(&self) -> RetryCounts {
        RetryCounts {
            open: self.open.load(Relaxed),
            refused: self.refused.load(Relaxed),
        }
    }
}

impl Drop for Retry {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_what_is_live_and_at_least_so_many() {
        let budget = Arc::new(RetryBudget::default());
        let take = |live| budget.take(live, 0.2, 3);
        let held: Vec<_> = (0..3).map_while(|_| take(0)).collect();
        assert_eq!(held.len(), 3);
        assert!(take(15).is_none(), "a fifth of 15 is 3");
        let fourth = take(20);
        assert!(fourth.is_some());
        assert!(take(20).is_none());
        drop(fourth);
        assert!(take(20).is_some());
        let counts = budget.counts();
        assert_eq!((counts.open, counts.refused), (3, 2));
    }
}
