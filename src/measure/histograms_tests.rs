#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::super::figures::tests::exchange;
use super::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

fn find<'a>(
    all: &'a [SeriesQuantiles],
    cut: Cut,
    name: &str,
    figure: Figure,
) -> &'a SeriesQuantiles {
    all.iter()
        .find(|series| {
            series.key.cut == cut && &*series.key.name == name && series.figure == figure
        })
        .unwrap()
}

#[test]
fn served_quantiles_are_within_one_percent_over_merged_cores() {
    let registry = Registry::new(3, 100);
    let mut rng = StdRng::seed_from_u64(7);
    let mut truth = Vec::new();
    for index in 0..3000 {
        let ms = 10f64.powf(rng.random_range(-2.0..4.0));
        truth.push(ms);
        let figures = Figures {
            client_ttft_ms: Some(ms),
            ..Figures::default()
        };
        let instance = ["a", "b"][index % 2];
        registry
            .core(index)
            .record(&exchange("p", instance), &figures, 1);
    }
    truth.sort_by(f64::total_cmp);
    let quantiles = registry.quantiles(1, Window::OneMinute);
    let whole = find(&quantiles, Cut::Pool, "", Figure::ClientTtft);
    assert_eq!(whole.count, 3000);
    for (quantile, found) in [
        (0.5, whole.p50),
        (0.9, whole.p90),
        (0.95, whole.p95),
        (0.99, whole.p99),
    ] {
        let right = truth[(quantile * 3000f64).ceil() as usize - 1];
        assert!(
            (found / right - 1.0).abs() < 0.01,
            "{quantile}: {found} for {right}"
        );
    }
    let mean = truth.iter().sum::<f64>() / 3000.0;
    assert!((whole.mean / mean - 1.0).abs() < 0.001);
    assert_eq!(
        find(&quantiles, Cut::Instance, "a", Figure::ClientTtft).count,
        1500
    );
    assert_eq!(
        find(&quantiles, Cut::Lane, "short", Figure::ClientTtft).count,
        3000
    );
}

#[test]
fn a_failed_request_counts_by_outcome_but_not_in_latency() {
    let registry = Registry::new(1, 100);
    let mut failed = exchange("p", "a");
    failed.outcome = Outcome::Cut;
    failed.attempts = 3;
    registry.core(0).record(&failed, &Figures::of(&failed), 1);
    assert!(registry.quantiles(1, Window::Total).is_empty());
    let totals = registry.totals();
    let instance = totals
        .iter()
        .find(|(key, _)| key.cut == Cut::Instance)
        .unwrap()
        .1;
    assert_eq!(
        (
            instance.requests(),
            instance.of(Outcome::Cut),
            instance.failed()
        ),
        (1, 1, 1)
    );
    assert_eq!((instance.retries, instance.with_usage), (2, 0));
}

#[test]
fn past_max_series_everything_goes_under_other() {
    let registry = Registry::new(2, 8);
    for index in 0..100 {
        let mut request = exchange("p", &format!("i{index}"));
        request.lane = None;
        registry
            .core(index)
            .record(&request, &Figures::of(&request), 1);
    }
    let totals = registry.totals();
    let instances: Vec<_> = totals
        .iter()
        .filter(|(key, _)| key.cut == Cut::Instance)
        .collect();
    assert_eq!(instances.len(), 8);
    assert_eq!(
        instances
            .iter()
            .map(|(_, totals)| totals.requests())
            .sum::<u64>(),
        100
    );
    assert!(
        instances
            .iter()
            .any(|(key, totals)| &*key.name == OTHER && totals.requests() == 93)
    );
}

#[test]
fn the_slow_instance_shows_in_the_live_table() {
    let registry = Registry::new(2, 100);
    let mut rng = StdRng::seed_from_u64(1);
    for index in 0..900 {
        let slow = index % 3 == 0;
        let mut request = exchange("p", if slow { "slow" } else { ["b", "c"][index % 2] });
        let batch = rng.random_range(1.0..12.0);
        request.mean_batch = Some(batch);
        let mut figures = Figures::of(&request);
        figures.tpot_ms = Some((8.0 + batch) * if slow { 1.6 } else { 1.0 });
        registry.core(index).record(&request, &figures, 1);
    }
    let speeds = registry.speeds();
    let slow = speeds
        .iter()
        .find(|speed| &*speed.instance == "slow")
        .unwrap();
    assert!((slow.speed_vs_fleet.unwrap() / 1.6 - 1.0).abs() < 0.05);
}

/// Prints what a busy fleet's histograms take; requests spread over 6 minutes.
#[test]
fn memory_of_a_fleets_histograms_is_bounded() {
    for (instances, requests) in [(64, 1000u64), (1000, 40)] {
        let registry = Registry::new(1, 10_000);
        let mut rng = StdRng::seed_from_u64(5);
        for instance in 0..instances {
            let request = exchange("p", &format!("i{instance}"));
            for at in 0..requests {
                let mut ms = || Some(10f64.powf(rng.random_range(1.0..3.0)));
                let figures = Figures {
                    client_ttft_ms: ms(),
                    server_ttft_ms: ms(),
                    tpot_ms: ms(),
                    e2e_ms: ms(),
                    proxy_own_ms: ms(),
                    queue_ms: ms(),
                    ..Figures::default()
                };
                registry
                    .core(0)
                    .record(&request, &figures, at * 360_000_000_000 / requests);
            }
        }
        let bytes = registry.bytes();
        println!(
            "{instances} instances, one core: {} kB, {} kB each",
            bytes / 1000,
            bytes / 1000 / instances
        );
        assert!(
            bytes / instances < 400_000,
            "{bytes} bytes for {instances} instances"
        );
    }
}
