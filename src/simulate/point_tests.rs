//! What a simulated point must hold.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use super::*;
use crate::load::lengths::Lengths;
use crate::load::sample::Failure;
use crate::measure::outcome::Outcome;
use crate::simulate::GeneratorCost;
use crate::study::monitor::Source;
use crate::study::{Scaling, Scenario};

fn setting(instances: u32, load: Load) -> Setting {
    Setting {
        scenario: Scenario::Online,
        scaling: Scaling::Horizontal,
        instances,
        gpus_per_instance: 1,
        load,
        load_per_instance: load.amount() / f64::from(instances),
        lengths: "test".into(),
        policy: "least_requests".into(),
        repeat: 0,
        seed: 5,
        variant: "base".into(),
        engine: BTreeMap::new(),
        batch_concurrency: None,
        labels: BTreeMap::new(),
    }
}

fn class(prompt: u32, output: u32) -> Class {
    Class {
        name: "test".into(),
        share: 1.0,
        prompt: Lengths::Uniform {
            min_tokens: prompt / 2,
            max_tokens: prompt,
        },
        output: Lengths::Fixed { tokens: output },
    }
}

fn spec(instances: u32, load: Load) -> PointSpec {
    let fleet = Fleet::new(Profile::load("test-fast").unwrap());
    PointSpec::new(
        setting(instances, load),
        fleet,
        vec![class(100, 20)],
        1.0,
        4.0,
    )
}

fn open_at(run: &RunResult, at_ns: u64) -> usize {
    let open = |sample: &&crate::load::sample::Sample| {
        sample.issued_ns.unwrap() <= at_ns && sample.end_ns > at_ns
    };
    run.samples.iter().filter(open).count()
}

#[test]
fn a_closed_loop_keeps_its_places_filled_until_its_time_is_over() {
    let point = run_point(&spec(2, Load::Closed { concurrency: 12 })).unwrap();
    for at_ns in [500_000_000, 2_345_000_000, 4_900_000_000] {
        // a place is empty for the moment between an answer's end and the next send
        assert!(
            (11..=12).contains(&open_at(&point.run, at_ns)),
            "at {at_ns}"
        );
    }
    let last = point
        .run
        .samples
        .iter()
        .filter_map(|sample| sample.issued_ns)
        .max();
    assert!((4_900_000_000..5_000_000_001).contains(&last.unwrap()));
    let summary = point.summary(Vec::new());
    assert_eq!(
        summary.counts.kept + summary.counts.warm_up,
        point.run.samples.len() as u64
    );
    assert!(summary.counts.warm_up > 100 && summary.completed == summary.counts.kept);
}

#[test]
fn a_point_is_the_same_every_time_and_another_seed_is_another() {
    let mut spec = spec(2, Load::Closed { concurrency: 8 });
    let (one, two) = (run_point(&spec).unwrap(), run_point(&spec).unwrap());
    assert_eq!(one.run.samples, two.run.samples);
    assert_eq!((&one.records, &one.readings), (&two.records, &two.readings));
    spec.setting.seed += 1;
    assert_ne!(run_point(&spec).unwrap().run.samples, one.run.samples);
}

#[test]
fn an_open_loop_sends_the_drawn_schedule_whatever_the_fleet_does() {
    let mut spec = spec(1, Load::Poisson { rate_per_s: 400.0 });
    spec.fleet.slow_factors = vec![50.0];
    let point = run_point(&spec).unwrap();
    let drawn = Arrivals::Poisson { rate_per_s: 400.0 }
        .schedule_ns(5, 5_000_000_000)
        .unwrap();
    let planned: Vec<u64> = point
        .run
        .samples
        .iter()
        .map(|sample| sample.planned_ns - 1)
        .collect();
    assert_eq!(planned, drawn);
    assert!(
        point.run.lag.unwrap().p99_ms < 1.0,
        "the generator has time"
    );
    assert!(point.scheduled);
}

#[test]
fn a_batch_is_there_at_once_and_is_done_to_its_last_request() {
    let point = run_point(&spec(2, Load::Batch { requests: 300 })).unwrap();
    assert_eq!(point.run.samples.len(), 300);
    assert!(
        point
            .run
            .samples
            .iter()
            .all(|sample| sample.planned_ns == 1 && sample.failure.is_none())
    );
    assert_eq!(point.summary(Vec::new()).completed, 300);
}

#[test]
fn batch_work_beside_an_online_load_is_a_run_of_its_own_and_ends_with_it() {
    let mut spec = spec(1, Load::Poisson { rate_per_s: 20.0 });
    spec.setting.batch_concurrency = Some(6);
    spec.batch_classes = vec![class(800, 60)];
    let point = run_point(&spec).unwrap();
    let batch = point.batch.unwrap();
    let last = |run: &RunResult| {
        run.samples
            .iter()
            .filter_map(|sample| sample.issued_ns)
            .max()
            .unwrap()
    };
    assert!(last(&batch) <= last(&point.run) && last(&batch) > 4_500_000_000);
    assert!((5..=6).contains(&open_at(&batch, 3_000_000_000)));
    assert_eq!(
        point.records.len(),
        point.run.samples.len() + batch.samples.len()
    );
    let ids: std::collections::HashSet<&str> = point
        .records
        .iter()
        .map(|record| record.request_id.as_str())
        .collect();
    assert_eq!(ids.len(), point.records.len());
    spec.setting.batch_concurrency = None;
    let alone = run_point(&spec).unwrap();
    let p50 = |run: &RunResult| {
        let mut ms: Vec<f64> = run
            .samples
            .iter()
            .filter_map(|sample| sample.ttft_ms())
            .collect();
        ms.sort_unstable_by(f64::total_cmp);
        ms[ms.len() / 2]
    };
    assert!(p50(&point.run) > p50(&alone.run));
}

#[test]
fn each_source_is_read_each_second_and_totals_add_up() {
    let point = run_point(&spec(2, Load::Closed { concurrency: 12 })).unwrap();
    let of = |source| {
        point
            .readings
            .iter()
            .filter(move |reading| reading.source == source)
    };
    assert_eq!(
        (
            of(Source::Engine).count(),
            of(Source::Gpu).count(),
            of(Source::Generator).count()
        ),
        (12, 12, 6)
    );
    let first = of(Source::Engine).next().unwrap();
    assert_eq!(
        (first.at_s, first.instance.as_deref()),
        (1.0, Some("engine-0"))
    );
    assert!((first.figures.running.unwrap() - 6.0).abs() <= 1.0);
    let last = |name: &str| {
        let mut its =
            of(Source::Engine).filter(|reading| reading.instance.as_deref() == Some(name));
        its.next_back()
            .unwrap()
            .figures
            .generation_tokens_total
            .unwrap()
    };
    let made: u64 = point
        .run
        .samples
        .iter()
        .map(|sample| sample.output_chunks)
        .sum();
    assert!((last("engine-0") + last("engine-1") - made as f64).abs() < 12.0 * 20.0);
    for gpu in of(Source::Gpu).filter(|reading| reading.at_s < 5.0) {
        let figures = &gpu.figures;
        assert!(
            (0.9..=1.0).contains(&figures.gpu_use_share.unwrap()),
            "{figures:?}"
        );
        assert!(figures.sm_active_share < figures.gpu_use_share);
    }
}

#[test]
fn records_name_the_instance_and_agree_with_what_the_client_saw() {
    let mut spec = spec(2, Load::Closed { concurrency: 12 });
    spec.fleet.generator = GeneratorCost::default();
    let point = run_point(&spec).unwrap();
    assert_eq!(point.records.len(), point.run.samples.len());
    for (record, sample) in point.records.iter().zip(&point.run.samples) {
        assert_eq!(record.request_id, format!("sim-{}", sample.index));
        assert_eq!(record.outcome.0, Outcome::Ok);
        assert!(record.instance.as_deref().unwrap().starts_with("engine-"));
        assert_eq!(record.client_ttft_ms, sample.ttft_ms());
        assert_eq!(record.output_tokens, Some(20));
        assert_eq!(record.queue_ms, Some(0.0));
    }
}

#[test]
fn what_the_engine_cannot_take_fails_and_the_loop_still_ends() {
    let mut spec = spec(1, Load::Closed { concurrency: 2 });
    spec.classes = vec![class(20_000, 20)];
    let point = run_point(&spec).unwrap();
    assert!(
        point
            .run
            .samples
            .iter()
            .all(|sample| sample.failure == Some(Failure::Status))
    );
    assert_eq!(point.summary(Vec::new()).completed, 0);
    assert_eq!(point.records[0].outcome.0, Outcome::ClientError);
    assert_eq!(point.records[0].client_ttft_ms, None);
}

#[test]
fn a_slow_generator_issues_late_and_its_core_is_full() {
    let mut spec = spec(2, Load::Poisson { rate_per_s: 200.0 });
    spec.fleet.generator.event_us = 400.0;
    let point = run_point(&spec).unwrap();
    let summary = point.summary(Vec::new());
    assert!(
        point.run.lag.unwrap().own_p99_ms > 500.0,
        "{:?}",
        point.run.lag
    );
    assert!(
        summary.generator.cpu_share.unwrap() > 0.9,
        "{:?}",
        summary.generator
    );
    assert!(summary.generator.bottleneck.is_some());
    let server = point
        .records
        .iter()
        .filter_map(|record| record.server_ttft_ms)
        .fold(0.0, f64::max);
    assert!(server < 200.0, "the engines have time: {server}");
}

#[test]
fn hashed_connections_go_where_their_share_says() {
    let mut spec = spec(4, Load::Closed { concurrency: 64 });
    spec.fleet.connection_shares = Some(vec![0.7, 0.1, 0.1, 0.1]);
    let point = run_point(&spec).unwrap();
    let running = |name: &str| {
        let its = point
            .readings
            .iter()
            .filter(|reading| reading.instance.as_deref() == Some(name))
            .filter_map(|reading| Some(reading.figures.running? + reading.figures.waiting?));
        its.fold(0.0, f64::max)
    };
    assert!(
        (running("engine-0") - 45.0).abs() <= 3.0,
        "{}",
        running("engine-0")
    );
    assert!(
        (running("engine-3") - 6.0).abs() <= 3.0,
        "{}",
        running("engine-3")
    );
}

#[test]
fn settings_that_do_not_hold_say_so() {
    let with = |key: &str, value: toml::Value| {
        let mut spec = spec(1, Load::Closed { concurrency: 2 });
        spec.setting.engine.insert(key.into(), value);
        run_point(&spec).unwrap_err().to_string()
    };
    assert!(with("max_num_sequences", 4.into()).contains("max_num_sequences"));
    assert!(with("kv_blocks", 4.into()).contains("kv_blocks"));
    let mut wrong = spec(1, Load::Closed { concurrency: 2 });
    wrong.setting.policy = "lanes".into();
    assert!(run_point(&wrong).unwrap_err().to_string().contains("lanes"));
    wrong.setting.policy = "random".into();
    wrong.setting.gpus_per_instance = 2;
    wrong.fleet.profile.link = None;
    assert!(
        run_point(&wrong)
            .unwrap_err()
            .to_string()
            .contains("[link]")
    );
    wrong.setting.gpus_per_instance = 1;
    wrong.setting.instances = 0;
    assert!(matches!(run_point(&wrong), Err(SimulateError::NoInstance)));
}

#[test]
fn engine_settings_reach_the_engine() {
    let mut spec = spec(1, Load::Closed { concurrency: 16 });
    spec.setting.engine.insert("max_num_seqs".into(), 4.into());
    let point = run_point(&spec).unwrap();
    let engine = point
        .readings
        .iter()
        .find(|reading| reading.source == Source::Engine)
        .unwrap();
    assert_eq!(engine.figures.running, Some(4.0));
    assert!(engine.figures.waiting.unwrap() >= 11.0);
}
