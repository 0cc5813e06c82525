//! Running figures of a series of gaps: count, mean, least, greatest, quantiles within 1 %.

use super::windows::{Counts, bucket_width_us};

/// Gaps in nanoseconds, counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GapFigures {
    counts: Counts,
    sum_ns: u64,
    least_ns: u64,
    greatest_ns: u64,
}

impl GapFigures {
    /// Counts one gap.
    pub fn record(&mut self, gap_ns: u64) {
        self.record_n(gap_ns, 1);
    }

    /// Counts `times` gaps of `gap_ns` each.
    pub fn record_n(&mut self, gap_ns: u64, times: u32) {
        if times == 0 {
            return;
        }
        if self.counts.count() == 0 {
            self.least_ns = gap_ns;
        }
        self.sum_ns = self
            .sum_ns
            .saturating_add(gap_ns.saturating_mul(u64::from(times)));
        self.least_ns = self.least_ns.min(gap_ns);
        self.greatest_ns = self.greatest_ns.max(gap_ns);
        let us = u32::try_from(gap_ns / 1000).unwrap_or(u32::MAX);
        self.counts.record_n(us, times);
    }

    /// How many gaps.
    pub fn count(&self) -> u64 {
        self.counts.count()
    }

    /// The gaps in histogram buckets.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Mean in milliseconds; absent without a gap.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum_ns as f64 / self.count() as f64 / 1e6)
    }

    /// Least gap in milliseconds.
    pub fn least_ms(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.least_ns as f64 / 1e6)
    }

    /// Greatest gap in milliseconds.
    pub fn greatest_ms(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.greatest_ns as f64 / 1e6)
    }

    /// Estimate of a quantile (0 to 1) in milliseconds, by the nearest rank, within 1 %.
    pub fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        let floor_us = self.counts.quantile_floor_us(quantile)?;
        let middle_ns = u64::from(floor_us) * 1000 + bucket_width_us(floor_us) * 500;
        let ns = middle_ns.clamp(self.least_ns, self.greatest_ns);
        Some(ns as f64 / 1e6)
    }
}
