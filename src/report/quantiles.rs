//! A figure's count, mean and the percentiles that are always told. Pure.

use serde::Serialize;

use super::distribution::Distribution;

/// A figure over many requests, in the figure's unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quantiles {
    /// values
    pub count: u64,
    /// arithmetic mean
    pub mean: f64,
    /// median
    pub p50: f64,
    /// 90th percentile
    pub p90: f64,
    /// 95th percentile
    pub p95: f64,
    /// 99th percentile
    pub p99: f64,
    /// greatest
    pub max: f64,
    /// there are enough values to bound the 99th percentile
    pub p99_supported: bool,
}

impl Quantiles {
    /// Of a distribution.
    pub fn of(values: &Distribution) -> Option<Quantiles> {
        Some(Quantiles {
            count: values.count(),
            mean: values.mean,
            p50: values.percentile(50.0)?,
            p90: values.percentile(90.0)?,
            p95: values.percentile(95.0)?,
            p99: values.percentile(99.0)?,
            max: values.percentile(100.0)?,
            p99_supported: values.supports(99.0),
        })
    }

    /// Of values; `None` without one.
    pub fn over(values: impl IntoIterator<Item = f64>) -> Option<Quantiles> {
        Quantiles::of(&Distribution::of(values)?)
    }
}
