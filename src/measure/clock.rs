//! The one monotonic clock: nanoseconds since the process started.
//!
//! The system's clock, not a counter of our own calibration: one calibrated at start was up to 27 µs a second off
//! against a packet capture. A read takes about 34 ns.

use std::sync::OnceLock;
#[cfg(not(test))]
use std::time::Instant;

/// In tests, a clock that tokio may hold still and move on.
#[cfg(test)]
use tokio::time::Instant;

/// Nanoseconds on the process's monotonic clock. 0 is never a valid stamp.
pub type Ns = u64;

/// Now, in nanoseconds since the process's first use of the clock; at least 1.
pub fn now_ns() -> Ns {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let since = ORIGIN.get_or_init(Instant::now).elapsed();
    // wraps after 584 years
    (since.as_nanos() as u64).max(1)
}

/// A difference of two stamps in milliseconds; 0 if they are out of order.
pub fn ms_between(from: Ns, to: Ns) -> f64 {
    to.saturating_sub(from) as f64 / 1e6
}

/// Wall time now, in nanoseconds since the Unix epoch.
pub fn wall_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}
