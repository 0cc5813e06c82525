//! Quantiles of a set of figures. Pure.

use serde::Serialize;

use crate::report::statistics::quantile;

/// Four quantiles of a set of figures, and how many figures there were. `None` where there were none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// figures in the set
    pub count: u64,
    /// median
    pub p50: Option<f64>,
    /// 90th percentile
    pub p90: Option<f64>,
    /// 95th percentile
    pub p95: Option<f64>,
    /// 99th percentile
    pub p99: Option<f64>,
}

impl Quantiles {
    /// Of these figures, in any order.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Quantiles {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |q| quantile(&sorted, q);
        Quantiles {
            count: sorted.len() as u64,
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours_as_numpy_has_them() {
        let quantiles = Quantiles::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!(quantiles.p50, Some(2.5));
        assert!((quantiles.p90.unwrap() - 3.7).abs() < 1e-12);
        assert!((quantiles.p99.unwrap() - 3.97).abs() < 1e-12);
        assert_eq!(quantiles.count, 4);
    }

    #[test]
    fn nothing_has_no_quantiles_and_one_figure_is_all_of_them() {
        assert_eq!(Quantiles::of([]), Quantiles::default());
        let one = Quantiles::of([7.0]);
        assert_eq!((one.p50, one.p99), (Some(7.0), Some(7.0)));
    }
}
