//! The one monotonic clock: nanoseconds since the process started.

use std::sync::OnceLock;

/// Nanoseconds on the process's monotonic clock. 0 is never a valid stamp.
pub type Ns = u64;

struct Anchor {
    clock: quanta::Clock,
    origin: u64,
}

fn anchor() -> &'static Anchor {
    static ANCHOR: OnceLock<Anchor> = OnceLock::new();
    ANCHOR.get_or_init(|| {
        let clock = quanta::Clock::new();
        let origin = clock.raw();
        Anchor { clock, origin }
    })
}

/// Now, in nanoseconds since the process's first use of the clock; at least 1.
pub fn now_ns() -> Ns {
    let anchor = anchor();
    anchor
        .clock
        .delta_as_nanos(anchor.origin, anchor.clock.raw())
        .max(1)
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
