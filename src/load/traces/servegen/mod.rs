//! ServeGen: no requests, but how many came and how long they were, window by window for a client.
//!
//! Two files a client: rates (`-trace.csv`) and lengths (`-dataset.json`). Requests are drawn from
//! both. The rates are those of a fleet: scale them to yours.

mod draw;
mod lengths;
mod rates;

pub use draw::Draw;
pub use lengths::{LengthWindow, LengthWindows};
pub use rates::{Family, RateWindow, RateWindows};

/// Whole seconds, as both files count time, in nanoseconds.
fn start_ns(field: &str, text: &str) -> Result<u64, String> {
    super::numbers::time_ns(field, text, 1e9).map(i64::unsigned_abs)
}

#[cfg(test)]
mod tests;
