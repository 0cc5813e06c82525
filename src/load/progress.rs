//! What a run has done so far, readable from other threads, and the hand that stops it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::watch;

/// Whether a run is to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Order {
    #[default]
    GoOn,
    StartNoMore,
    Abandon,
}

/// What a run has done so far.
#[derive(Debug, Default)]
pub struct RunProgress {
    /// requests whose turn came
    pub started: AtomicU64,
    /// requests that ended, failed ones included
    pub ended: AtomicU64,
    /// requests that failed
    pub failed: AtomicU64,
    order: watch::Sender<Order>,
}

impl RunProgress {
    /// Asks the run to start no further request; those under way are waited for.
    pub fn stop(&self) {
        self.give(Order::StartNoMore);
    }

    /// Asks the run to end now: requests under way are dropped, and counted as unfinished.
    pub fn abandon(&self) {
        self.give(Order::Abandon);
    }

    fn give(&self, order: Order) {
        self.order.send_if_modified(|given| {
            let later = order > *given;
            *given = (*given).max(order);
            later
        });
    }

    /// Whether no further request is to be started.
    pub(super) fn is_stopped(&self) -> bool {
        *self.order.borrow() >= Order::StartNoMore
    }

    /// Returns when no further request is to be started.
    pub(super) async fn stopped(&self) {
        self.given(Order::StartNoMore).await;
    }

    /// Returns when even those under way are to be dropped.
    pub(super) async fn abandoned(&self) {
        self.given(Order::Abandon).await;
    }

    async fn given(&self, order: Order) {
        // An error means that the sender is gone, and the sender is ours.
        let _ = self
            .order
            .subscribe()
            .wait_for(|given| *given >= order)
            .await;
    }

    /// Counts an end.
    pub(super) fn note_end(&self, failed: bool) {
        self.ended.fetch_add(1, Relaxed);
        self.failed.fetch_add(u64::from(failed), Relaxed);
    }
}
