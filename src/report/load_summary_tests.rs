//! A run in figures, from samples made by hand.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::load::runner::{GeneratorUse, SendLag};
use crate::report::sample_of;

fn run(samples: Vec<Sample>) -> RunResult {
    RunResult {
        started_ns: 1_000_000,
        samples,
        unfinished: 0,
        lag: Some(SendLag {
            p50_ms: 0.1,
            p99_ms: 0.2,
            max_ms: 0.3,
            own_p99_ms: 0.2,
            held_back: 0,
        }),
        generator: GeneratorUse {
            cpu_ns: None,
            waited_ns: None,
            wall_ns: 1,
            events: 0,
            connections: 0,
            stolen_share: None,
        },
    }
}

fn reading(warm_up_ns: u64) -> Reading {
    Reading {
        rule: WindowRule {
            warm_up_ns,
            trim_s: None,
        },
        objectives: vec![Objective::parse("ttft:100").unwrap()],
        scheduled: true,
    }
}

#[test]
fn failures_are_beside_latency_and_not_in_it() {
    let mut samples: Vec<Sample> = (0..4)
        .map(|at| sample_of(at, 1 + u64::from(at), 100, &[10, 10], 0))
        .collect();
    samples[1].failure = Some(Failure::Status);
    samples[1].status = Some(404);
    samples[1].first_output_ns = Some(samples[1].planned_ns + 1);
    samples[2].failure = Some(Failure::Cut);
    let summary = LoadSummary::of(&run(samples), &reading(0));
    assert_eq!(
        (summary.counts.kept, summary.completed, summary.failed()),
        (4, 2, 2)
    );
    assert_eq!(summary.success_share(), Some(0.5));
    assert_eq!(summary.failures["status_404"], 1);
    assert_eq!(summary.failures["cut"], 1);
    let ttft = summary.latencies.get(Figure::Ttft).unwrap();
    assert_eq!((ttft.count(), ttft.mean), (2, 100.0));
    let goodput = summary.goodput.unwrap();
    assert_eq!((goodput.good, goodput.of), (2, 4));
}

#[test]
fn failures_of_the_warm_up_are_counted_apart() {
    let mut samples: Vec<Sample> = (0..4)
        .map(|at| sample_of(at, 1 + 1000 * u64::from(at), 100, &[10], 0))
        .collect();
    samples[0].failure = Some(Failure::Refused);
    samples[1].failure = Some(Failure::Cut);
    let summary = LoadSummary::of(&run(samples), &reading(1_000_000_000));
    assert_eq!((summary.counts.warm_up, summary.failed_left_out), (1, 1));
    assert_eq!((summary.failed(), summary.completed), (1, 2));
}

#[test]
fn nothing_after_the_warm_up_is_nothing_and_not_zero() {
    let samples = vec![sample_of(0, 5, 100, &[10], 0)];
    let summary = LoadSummary::of(&run(samples), &reading(1_000_000_000));
    assert_eq!((summary.window, summary.throughput), (None, None));
    assert_eq!((summary.counts.warm_up, summary.counts.kept), (1, 0));
    assert_eq!(summary.success_share(), None);
    assert!(
        FIGURES
            .iter()
            .all(|figure| summary.latencies.get(*figure).is_none())
    );
    assert!(summary.buckets.is_empty());
}

#[test]
fn lengths_are_told_apart_with_their_own_failures() {
    let mut samples: Vec<Sample> = (0..6)
        .map(|at| sample_of(at, 1 + u64::from(at), 100 * (u64::from(at) + 1), &[10], 0))
        .collect();
    for (sample, tokens) in samples.iter_mut().zip([100, 511, 512, 4095, 4096, 9000]) {
        sample.planned_prompt_tokens = tokens;
    }
    samples[5].failure = Some(Failure::Timeout);
    let summary = LoadSummary::of(&run(samples), &reading(0));
    let told: Vec<_> = summary
        .buckets
        .iter()
        .map(|one| {
            let ttft = one.latencies.get(Figure::Ttft).unwrap();
            (one.bucket.name(), one.sent, one.completed, ttft.mean)
        })
        .collect();
    assert_eq!(
        told,
        [
            ("short", 2, 2, 150.0),
            ("medium", 2, 2, 350.0),
            ("long", 2, 1, 500.0)
        ]
    );
}

#[test]
fn where_token_counts_come_from_is_told() {
    let mut samples: Vec<Sample> = (0..3)
        .map(|at| sample_of(at, 1, 100, &[10, 10, 10], 0))
        .collect();
    samples[0].output_tokens = Some(8);
    samples[1].output_tokens = None;
    samples[2].output_tokens = None;
    samples[2].output_chunks = 0;
    let summary = LoadSummary::of(&run(samples), &reading(0));
    let expected = TokenSources {
        usage: 1,
        chunks: 1,
        none: 1,
    };
    assert_eq!(summary.tokens, expected);
    assert_eq!(summary.tokens_per_chunk, Some(2.0));
    assert_eq!(summary.prompt_tokens_per_planned, Some(1.0));
}
