//! One figure over many requests: mean, spread and percentiles. Pure.

use super::statistics::{mean, quantile};

/// Percentiles that are always told.
pub const PERCENTILES: [f64; 4] = [50.0, 90.0, 95.0, 99.0];

/// The values of a figure, at least one.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    sorted: Vec<f64>,
    /// arithmetic mean
    pub mean: f64,
    /// standard deviation of these values (divided by n, as numpy's)
    pub std: f64,
}

impl Distribution {
    /// `None` without a value: what was not measured has no figures.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Distribution> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let mean = mean(&sorted)?;
        let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Distribution {
            std: (squares / sorted.len() as f64).sqrt(),
            mean,
            sorted,
        })
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.sorted.len() as u64
    }

    /// The percentile, 0 to 100, interpolated as numpy does; `None` outside.
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        quantile(&self.sorted, percent / 100.0)
    }

    /// Whether enough values lie beyond the percentile to bound it: at 95 % confidence a finite upper
    /// bound needs q^n ≤ 0.025.
    pub fn supports(&self, percent: f64) -> bool {
        (percent / 100.0).powf(self.sorted.len() as f64) <= 0.025
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_numpys() {
        let values = Distribution::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((values.mean, values.count()), (2.5, 4));
        assert!((values.std - 1.118_033_988_749_895).abs() < 1e-12);
        assert_eq!(values.percentile(50.0), Some(2.5));
        assert!((values.percentile(90.0).unwrap() - 3.7).abs() < 1e-12);
        assert_eq!(values.percentile(101.0), None);
        assert_eq!(Distribution::of([]), None);
    }

    #[test]
    fn a_tail_needs_values_beyond_it() {
        let of = |count: usize| Distribution::of(vec![1.0; count]).unwrap();
        assert!(!of(367).supports(99.0) && of(368).supports(99.0));
        assert!(!of(35).supports(90.0) && of(36).supports(90.0));
    }
}
