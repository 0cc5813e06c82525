#![allow(clippy::unwrap_used)]
use super::*;
use crate::report::fixture::view;

fn with_batch(mut point: PointView, ttft_p95_ms: f64) -> PointView {
    point.setting.batch_concurrency = Some(8);
    if let Some(ttft) = &mut point.latencies.ttft {
        ttft.p95 = ttft_p95_ms;
    }
    point
}

#[test]
fn online_figures_with_batch_work_are_held_against_those_without() {
    // the fixture's TTFT is 100 ms
    let of = |ttft_p95_ms| {
        let points = [
            view(1, 1, 16, 1000.0),
            view(1, 1, 32, 1000.0),
            with_batch(view(1, 1, 16, 1000.0), ttft_p95_ms),
        ];
        isolations(&points)
    };
    let found = of(150.0);
    assert_eq!((found.len(), found[0].batch_concurrency), (1, 8));
    assert_eq!(found[0].ttft.unwrap().p95, 1.5);
    assert!(found[0].is_broken());
    assert!(!of(110.0)[0].is_broken());
    assert!(isolations(&[with_batch(view(1, 1, 16, 1000.0), 100.0)]).is_empty());
}

#[test]
fn fewer_requests_within_the_service_level_break_isolation_too() {
    let mut points = [
        view(1, 1, 16, 1000.0),
        with_batch(view(1, 1, 16, 1000.0), 100.0),
    ];
    points[0].attainment = Some(0.995);
    points[1].attainment = Some(0.95);
    assert!(isolations(&points)[0].is_broken());
}
