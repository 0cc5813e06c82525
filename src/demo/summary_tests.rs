//! Figures of made-up runs whose right values are known.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::demo::compare::Verdict;
use crate::demo::options::workload;
use crate::engine::server::LagSummary;
use crate::load::sample::Sample;
use crate::load::workload::PlannedRequest;
use crate::measure::outcome::Outcome;
use crate::measure::record::OutcomeName;

const MS: u64 = 1_000_000;
const BEGIN_NS: u64 = 1000 * MS;

fn settings() -> Settings {
    Settings {
        seeds: vec![1],
        seconds: 20.0,
        warm_up_s: 2.0,
        workload: workload(50.0),
        profile: "demo-small".into(),
        slow_factors: vec![1.0, 1.6],
    }
}

/// 20 s of a request every 20 ms, in turn to two instances, the second 1.6 times slower.
fn run(policy: &str, ttft_ms: f64) -> ArmRun {
    let request = |index: u32| {
        let planned = PlannedRequest {
            index,
            at_ns: u64::from(index) * 20 * MS,
            class: u16::from(index % 10 == 9),
            prompt_tokens: 100,
            output_tokens: 11,
            text_seed: 0,
            prefix: None,
        };
        let slow = index % 2 == 1;
        let tpot_ms = (10.0 + f64::from(index % 7)) * if slow { 1.6 } else { 1.0 };
        let record = Record {
            request_id: format!("{policy}-1-{index}"),
            outcome: OutcomeName(Outcome::Ok),
            instance: Some(format!("sim-{}", index % 2)),
            complete: Some(true),
            client_ttft_ms: Some(ttft_ms),
            server_ttft_ms: Some(ttft_ms - 1.0),
            last_output_ms: Some(ttft_ms - 1.0 + 10.0 * tpot_ms),
            tpot_ms: Some(tpot_ms),
            e2e_ms: Some(ttft_ms + 10.0 * tpot_ms),
            start_s: f64::from(index) * 0.02,
            chunk_gap_ms: Some(vec![tpot_ms; 10]),
            prompt_tokens: Some(100),
            output_tokens: Some(11),
            ..Record::default()
        };
        let mut sample = Sample::planned(&planned, BEGIN_NS + planned.at_ns);
        sample.sent_ns = Some(sample.planned_ns);
        sample.first_output_ns = Some(sample.planned_ns + (ttft_ms as u64 + 2) * MS);
        sample.end_ns = sample.planned_ns + 500 * MS;
        Joined {
            planned,
            sample,
            record: Some(record),
        }
    };
    ArmRun {
        policy: policy.into(),
        seed: 1,
        requests: (0..1000).map(request).collect(),
        engine_lag: LagSummary {
            steps: 10,
            p50_ms: Some(0.1),
            p99_ms: Some(0.5),
            max_ms: Some(0.9),
            rebased: 0,
        },
        send_lag: None,
        records_dropped: 0,
    }
}

#[test]
fn the_warm_up_is_dropped_and_the_rest_is_cut_by_class() {
    let summary = Summary::of(settings(), &[run("a", 50.0)]);
    let policy = &summary.policies[0];
    assert_eq!(
        (
            policy.all.requests,
            policy.short.requests,
            policy.long.requests
        ),
        (900, 810, 90)
    );
    assert_eq!((policy.all.failed, policy.failures.len()), (0, 0));
    assert_eq!(policy.short.client_ttft_ms.p99, Some(50.0));
    assert!((policy.timing.client_less_record_ms.p50.unwrap() - 2.0).abs() < 1e-9);
}

#[test]
fn throughput_counts_what_ended_in_the_measured_time() {
    let summary = Summary::of(settings(), &[run("a", 50.0)]);
    // Answers end 0.5 s after their plan: those planned from 1.5 s to 19.5 s, 50 a second.
    assert!((summary.policies[0].requests_per_s.unwrap() - 50.0).abs() < 1e-9);
    assert!((summary.policies[0].output_tokens_per_s.unwrap() - 550.0).abs() < 1e-9);
}

#[test]
fn the_slow_instance_is_named_with_its_factor() {
    let summary = Summary::of(settings(), &[run("a", 50.0)]);
    let slowest = summary.slowest.unwrap();
    assert_eq!(slowest.instance, "sim-1");
    assert!(
        (slowest.speed_vs_fleet / 1.6 - 1.0).abs() < 0.02,
        "{slowest:?}"
    );
    let instances = &summary.policies[0].instances;
    assert_eq!(instances[0].share_requests, Some(0.5));
    assert!(summary.policies[0].load_skew.unwrap() > 1.0);
}

#[test]
fn every_further_policy_is_compared_with_the_first() {
    let summary = Summary::of(
        settings(),
        &[run("a", 50.0), run("b", 40.0), run("c", 60.0)],
    );
    let verdicts: Vec<_> = summary
        .comparisons
        .iter()
        .map(|one| (one.policy.as_str(), one.verdict))
        .collect();
    assert_eq!(verdicts, [("b", Verdict::Faster), ("c", Verdict::Slower)]);
}

#[test]
fn failures_are_counted_by_name_and_stay_in_the_requests() {
    let mut failing = run("a", 50.0);
    let record = failing.requests[500].record.as_mut().unwrap();
    (record.outcome, record.complete) = (OutcomeName(Outcome::Cut), Some(false));
    failing.requests[501].record = None;
    let summary = Summary::of(settings(), &[failing]);
    let policy = &summary.policies[0];
    assert_eq!(
        (
            policy.all.requests,
            policy.all.failed,
            policy.timing.without_record
        ),
        (900, 2, 1)
    );
    assert_eq!(policy.failures.get("cut"), Some(&1));
    assert_eq!(policy.failures.get("no_record"), Some(&1));
}

#[test]
fn summary_json_keeps_the_names_that_others_read() {
    let summary = Summary::of(settings(), &[run("a", 50.0), run("b", 40.0)]);
    let json = serde_json::to_value(&summary).unwrap();
    let policy = &json["policies"][1];
    for figure in ["client_ttft_ms", "server_ttft_ms", "tpot_ms", "e2e_ms"] {
        for quantile in ["p50", "p90", "p95", "p99"] {
            assert!(policy[figure][quantile].is_f64(), "{figure}.{quantile}");
            assert!(
                policy["short"][figure][quantile].is_f64(),
                "short.{figure}.{quantile}"
            );
        }
    }
    assert!(
        policy["requests"].is_u64()
            && policy["failed"].is_u64()
            && policy["output_tokens_per_s"].is_f64()
    );
    let instance = &policy["instances"][1];
    for name in ["share_requests", "share_tokens", "speed_vs_fleet"] {
        assert!(instance[name].is_f64(), "{name}");
    }
    assert!(instance["server_ttft_ms"]["p50"].is_f64() && instance["tpot_ms"]["p50"].is_f64());
}

#[test]
fn the_closing_words_fit_the_terminal_and_say_who_won() {
    let summary = Summary::of(
        settings(),
        &[
            run("round_robin", 50.0),
            run("least_outstanding_tokens", 40.0),
            run("lanes", 60.0),
        ],
    );
    let text = crate::demo::words::closing(&summary, std::path::Path::new("out"));
    assert!(
        text.contains("least_outstanding_tokens beats round_robin"),
        "{text}"
    );
    assert!(text.contains("lanes is worse than round_robin"), "{text}");
    assert!(text.contains("sim-1 is slow: 1."), "{text}");
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 110, "{widest}: {text}");
    // A name that is broken in two is not readable.
    assert!(
        text.lines()
            .any(|line| line.trim().starts_with("least_outstanding_tokens")),
        "{text}"
    );
}

#[test]
fn an_undecided_comparison_says_what_to_do() {
    let summary = Summary::of(settings(), &[run("round_robin", 50.0), run("lanes", 50.0)]);
    let text = crate::demo::words::closing(&summary, std::path::Path::new("out"));
    assert!(
        text.contains("The interval includes no difference: run longer with --seconds"),
        "{text}"
    );
}
