//! Shares of CPU time, from totals looked at twice. Pure.

use crate::measure::clock::Ns;

/// CPU time of a host since its start, seconds over all cores.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuTimes {
    /// of all kinds
    pub all_s: f64,
    /// in which something ran
    pub busy_s: f64,
}

impl CpuTimes {
    /// Share of the time since `before` in which something ran; absent if no time went by or the host began anew.
    pub fn busy_share(self, before: CpuTimes) -> Option<f64> {
        let all_s = self.all_s - before.all_s;
        let busy_s = self.busy_s - before.busy_s;
        (all_s > 0.0 && busy_s >= 0.0).then(|| (busy_s / all_s).min(1.0))
    }
}

/// CPU time of a process when it was looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuSeconds {
    /// when
    pub at_ns: Ns,
    /// CPU time since its start
    pub total_s: f64,
}

impl CpuSeconds {
    /// Cores in use since `before`, 1 being one core all the time; absent if no time went by or the process began anew.
    pub fn share_of_a_core(self, before: CpuSeconds) -> Option<f64> {
        let seconds = self.at_ns.saturating_sub(before.at_ns) as f64 / 1e9;
        let used_s = self.total_s - before.total_s;
        (seconds > 0.0 && used_s >= 0.0).then(|| used_s / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_the_time_between_two_looks_and_a_restart_has_none() {
        let times = |all_s, busy_s| CpuTimes { all_s, busy_s };
        assert_eq!(
            times(120.0, 35.0).busy_share(times(100.0, 30.0)),
            Some(0.25)
        );
        assert_eq!(times(100.0, 30.0).busy_share(times(100.0, 30.0)), None);
        assert_eq!(times(4.0, 1.0).busy_share(times(100.0, 30.0)), None);
        let look = |at_s: u64, total_s| CpuSeconds {
            at_ns: at_s * 1_000_000_000,
            total_s,
        };
        assert_eq!(look(4, 8.0).share_of_a_core(look(2, 5.0)), Some(1.5));
        assert_eq!(look(4, 0.1).share_of_a_core(look(2, 5.0)), None);
    }
}
