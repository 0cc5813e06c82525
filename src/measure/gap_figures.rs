//! Running figures of a series of gaps: count, mean, least, greatest, quantiles within 1 %.

use std::borrow::Cow;

use super::windows::{Counts, bucket_width_us};

/// Gaps that are kept as they came: they fill one cache line, and a stream's own buckets are seldom in the cache.
const LATEST: usize = 7;

/// Gaps in nanoseconds, counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GapFigures {
    latest_ns: [u64; LATEST],
    /// of those, how many are not counted yet
    pending: usize,
    counts: Counts,
    sum_ns: u64,
    least_ns: u64,
    greatest_ns: u64,
}

impl GapFigures {
    /// Counts one gap.
    #[inline]
    pub fn record(&mut self, gap_ns: u64) {
        self.latest_ns[self.pending] = gap_ns;
        self.pending += 1;
        if self.pending == LATEST {
            self.settle();
        }
    }

    /// Counts what is pending, so that reading need not.
    pub fn settle(&mut self) {
        for at in 0..std::mem::take(&mut self.pending) {
            self.record_n(self.latest_ns[at], 1);
        }
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

    fn settled(&self) -> Cow<'_, GapFigures> {
        if self.pending == 0 {
            return Cow::Borrowed(self);
        }
        let mut settled = self.clone();
        settled.settle();
        Cow::Owned(settled)
    }

    /// How many gaps.
    pub fn count(&self) -> u64 {
        self.counts.count() + self.pending as u64
    }

    /// The gaps in histogram buckets.
    pub fn counts(&self) -> Cow<'_, Counts> {
        match self.settled() {
            Cow::Borrowed(settled) => Cow::Borrowed(&settled.counts),
            Cow::Owned(settled) => Cow::Owned(settled.counts),
        }
    }

    /// Mean in milliseconds; absent without a gap.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.settled().sum_ns as f64 / self.count() as f64 / 1e6)
    }

    /// Least gap in milliseconds.
    pub fn least_ms(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.settled().least_ns as f64 / 1e6)
    }

    /// Greatest gap in milliseconds.
    pub fn greatest_ms(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.settled().greatest_ns as f64 / 1e6)
    }

    /// Estimate of a quantile (0 to 1) in milliseconds, by the nearest rank, within 1 %.
    pub fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        let settled = self.settled();
        let floor_us = settled.counts.quantile_floor_us(quantile)?;
        let middle_ns = u64::from(floor_us) * 1000 + bucket_width_us(floor_us) * 500;
        let ns = middle_ns.clamp(settled.least_ns, settled.greatest_ns);
        Some(ns as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pending_counts_as_what_is_not() {
        let mut figures = GapFigures::default();
        for count in 1..=40_u64 {
            figures.record(count * 1_000_000);
            let mut settled = figures.clone();
            settled.settle();
            assert_eq!(figures.count(), count);
            assert_eq!(figures.counts().count(), count);
            assert_eq!(figures.mean_ms(), Some((count + 1) as f64 / 2.0));
            assert_eq!(
                (figures.least_ms(), figures.greatest_ms()),
                (Some(1.0), Some(count as f64))
            );
            assert_eq!(figures.quantile_ms(0.5), settled.quantile_ms(0.5));
        }
    }
}
