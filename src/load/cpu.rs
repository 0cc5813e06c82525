//! CPU time: what the calling thread costs, how long it waited for its turn, and what a virtual machine's host took away
//! meanwhile.

/// CPU time this thread has used, user and system, in nanoseconds; `None` where the system does not tell.
#[cfg(target_os = "linux")]
pub fn thread_cpu_ns() -> Option<u64> {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;
    let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
    let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    u64::try_from(us).ok().map(|us| us * 1000)
}

/// CPU time this thread has used, user and system, in nanoseconds; `None` where the system does not tell.
#[cfg(not(target_os = "linux"))]
pub fn thread_cpu_ns() -> Option<u64> {
    None
}

/// Time this thread could have run and had no core, because others had it or a limit was used up, in nanoseconds; `None`
/// where the system does not tell.
pub fn thread_waited_ns() -> Option<u64> {
    waited_ns(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// Reads Linux's schedstat of a thread: time on a core, time waiting for one, turns.
fn waited_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

/// CPU time of the whole machine so far, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineTicks {
    /// of all kinds
    all: u64,
    /// wanted here and given to another machine by the host
    stolen: u64,
}

impl MachineTicks {
    /// As of now; `None` where the system does not tell.
    pub fn now() -> Option<MachineTicks> {
        MachineTicks::read(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// Reads the first line of Linux's /proc/stat: user nice system idle iowait irq softirq steal.
    fn read(stat: &str) -> Option<MachineTicks> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Option<Vec<u64>> = line
            .split_whitespace()
            .take(8)
            .map(|field| field.parse().ok())
            .collect();
        let ticks = ticks?;
        Some(MachineTicks {
            all: ticks.iter().sum(),
            stolen: *ticks.get(7)?,
        })
    }

    /// Share of the time since `before` that the host took.
    pub fn stolen_share(self, before: MachineTicks) -> Option<f64> {
        let all = self.all.saturating_sub(before.all);
        let stolen = self.stolen.saturating_sub(before.stolen);
        (all > 0).then(|| stolen as f64 / all as f64)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_wait_for_a_core_is_the_second_of_three() {
        assert_eq!(waited_ns("91 52399 12\n"), Some(52_399));
        for text in ["", "5", "1 soon 3"] {
            assert_eq!(waited_ns(text), None, "{text}");
        }
    }

    #[test]
    fn what_the_host_took_is_a_share_of_all_time() {
        let read = MachineTicks::read;
        let before = read("cpu  100 0 50 800 0 0 10 40 0 0\ncpu0 1").unwrap();
        let after = read("cpu  150 0 60 900 0 0 20 70 9 9\n").unwrap();
        assert_eq!(after.stolen_share(before), Some(0.15));
        assert_eq!(before.stolen_share(before), None);
        for text in ["", "cpu 1 2 3", "cpu  a b c d e f g h", "intr 5"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
