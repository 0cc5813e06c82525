//! Which requests of a run count: the warm-up is left out, then both ends are cut. Pure.
//!
//! Membership goes by issue time alone; a request that counts, counts with its whole life. So the
//! drain at the end never enters, and a slow request is not lost because it ended late.

use serde::Serialize;

use crate::load::sample::Sample;
use crate::measure::clock::Ns;

/// Seconds cut at both ends unless told otherwise.
pub const USUAL_TRIM_S: f64 = 30.0;
/// The usual cut is made only where it leaves at least this share of the requests' time.
const LEAST_KEPT_SHARE: f64 = 0.5;

/// What is to be left out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowRule {
    /// from the start of the run
    pub warm_up_ns: u64,
    /// at both ends of the rest; `None`: [`USUAL_TRIM_S`] where the run is long enough for it, else nothing
    pub trim_s: Option<f64>,
}

/// How many requests are in and out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// that count
    pub kept: u64,
    /// issued in the warm-up
    pub warm_up: u64,
    /// cut at the start
    pub cut_start: u64,
    /// cut at the end
    pub cut_end: u64,
}

/// The part of a run that counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// first issue time that counts
    pub from_ns: Ns,
    /// last issue time that counts
    pub to_ns: Ns,
    /// end of the time that throughput is taken over: `to_ns`, or the last answer's end where nothing is cut
    pub until_ns: Ns,
    /// seconds cut at both ends
    pub trim_s: f64,
    /// seconds between the first and the last issue after the warm-up
    pub issued_over_s: f64,
}

/// When the request entered: its issue, or its plan if it never came to that.
pub fn entered_ns(sample: &Sample) -> Ns {
    sample.issued_ns.unwrap_or(sample.planned_ns)
}

impl Window {
    /// The window of a run that began at `started_ns`; `None` if nothing was issued after the warm-up.
    pub fn of(samples: &[Sample], started_ns: Ns, rule: WindowRule) -> Option<Window> {
        let begin_ns = started_ns + rule.warm_up_ns;
        let measured = || {
            samples
                .iter()
                .filter(|sample| entered_ns(sample) >= begin_ns)
        };
        let first_ns = measured().map(entered_ns).min()?;
        let last_ns = measured().map(entered_ns).max()?;
        let end_ns = measured().map(|sample| sample.end_ns).max()?;
        let issued_over_s = (last_ns - first_ns) as f64 / 1e9;
        let roomy = issued_over_s * (1.0 - LEAST_KEPT_SHARE) >= 2.0 * USUAL_TRIM_S;
        let usual_s = if roomy { USUAL_TRIM_S } else { 0.0 };
        let trim_s = rule.trim_s.unwrap_or(usual_s);
        let trim_ns = (trim_s * 1e9) as u64;
        let to_ns = last_ns.saturating_sub(trim_ns);
        Some(Window {
            from_ns: first_ns + trim_ns,
            to_ns,
            until_ns: if trim_ns == 0 {
                end_ns.max(last_ns)
            } else {
                to_ns
            },
            trim_s,
            issued_over_s,
        })
    }

    /// Whether the request counts.
    pub fn keeps(&self, sample: &Sample) -> bool {
        (self.from_ns..=self.to_ns).contains(&entered_ns(sample))
    }

    /// Seconds that throughput is taken over.
    pub fn length_s(&self) -> f64 {
        self.until_ns.saturating_sub(self.from_ns) as f64 / 1e9
    }

    /// Requests issued a second, of those that count; `None` if they all were at one time.
    pub fn issued_per_s(&self, kept: u64) -> Option<f64> {
        let seconds = self.to_ns.saturating_sub(self.from_ns) as f64 / 1e9;
        (seconds > 0.0).then(|| kept as f64 / seconds)
    }

    /// Counts what is in and out.
    pub fn counts(&self, samples: &[Sample], started_ns: Ns, rule: WindowRule) -> Counts {
        let begin_ns = started_ns + rule.warm_up_ns;
        let mut counts = Counts::default();
        for sample in samples {
            let entered = entered_ns(sample);
            let place = if entered < begin_ns {
                &mut counts.warm_up
            } else if self.keeps(sample) {
                &mut counts.kept
            } else if entered < self.from_ns {
                &mut counts.cut_start
            } else {
                &mut counts.cut_end
            };
            *place += 1;
        }
        counts
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::report::sample_of;

    const STARTED_NS: Ns = 7_000_000;

    fn every_second(seconds: u64) -> Vec<Sample> {
        (0..seconds)
            .map(|at_s| sample_of(at_s as u32, 7 + at_s * 1000, 5_000, &[10], 0))
            .collect()
    }

    fn rule(warm_up_s: u64, trim_s: Option<f64>) -> WindowRule {
        WindowRule {
            warm_up_ns: warm_up_s * 1_000_000_000,
            trim_s,
        }
    }

    #[test]
    fn warm_up_and_both_ends_are_cut_by_issue_time_and_counted() {
        let samples = every_second(200);
        let rule = rule(20, None);
        let window = Window::of(&samples, STARTED_NS, rule).unwrap();
        assert_eq!((window.trim_s, window.issued_over_s), (30.0, 179.0));
        let counts = window.counts(&samples, STARTED_NS, rule);
        assert_eq!(
            (
                counts.warm_up,
                counts.cut_start,
                counts.kept,
                counts.cut_end
            ),
            (20, 30, 120, 30)
        );
        assert_eq!(window.length_s(), 119.0);
        assert_eq!(window.issued_per_s(119), Some(1.0));
    }

    #[test]
    fn a_short_run_is_not_cut_by_habit_but_is_where_asked() {
        let samples = every_second(60);
        let window = Window::of(&samples, STARTED_NS, rule(0, None)).unwrap();
        assert_eq!(window.trim_s, 0.0);
        // up to the end of the last answer, 5.01 s after the last issue
        assert!((window.length_s() - 64.01).abs() < 1e-9);
        let window = Window::of(&samples, STARTED_NS, rule(0, Some(10.0))).unwrap();
        assert_eq!(
            samples.iter().filter(|sample| window.keeps(sample)).count(),
            40
        );
        let none = Window::of(&samples, STARTED_NS, rule(0, Some(40.0))).unwrap();
        assert!(!samples.iter().any(|sample| none.keeps(sample)));
        assert_eq!(Window::of(&samples, STARTED_NS, rule(90, None)), None);
    }
}
