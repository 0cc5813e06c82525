//! Whether batch work pulls down the online load beside it: the online figures with and without it. Pure.

use serde::Serialize;

use super::point::PointView;
use super::quantiles::Quantiles;

/// A tail that grew by this much is pulled down.
const WORSE_RATIO: f64 = 1.2;

/// An online load with batch work beside it, over the same without.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Isolation {
    /// the point with batch work
    pub with_batch: String,
    /// the point without
    pub without_batch: String,
    /// batch requests unanswered at once
    pub batch_concurrency: u32,
    /// with over without: client TTFT
    pub ttft: Option<Ratios>,
    /// TPOT
    pub tpot: Option<Ratios>,
    /// E2E
    pub e2e: Option<Ratios>,
    /// share within the service level, with and without
    pub attainment: Option<(f64, f64)>,
    /// share of requests that failed, with and without
    pub failed_share: Option<(f64, f64)>,
}

/// Percentiles with batch work over those without.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratios {
    /// medians
    pub p50: f64,
    /// 95th percentiles
    pub p95: f64,
    /// 99th percentiles
    pub p99: f64,
}

impl Isolation {
    /// Whether the online load is pulled down: P95 of TTFT or TPOT grew by a fifth, or fewer meet the service level
    /// by a point.
    pub fn is_broken(&self) -> bool {
        let grew = |ratios: Option<Ratios>| ratios.is_some_and(|ratios| ratios.p95 > WORSE_RATIO);
        let fewer = self
            .attainment
            .is_some_and(|(with, without)| with < without - 0.01);
        grew(self.ttft) || grew(self.tpot) || fewer
    }
}

/// Each point with batch work that has its like without.
pub fn isolations(points: &[PointView]) -> Vec<Isolation> {
    let pair = |with: &PointView| {
        let batch_concurrency = with.setting.batch_concurrency?;
        let without = points.iter().find(|point| is_without(point, with))?;
        let (a, b) = (&with.latencies, &without.latencies);
        Some(Isolation {
            with_batch: with.id.clone(),
            without_batch: without.id.clone(),
            batch_concurrency,
            ttft: ratios(a.ttft, b.ttft),
            tpot: ratios(a.tpot, b.tpot),
            e2e: ratios(a.e2e, b.e2e),
            attainment: with.attainment.zip(without.attainment),
            failed_share: with.failed_share().zip(without.failed_share()),
        })
    };
    points.iter().filter_map(pair).collect()
}

fn is_without(point: &PointView, with: &PointView) -> bool {
    let (a, b) = (&point.setting, &with.setting);
    a.batch_concurrency.is_none()
        && a.instances == b.instances
        && a.gpus_per_instance == b.gpus_per_instance
        && a.load == b.load
        && a.lengths == b.lengths
        && a.policy == b.policy
        && a.variant == b.variant
        && a.repeat == b.repeat
}

fn ratios(with: Option<Quantiles>, without: Option<Quantiles>) -> Option<Ratios> {
    let (a, b) = (with?, without?);
    let of = |a: f64, b: f64| (b > 0.0).then(|| a / b);
    Some(Ratios {
        p50: of(a.p50, b.p50)?,
        p95: of(a.p95, b.p95)?,
        p99: of(a.p99, b.p99)?,
    })
}

#[cfg(test)]
#[path = "isolation_tests.rs"]
mod tests;
