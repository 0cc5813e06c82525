//! What rules say of synthetic points.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::report::fixture::{study_file, view};
use crate::report::generator::{Bottleneck, Generator};
use crate::report::instances::{InstanceView, Instances, SkewView};
use crate::report::quantiles::Quantiles;
use crate::report::watched::{Gauge, InstanceWatch};
use crate::study::Load;

fn gauge(mean: f64) -> Option<Gauge> {
    Some(Gauge { mean, max: mean })
}

/// A busy GPU, an idle CPU, a KV cache with room, nobody who waits.
fn watch(running: f64) -> InstanceWatch {
    InstanceWatch {
        running: gauge(running),
        waiting: gauge(0.0),
        kv_used_share: gauge(0.3),
        preemptions: Some(0.0),
        gpu_use_share: gauge(0.95),
        sm_active_share: gauge(0.7),
        dram_active_share: gauge(0.5),
        host_cpu_share: gauge(0.2),
        engine_cpu_cores: gauge(0.3),
        ..InstanceWatch::default()
    }
}

fn watched(mut point: PointView, tpot_ms: f64, watch: InstanceWatch) -> PointView {
    point.watched.each.insert("a".into(), watch.clone());
    point.preemptions_per_request = watch.preemptions;
    point.watched.fleet = watch;
    let tpot: Option<Quantiles> = Quantiles::over([tpot_ms; 3]);
    point.latencies.tpot = tpot;
    point
}

/// One instance whose throughput goes 1000, 1900, 2000 tokens a second as load doubles.
fn stalling(last: InstanceWatch, last_tpot_ms: f64) -> Vec<PointView> {
    vec![
        watched(view(1, 1, 8, 1000.0), 8.0, watch(8.0)),
        watched(view(1, 1, 16, 1900.0), 8.4, watch(16.0)),
        watched(view(1, 1, 32, 2000.0), last_tpot_ms, last),
    ]
}

fn kinds(points: &[PointView]) -> Vec<Kind> {
    let diagnosis = diagnose(points, &study_file(None));
    diagnosis
        .verdicts
        .iter()
        .map(|verdict| verdict.kind)
        .collect()
}

#[test]
fn tokens_that_slow_down_at_a_busy_gpu_are_compute_bound() {
    let points = [
        watched(view(1, 1, 16, 1900.0), 8.4, watch(16.0)),
        watched(view(1, 1, 32, 2000.0), 16.0, watch(32.0)),
    ];
    let diagnosis = diagnose(&points, &study_file(None));
    let verdict = &diagnosis.verdicts[0];
    assert_eq!(
        (verdict.kind, diagnosis.verdicts.len()),
        (Kind::ComputeBound, 1)
    );
    assert!(verdict.evidence.iter().all(|one| !one.points.is_empty()));
    let variant = verdict.counter_experiment.as_ref().unwrap().toml();
    assert!(
        variant.contains("change = { concurrency = 16 }"),
        "{variant}"
    );
    assert!(variant.contains("concurrency = [32]"), "{variant}");
    assert!(toml::from_str::<toml::Table>(&variant).is_ok(), "{variant}");
    // memory, preemption and CPU are ruled out in this order
    let steps: Vec<(&str, State)> = diagnosis.eliminations[0]
        .steps
        .iter()
        .map(|step| (step.suspect, step.state))
        .collect();
    let out = State::RuledOut;
    assert_eq!(steps, [("memory", out), ("preemption", out), ("cpu", out)]);
}

#[test]
fn a_queue_before_an_engine_whose_batch_still_paid_is_queue_bound() {
    let last = InstanceWatch {
        waiting: gauge(16.0),
        ..watch(16.5)
    };
    let points = stalling(last, 8.5);
    let diagnosis = diagnose(&points, &study_file(None));
    assert_eq!(diagnosis.verdicts[0].kind, Kind::QueueBound);
    let variant = diagnosis.verdicts[0].counter_experiment.as_ref().unwrap();
    assert_eq!(variant.change, "{ engine = { max_num_seqs = 33 } }");
}

#[test]
fn a_stall_at_an_idle_gpu_without_a_queue_is_scheduling() {
    let last = InstanceWatch {
        gpu_use_share: gauge(0.4),
        ..watch(32.0)
    };
    assert_eq!(kinds(&stalling(last, 16.0)), [Kind::QueueBound]);
}

#[test]
fn memory_comes_before_the_queue_that_it_makes() {
    let full = InstanceWatch {
        waiting: gauge(16.0),
        kv_used_share: gauge(0.97),
        ..watch(16.0)
    };
    assert_eq!(kinds(&stalling(full, 8.5)), [Kind::KvBound]);
    let preempting = InstanceWatch {
        preemptions: Some(0.4),
        ..watch(20.0)
    };
    let diagnosis = diagnose(&stalling(preempting, 14.0), &study_file(None));
    assert_eq!(diagnosis.verdicts[0].kind, Kind::KvBound);
    let first = &diagnosis.eliminations[0];
    assert_eq!(first.steps[0].state, State::RuledOut);
    assert_eq!(first.steps[1].state, State::Holds);
    assert!(
        first.says.contains("preemption is the first"),
        "{}",
        first.says
    );
}

#[test]
fn a_full_cpu_at_a_waiting_gpu_is_cpu_bound_and_not_scheduling() {
    let last = InstanceWatch {
        host_cpu_share: gauge(0.98),
        gpu_use_share: gauge(0.4),
        ..watch(16.0)
    };
    assert_eq!(kinds(&stalling(last, 9.0)), [Kind::CpuBound]);
    // a full CPU at a busy GPU holds nobody back
    let last = InstanceWatch {
        host_cpu_share: gauge(0.98),
        ..watch(32.0)
    };
    assert_eq!(kinds(&stalling(last, 16.0)), [Kind::ComputeBound]);
}

#[test]
fn what_was_not_measured_is_not_assumed() {
    let points = [view(1, 1, 16, 1900.0), view(1, 1, 32, 2000.0)];
    let mut points = points.map(|point| watched(point, 8.0, InstanceWatch::default()));
    points[1].latencies.tpot = Quantiles::over([16.0; 3]);
    let diagnosis = diagnose(&points, &study_file(None));
    assert_eq!(diagnosis.verdicts[0].kind, Kind::Unexplained);
    let missing: Vec<Kind> = diagnosis.not_judged.iter().map(|one| one.kind).collect();
    assert_eq!(
        missing,
        [
            Kind::GeneratorBound,
            Kind::KvBound,
            Kind::CpuBound,
            Kind::QueueBound,
            Kind::ComputeBound
        ]
    );
    let states = diagnosis.eliminations[0]
        .steps
        .iter()
        .map(|step| step.state);
    assert!(states.into_iter().all(|state| state == State::Unknown));
}

#[test]
fn a_generator_that_did_not_keep_up_is_the_verdict_and_its_points_say_nothing_else() {
    let mut points = stalling(watch(32.0), 16.0);
    points[2].generator = Some(Generator {
        cpu_share: Some(0.99),
        cpu_us_per_event: None,
        events: 1,
        connections: 1,
        waited_share: None,
        stolen_share: None,
        lag: None,
        bottleneck: Some(Bottleneck::Cpu),
    });
    assert_eq!(kinds(&points), [Kind::GeneratorBound]);
}

fn skewed(point: PointView, measured: f64) -> PointView {
    let mut point = watched(point, 8.0, watch(16.0));
    point.instances = Some(Instances {
        each: Vec::new(),
        load_skew: Some(SkewView {
            measured,
            by_chance: 1.08,
        }),
        request_imbalance: Some(measured),
        open_imbalance: None,
    });
    point
}

#[test]
fn uneven_load_is_a_verdict_only_where_it_costs_throughput() {
    let of = |measured: f64, tokens_per_s: f64| {
        let one = watched(view(1, 1, 16, 1000.0), 8.0, watch(16.0));
        kinds(&[one, skewed(view(4, 1, 64, tokens_per_s), measured)])
    };
    assert_eq!(of(3.2, 2600.0), [Kind::BalancerBound]);
    assert_eq!(of(3.2, 3900.0), [Kind::Healthy]);
    // 65 % at even load has another cause, which nothing here tells
    assert_eq!(of(1.05, 2600.0), [Kind::Unexplained]);
}

#[test]
fn under_a_rate_uneven_load_costs_waiting_and_not_throughput() {
    let instance = |name: &str, tokens: f64, ttft_ms: f64| InstanceView {
        name: name.into(),
        requests: 100,
        failed: 0,
        request_share: None,
        tokens: 0,
        token_share: None,
        mean_outstanding_tokens: tokens,
        mean_open_requests: 1.0,
        server_ttft: Quantiles::over([ttft_ms; 3]),
    };
    let of = |ttft_ms: f64, is_rate: bool| {
        let mut one = watched(view(1, 1, 16, 1000.0), 8.0, watch(16.0));
        let mut two = skewed(view(2, 1, 32, 1990.0), 1.8);
        if is_rate {
            one.setting.load = Load::Poisson { rate_per_s: 1.0 };
            two.setting.load = Load::Poisson { rate_per_s: 2.0 };
        }
        if let Some(instances) = &mut two.instances {
            instances.each = vec![instance("a", 900.0, ttft_ms), instance("b", 100.0, 100.0)];
        }
        kinds(&[one, two])
    };
    assert_eq!(of(400.0, true), [Kind::BalancerBound]);
    assert_eq!(of(110.0, true), [Kind::Healthy]);
    assert_eq!(of(400.0, false), [Kind::Healthy]);
}

#[test]
fn gpus_that_bring_little_though_kernels_run_wait_for_each_other() {
    let of = |gpu_use: f64| {
        let four = InstanceWatch {
            gpu_use_share: gauge(gpu_use),
            ..watch(64.0)
        };
        kinds(&[
            watched(view(1, 1, 16, 1000.0), 8.0, watch(16.0)),
            watched(view(1, 4, 64, 2200.0), 14.0, four),
        ])
    };
    assert_eq!(of(0.97), [Kind::CommunicationBound]);
    assert_ne!(of(0.3), [Kind::CommunicationBound]);
}

#[test]
fn a_fleet_that_scales_and_still_gains_is_healthy_and_failures_are_a_caveat() {
    let mut points = vec![
        watched(view(1, 1, 16, 1000.0), 8.0, watch(16.0)),
        watched(view(1, 1, 32, 1600.0), 9.0, watch(32.0)),
        watched(view(2, 1, 32, 1950.0), 8.0, watch(16.0)),
        watched(view(2, 1, 64, 3150.0), 9.0, watch(32.0)),
    ];
    assert_eq!(kinds(&points), [Kind::Healthy]);
    points[3].success_share = Some(0.9);
    let diagnosis = diagnose(&points, &study_file(None));
    assert!(
        diagnosis.caveats[0].contains("10 %"),
        "{:?}",
        diagnosis.caveats
    );
    points[0].success_share = Some(0.5);
    assert_eq!(kinds(&points), [Kind::Unexplained]);
}

#[test]
fn counter_experiments_are_not_judged_beside_the_plan_itself() {
    let mut points = stalling(watch(32.0), 8.5);
    for point in &mut points {
        point.setting.variant = "half-load".into();
    }
    points.push(watched(view(1, 1, 16, 1000.0), 8.0, watch(16.0)));
    assert_eq!(kinds(&points), [Kind::Healthy]);
}

/// TTFT whose 99th percentile is `ratio` times its median.
fn with_tails(mut point: PointView, ratios: [f64; 2]) -> PointView {
    let its = point.lengths[0].clone();
    point.lengths = ["short", "long"]
        .into_iter()
        .zip(ratios)
        .map(|(length, ratio)| {
            let mut its = its.clone();
            its.length = length;
            its.latencies.completed = 500;
            let ttft = its.latencies.ttft.as_mut().unwrap();
            (ttft.p50, ttft.p99) = (100.0, 100.0 * ratio);
            its
        })
        .collect();
    point
}

#[test]
fn only_long_requests_with_a_tail_are_told_from_short_ones_with_one_too() {
    let tail = |ratios: [f64; 2], preemptions: f64, waiting: f64| {
        let seen = InstanceWatch {
            preemptions: Some(preemptions),
            waiting: gauge(waiting),
            ..watch(16.0)
        };
        let point = with_tails(view(1, 1, 16, 1000.0), ratios);
        let diagnosis = diagnose(&[watched(point, 8.0, seen)], &study_file(None));
        let tail = diagnosis.tails[0].clone();
        (tail.pattern, tail.says)
    };
    assert_eq!(tail([2.0, 3.0], 0.0, 0.0).0, TailPattern::Nobody);
    assert_eq!(tail([2.0, 9.0], 0.0, 0.0).0, TailPattern::OnlyLong);
    let (pattern, says) = tail([9.0, 9.0], 0.5, 0.0);
    assert!(
        pattern == TailPattern::ShortToo && says.contains("preempted"),
        "{says}"
    );
    assert!(
        tail([9.0, 9.0], 0.0, 3.0)
            .1
            .contains("long ones probably block")
    );
    assert!(tail([9.0, 9.0], 0.0, 0.0).1.contains("not told apart"));
}

#[test]
fn short_requests_alone_tell_whether_long_ones_block_them() {
    let says = |alone: f64| {
        let mixed = with_tails(view(1, 1, 16, 1000.0), [9.0, 9.0]);
        let mut short = with_tails(view(1, 1, 16, 1000.0), [alone, 1.0]);
        short.setting.lengths = "short".into();
        let points = [mixed, short].map(|point| watched(point, 8.0, watch(16.0)));
        let diagnosis = diagnose(&points, &study_file(None));
        let its = diagnosis
            .tails
            .iter()
            .find(|tail| tail.curve.contains("mix"));
        its.unwrap().says.clone()
    };
    assert!(says(2.0).contains("block them"));
    assert!(says(8.0).contains("outside of the engine interferes"));
}
