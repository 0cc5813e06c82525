//! Counts requests that are refused before they are read as requests, and so make no record: by what they were told.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::refusal::Refusal;

/// The codes that a head is refused with. A client cannot add to them, so they may be a metric's label.
const REASONS: [&str; 9] = [
    "request_malformed",
    "head_too_large",
    "target_too_long",
    "http_version_not_supported",
    "transfer_coding_not_supported",
    "connect_not_supported",
    "expectation_failed",
    "client_header_timeout",
    OTHER,
];

/// Whatever is not listed; nothing should be.
const OTHER: &str = "other";

/// How often heads were refused, by reason.
#[derive(Debug, Default)]
pub struct RefusedHeads([AtomicU64; REASONS.len()]);

impl RefusedHeads {
    /// Counts one more.
    pub fn count(&self, refusal: &Refusal) {
        let code = refusal.code();
        let known = REASONS.iter().position(|reason| *reason == code);
        if let Some(count) = self.0.get(known.unwrap_or(REASONS.len() - 1)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// All reasons with their counts so far.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.load(Relaxed));
        REASONS.into_iter().zip(counts).collect()
    }
}
