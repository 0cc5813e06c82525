//! Running figures of a series of gaps in fixed space: count, mean, least, greatest, quantiles.

/// Buckets per doubling. The estimate of a quantile is within 2^(1/8), about 9 %.
const PER_OCTAVE: usize = 4;
/// From 1 µs up; the last bucket takes everything over about 67 s.
const BUCKETS: usize = 26 * PER_OCTAVE;

/// Gaps in nanoseconds, counted. The buckets are made with the first gap.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GapFigures {
    count: u64,
    sum_ns: u64,
    least_ns: u64,
    greatest_ns: u64,
    buckets: Vec<u32>,
}

fn bucket(gap_ns: u64) -> usize {
    let us = gap_ns / 1000;
    if us == 0 {
        return 0;
    }
    let octave = us.ilog2() as usize;
    let quarter = if octave >= 2 {
        (us >> (octave - 2)) & 3
    } else {
        (us << (2 - octave)) & 3
    };
    (octave * PER_OCTAVE + quarter as usize).min(BUCKETS - 1)
}

fn middle_ns(bucket: usize) -> u64 {
    let (octave, quarter) = (bucket / PER_OCTAVE, bucket % PER_OCTAVE);
    let low = (1u64 << octave) as f64 * (1.0 + quarter as f64 / PER_OCTAVE as f64);
    let width = (1u64 << octave) as f64 / PER_OCTAVE as f64;
    ((low + width / 2.0) * 1000.0) as u64
}

impl GapFigures {
    /// Counts `times` gaps of `gap_ns` each.
    pub fn record_n(&mut self, gap_ns: u64, times: u32) {
        if times == 0 {
            return;
        }
        self.add(gap_ns, gap_ns.saturating_mul(u64::from(times)), times);
    }

    /// Counts one gap.
    #[inline]
    pub fn record(&mut self, gap_ns: u64) {
        self.add(gap_ns, gap_ns, 1);
    }

    #[inline]
    fn add(&mut self, gap_ns: u64, sum_ns: u64, times: u32) {
        if self.buckets.is_empty() {
            self.begin(gap_ns);
        }
        self.count += u64::from(times);
        self.sum_ns = self.sum_ns.saturating_add(sum_ns);
        self.least_ns = self.least_ns.min(gap_ns);
        self.greatest_ns = self.greatest_ns.max(gap_ns);
        let slot = &mut self.buckets[bucket(gap_ns)];
        *slot = slot.saturating_add(times);
    }

    #[cold]
    fn begin(&mut self, gap_ns: u64) {
        self.buckets = vec![0; BUCKETS];
        self.least_ns = gap_ns;
    }

    /// How many gaps.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Mean in milliseconds; absent without a gap.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64 / 1e6)
    }

    /// Least gap in milliseconds.
    pub fn least_ms(&self) -> Option<f64> {
        (self.count > 0).then_some(self.least_ns as f64 / 1e6)
    }

    /// Greatest gap in milliseconds.
    pub fn greatest_ms(&self) -> Option<f64> {
        (self.count > 0).then_some(self.greatest_ns as f64 / 1e6)
    }

    /// Estimate of a quantile (0 to 1) in milliseconds, by the nearest rank, within about 9 %.
    pub fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((quantile * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0u64;
        for (at, &times) in self.buckets.iter().enumerate() {
            seen += u64::from(times);
            if seen >= rank {
                let ns = middle_ns(at).clamp(self.least_ns, self.greatest_ns);
                return Some(ns as f64 / 1e6);
            }
        }
        self.greatest_ms()
    }
}
