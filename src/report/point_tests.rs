#![allow(clippy::unwrap_used)]
use super::*;
use crate::load::sample::Failure;
use crate::report::fixture::{look, point, request, setting};
use crate::study::monitor::{Figures, Source};

fn closed(instances: u32) -> Setting {
    setting(instances, Load::Closed { concurrency: 8 })
}

#[test]
fn failures_are_beside_latencies_and_in_the_denominator() {
    let mut failed = request(2, 200, 9_000, &[10], "a");
    failed.sample.failure = Some(Failure::Status);
    failed.sample.status = Some(500);
    let requests = vec![
        request(0, 0, 100, &[10, 10], "a"),
        request(1, 100, 300, &[20, 20], "a"),
        failed,
    ];
    let objectives = [Objective::parse("ttft:200").unwrap()];
    let view = PointView::of(&point(closed(1), requests, 10), &objectives);
    assert_eq!((view.completed, view.latencies.sent), (2, 3));
    assert_eq!(view.failures, BTreeMap::from([("status_500".into(), 1)]));
    assert_eq!(view.latencies.ttft.unwrap().p50, 200.0);
    assert_eq!(view.latencies.server_ttft.unwrap().p50, 198.0);
    assert_eq!(view.latencies.tpot.unwrap().mean, 15.0);
    // (E2E - TTFT) / N: 20 / 3 and 40 / 3
    assert!((view.latencies.tpot_over_n.unwrap().mean - 10.0).abs() < 1e-9);
    assert_eq!(view.attainment, Some(1.0 / 3.0));
    assert_eq!(view.good_per_s, Some(0.1));
    assert_eq!(view.throughput.unwrap().output_tokens_per_s, 0.6);
    assert_eq!(view.throughput.unwrap().output_tokens_per_gpu_day, 51_840.0);
    assert_eq!(view.lengths.len(), 1);
    assert_eq!(view.length("short").unwrap().completed, 2);
    assert_eq!(view.length("long"), None);
}

#[test]
fn lost_requests_are_counted_against_the_rate() {
    let mut requests: Vec<PointRequest> = (0..40)
        .map(|index| request(index, u64::from(index) * 250, 100, &[10], "a"))
        .collect();
    requests[7].sample.failure = Some(Failure::Timeout);
    let setting = setting(1, Load::Poisson { rate_per_s: 4.0 });
    let view = PointView::of(&point(setting, requests, 10), &[]);
    let offered = view.offered.unwrap();
    assert_eq!((offered.set_per_s, offered.planned_per_s), (4.0, 4.0));
    assert_eq!((offered.completed_per_s, offered.lost), (3.9, 1));
    assert_eq!(offered.lost_share, 1.0 / 40.0);
    let closed = PointView::of(&point(closed(1), Vec::new(), 10), &[]);
    assert_eq!((closed.offered, closed.success_share), (None, None));
    assert_eq!(closed.latencies.ttft, None);
}

#[test]
fn an_instance_that_got_nothing_is_in_the_skew() {
    let requests: Vec<PointRequest> = (0..90)
        .map(|index| request(index, u64::from(index) * 100, 50, &[10; 4], "a"))
        .collect();
    let view = PointView::of(&point(closed(2), requests, 10), &[]);
    let instances = view.instances.unwrap();
    assert_eq!(instances.each.len(), 1);
    assert_eq!(instances.each[0].request_share, Some(1.0));
    let skew = instances.load_skew.unwrap();
    assert_eq!(skew.measured, 2.0);
    assert!((1.0..1.4).contains(&skew.by_chance), "{skew:?}");
    assert_eq!(instances.request_imbalance, Some(2.0));
}

#[test]
fn outstanding_tokens_fall_evenly_while_they_are_made() {
    // 100 + 5 tokens for 50 ms, then 5 that shrink to 0 over 40 ms; in 10 s
    let view = PointView::of(
        &point(closed(1), vec![request(0, 0, 50, &[10; 4], "a")], 10),
        &[],
    );
    let mean = view.instances.unwrap().each[0].mean_outstanding_tokens;
    assert!(
        (mean - (105.0 * 0.05 + 2.5 * 0.04) / 10.0).abs() < 1e-9,
        "{mean}"
    );
}

#[test]
fn only_looks_within_the_window_count_and_what_was_not_told_is_absent() {
    let mut point = point(closed(2), vec![request(0, 0, 50, &[10; 4], "a")], 10);
    let engine = |at_s: f64, name: &str, waiting: f64, preemptions: f64| {
        let figures = Figures {
            waiting: Some(waiting),
            preemptions_total: Some(preemptions),
            ..Figures::default()
        };
        look(at_s, Source::Engine, name, figures)
    };
    point.monitor = vec![
        engine(-1.0, "a", 90.0, 0.0),
        engine(2.0, "a", 4.0, 10.0),
        engine(8.0, "a", 8.0, 40.0),
        engine(2.0, "b", 0.0, 5.0),
        engine(8.0, "b", 0.0, 5.0),
        engine(12.0, "b", 70.0, 90.0),
    ];
    let view = PointView::of(&point, &[]);
    let a = &view.watched.each["a"];
    assert_eq!(
        (a.waiting.unwrap().mean, a.waiting.unwrap().max),
        (6.0, 8.0)
    );
    assert_eq!(
        (a.preemptions, a.preemptions_per_s),
        (Some(30.0), Some(5.0))
    );
    let fleet = &view.watched.fleet;
    assert_eq!(
        (fleet.waiting.unwrap().mean, fleet.waiting.unwrap().max),
        (3.0, 8.0)
    );
    assert_eq!(fleet.preemptions, Some(30.0));
    assert_eq!(view.preemptions_per_request, Some(30.0));
    assert_eq!((fleet.gpu_use_share, fleet.host_cpu_share), (None, None));
    assert_eq!(view.watched.generator_cpu_share, None);
}

#[test]
fn slices_add_up_to_the_whole() {
    let requests: Vec<PointRequest> = (0..90)
        .map(|index| request(index, u64::from(index) * 100, 50, &[10; 4], "a"))
        .collect();
    let view = PointView::of(&point(closed(1), requests, 10), &[]);
    let tokens: f64 = view.slices.iter().map(|slice| slice.output_tokens).sum();
    assert_eq!(view.slices.len(), 10);
    assert!((tokens - view.throughput.unwrap().counted.output_tokens).abs() < 1e-9);
}
