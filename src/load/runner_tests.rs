//! The runner against simulated engines on real sockets.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use super::*;
use crate::engine::faults::{Fault, FaultKind};
use crate::engine::profile::Profile;
use crate::engine::server::{self, EngineOptions, RunningEngines};
use crate::load::arrivals::Arrivals;
use crate::load::request::RequestForm;
use crate::load::sample::Failure;
use crate::load::workload::{Class, Lengths, Workload};

fn plan(rate_per_s: f64, seconds: u64) -> Arc<[PlannedRequest]> {
    let workload = Workload {
        arrivals: Arrivals::Poisson { rate_per_s },
        classes: vec![Class {
            name: "short".into(),
            share: 1.0,
            prompt: Lengths::Uniform {
                min_tokens: 10,
                max_tokens: 40,
            },
            output: Lengths::Uniform {
                min_tokens: 2,
                max_tokens: 20,
            },
        }],
    };
    workload.plan(11, seconds * 1_000_000_000).unwrap().into()
}

async fn engine() -> RunningEngines {
    server::start(EngineOptions::new(Profile::load("test-fast").unwrap(), 1))
        .await
        .unwrap()
}

fn spec(engines: &RunningEngines, plan: &Arc<[PlannedRequest]>) -> RunSpec {
    let target = engines.addrs()[0];
    let form = RequestForm::chat(target.to_string(), "test-fast".into(), "test-".into());
    RunSpec {
        target,
        requests: planned(Arc::clone(plan)),
        render: Box::new(move |request| form.render(request)),
        pace: Pace::Schedule,
        max_in_flight: 256,
        client: ClientOptions::default(),
    }
}

async fn run(spec: RunSpec) -> RunResult {
    tokio::task::spawn_blocking(move || Run::start(spec).unwrap().join().unwrap())
        .await
        .unwrap()
}

#[tokio::test]
async fn every_planned_request_is_sent_and_answered_with_its_own_lengths() {
    let engines = engine().await;
    let plan = plan(200.0, 1);
    let result = run(spec(&engines, &plan)).await;
    assert_eq!(result.samples.len(), plan.len());
    // What the chat template adds is the same for every request.
    let template_tokens =
        result.samples[0].prompt_tokens.unwrap() - u64::from(plan[0].prompt_tokens);
    assert!(template_tokens < 16, "{template_tokens}");
    for (sample, request) in result.samples.iter().zip(plan.iter()) {
        assert_eq!(sample.failure, None);
        assert_eq!(sample.index, request.index);
        assert_eq!(
            sample.prompt_tokens,
            Some(u64::from(request.prompt_tokens) + template_tokens)
        );
        assert_eq!(sample.output_tokens, Some(u64::from(request.output_tokens)));
        let stamps = [
            Some(sample.planned_ns),
            sample.issued_ns,
            sample.sent_ns,
            sample.head_ns,
            sample.first_output_ns,
            sample.last_output_ns,
            Some(sample.end_ns),
        ];
        assert!(
            stamps.iter().all(Option::is_some) && stamps.is_sorted(),
            "{stamps:?}"
        );
    }
    let lag = result.lag.unwrap();
    assert!(
        lag.p50_ms <= lag.p99_ms && lag.p99_ms <= lag.max_ms && lag.held_back == 0,
        "{lag:?}"
    );
}

#[tokio::test]
async fn a_generator_that_is_held_back_says_so_and_counts_the_wait_from_the_plan() {
    let engines = engine().await;
    let plan = plan(400.0, 1);
    let mut spec = spec(&engines, &plan);
    spec.max_in_flight = 1;
    let result = run(spec).await;
    let lag = result.lag.unwrap();
    assert!(lag.held_back > plan.len() as u64 / 4, "{lag:?}");
    let last = result.samples.last().unwrap();
    assert!(
        last.ttft_from_planned_ms().unwrap()
            >= last.ttft_ms().unwrap() + last.lag_ms().unwrap() - 1e-6
    );
}

async fn failures_under(fault: FaultKind, timeout: Duration) -> Vec<Option<Failure>> {
    let engines = engine().await;
    engines.add_fault(0, Fault::new(fault)).unwrap();
    let plan: Arc<[PlannedRequest]> = plan(50.0, 1).iter().take(3).cloned().collect();
    let mut spec = spec(&engines, &plan);
    spec.client.answer_timeout = timeout;
    let result = run(spec).await;
    result.samples.iter().map(|sample| sample.failure).collect()
}

#[tokio::test]
async fn failures_are_told_apart_by_the_stage_at_which_they_happen() {
    let long = Duration::from_secs(30);
    let cases = [
        (FaultKind::Refuse, long, Failure::Connect),
        (FaultKind::Status { status: 500 }, long, Failure::Status),
        (FaultKind::Status { status: 429 }, long, Failure::Refused),
        (
            FaultKind::InBandError { after_chunks: 1 },
            long,
            Failure::ErrorEvent,
        ),
        (
            FaultKind::Abort { after_chunks: 1 },
            long,
            Failure::ErrorEvent,
        ),
        (
            FaultKind::Cut {
                after_chunks: 1,
                reset: false,
            },
            long,
            Failure::Cut,
        ),
        (
            FaultKind::Cut {
                after_chunks: 1,
                reset: true,
            },
            long,
            Failure::Cut,
        ),
        (
            FaultKind::Silent { head: false },
            Duration::from_millis(200),
            Failure::Timeout,
        ),
        (
            FaultKind::Silent { head: true },
            Duration::from_millis(200),
            Failure::Timeout,
        ),
    ];
    for (fault, timeout, failure) in cases {
        let failures = failures_under(fault.clone(), timeout).await;
        assert_eq!(failures, vec![Some(failure); 3], "{fault:?}");
    }
}

#[tokio::test]
async fn a_stopped_run_ends_with_what_was_under_way() {
    let engines = engine().await;
    let run = Run::start(spec(&engines, &plan(50.0, 100))).unwrap();
    let progress = Arc::clone(&run.progress);
    while progress.ended.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    progress.stop();
    let result = tokio::task::spawn_blocking(move || run.join().unwrap())
        .await
        .unwrap();
    assert!(!result.samples.is_empty() && result.samples.len() < 10_000);
    assert!(result.samples.iter().all(|sample| sample.failure.is_none()));
}

#[tokio::test]
async fn a_closed_loop_keeps_its_places_filled_and_counts_from_the_end_of_the_warm_up() {
    let engines = engine().await;
    let plan = plan(400.0, 1);
    let mut spec = spec(&engines, &plan);
    spec.max_in_flight = 4;
    spec.client.keep_gaps = true;
    spec.pace = Pace::Closed(ClosedEnd::Count {
        warm_up_ns: 30_000_000,
        requests: 40,
    });
    let result = run(spec).await;
    let warm_up_ends = result.started_ns + 30_000_000;
    let measured = |sample: &&Sample| sample.planned_ns >= warm_up_ends;
    assert_eq!(result.samples.iter().filter(measured).count(), 40);
    assert!(result.samples.iter().any(|sample| !measured(&sample)));
    // No more than four at once: a request begins when the one four places before it in order of
    // ending has ended.
    let mut ends: Vec<Ns> = result.samples.iter().map(|sample| sample.end_ns).collect();
    ends.sort_unstable();
    for (sample, freed_ns) in result.samples.iter().skip(4).zip(&ends) {
        assert!(sample.planned_ns >= *freed_ns);
        assert_eq!(sample.gaps_us.len() as u64, sample.output_chunks - 1);
    }
    assert!(result.generator.connections <= 4);
}

#[tokio::test]
async fn a_closed_loop_ends_at_its_time_and_one_that_is_abandoned_counts_what_was_open() {
    let engines = engine().await;
    engines.add_fault(0, Fault::new(FaultKind::Stall)).unwrap();
    let plan = plan(400.0, 1);
    let mut spec = spec(&engines, &plan);
    spec.max_in_flight = 2;
    spec.pace = Pace::Closed(ClosedEnd::After { run_ns: 20_000_000 });
    let run = Run::start(spec).unwrap();
    while run.progress.started.load(Relaxed) < 2 {
        tokio::task::yield_now().await;
    }
    run.progress.abandon();
    let result = tokio::task::spawn_blocking(move || run.join().unwrap())
        .await
        .unwrap();
    assert_eq!((result.samples.len(), result.unfinished), (0, 2));
    assert_eq!(result.lag, None);
}
