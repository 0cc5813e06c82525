//! Whether the policies beat round robin, in virtual time: the demo's fleet and load, the production
//! scheduler, the engine model, many seeds in seconds. The same arguments give the same result.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use evenkeel::demo::compare::{Comparison, PairedWaits, Verdict, Wait, compare_waits};
use evenkeel::demo::options::{DEFAULT_RATE_PER_S, SHORT_MAX_TOKENS, workload};
use evenkeel::demo::summary::SHORT;
use evenkeel::engine::profile::Profile;
use evenkeel::simulate::{FleetSpec, SimRequest, SimResult, run};
use evenkeel_policies::PolicyConfig;

const SEEDS: u64 = 8;
const SECONDS: u64 = 21;
const WARM_UP_NS: u64 = 3_000_000_000;

fn policy(text: &str) -> PolicyConfig {
    let table: toml::Table = toml::from_str(&format!("policy = {text}")).unwrap();
    table["policy"].clone().try_into().unwrap()
}

fn round_robin() -> PolicyConfig {
    policy(r#"{ kind = "round_robin" }"#)
}

fn least_outstanding_tokens() -> PolicyConfig {
    policy(r#"{ kind = "least_outstanding_tokens" }"#)
}

fn lanes() -> PolicyConfig {
    policy(&format!(
        r#"{{ kind = "lanes", lanes = [{{ name = "short", max_tokens = {SHORT_MAX_TOKENS}, reserve = 0.25 }}, {{ name = "long" }}] }}"#
    ))
}

fn simulate(policy: PolicyConfig, rate_per_s: f64, slow_factor: f64, seed: u64) -> SimResult {
    let plan = workload(rate_per_s)
        .plan(seed, SECONDS * 1_000_000_000)
        .unwrap();
    let spec = FleetSpec {
        profile: Profile::load("demo-small").unwrap(),
        slow_factors: vec![1.0, 1.0, slow_factor, 1.0],
        policy,
        default_output_tokens: 256,
        limit_factor: 1.0,
    };
    run(&spec, &plan, seed).unwrap()
}

fn waits(result: &SimResult) -> Vec<Wait> {
    let short = |request: &&SimRequest| request.class == SHORT && request.arrived_ns >= WARM_UP_NS;
    let wait = |request: &SimRequest| Wait {
        at_ns: request.arrived_ns,
        ttft_ms: request.client_ttft_ms().unwrap_or(f64::INFINITY),
    };
    result.requests.iter().filter(short).map(wait).collect()
}

fn compare(
    name: &str,
    treated: fn() -> PolicyConfig,
    control: fn() -> PolicyConfig,
    rate_per_s: f64,
    slow: f64,
) -> Comparison {
    let seed = |seed| PairedWaits {
        treated: waits(&simulate(treated(), rate_per_s, slow, seed)),
        control: waits(&simulate(control(), rate_per_s, slow, seed)),
    };
    let seeds: Vec<PairedWaits> = (1..=SEEDS).map(seed).collect();
    let comparison = compare_waits(name.into(), "control".into(), &seeds);
    println!(
        "{name} at {rate_per_s} requests/s, one instance {slow} times slower: {:?}",
        comparison.difference_ms
    );
    comparison
}

#[test]
fn with_a_slow_instance_least_outstanding_tokens_beats_round_robin() {
    let comparison = compare(
        "least_outstanding_tokens",
        least_outstanding_tokens,
        round_robin,
        DEFAULT_RATE_PER_S,
        1.6,
    );
    assert_eq!(
        (comparison.pairs, comparison.verdict),
        (SEEDS, Verdict::Faster),
        "{comparison:?}"
    );
}

#[test]
fn with_a_slow_instance_lanes_beat_round_robin() {
    let comparison = compare("lanes", lanes, round_robin, DEFAULT_RATE_PER_S, 1.6);
    assert_eq!(
        (comparison.pairs, comparison.verdict),
        (SEEDS, Verdict::Faster),
        "{comparison:?}"
    );
}

#[test]
fn with_equal_instances_and_room_to_spare_lanes_beat_round_robin_and_least_outstanding_tokens() {
    for (name, control) in [
        ("round_robin", round_robin as fn() -> PolicyConfig),
        ("least_outstanding_tokens", least_outstanding_tokens),
    ] {
        let comparison = compare("lanes", lanes, control, 40.0, 1.0);
        assert_eq!(
            comparison.verdict,
            Verdict::Faster,
            "against {name}: {comparison:?}"
        );
    }
}

#[test]
fn a_policy_compared_with_itself_makes_no_difference() {
    let comparison = compare(
        "round_robin",
        round_robin,
        round_robin,
        DEFAULT_RATE_PER_S,
        1.6,
    );
    assert_eq!(comparison.verdict, Verdict::Undecided);
    assert_eq!(
        comparison.difference_ms.map(|interval| interval.estimate),
        Some(0.0)
    );
}

#[test]
fn a_run_is_the_same_every_time_and_every_token_asked_for_is_made() {
    let result = simulate(lanes(), DEFAULT_RATE_PER_S, 1.6, 3);
    assert_eq!(result, simulate(lanes(), DEFAULT_RATE_PER_S, 1.6, 3));
    let plan = workload(DEFAULT_RATE_PER_S)
        .plan(3, SECONDS * 1_000_000_000)
        .unwrap();
    for (request, planned) in result.requests.iter().zip(&plan) {
        assert!(!request.refused);
        assert_eq!(request.output_tokens, planned.output_tokens);
        let stamps = [
            Some(request.arrived_ns),
            request.sent_ns,
            request.first_ns,
            request.last_ns,
        ];
        assert!(
            stamps.iter().all(Option::is_some) && stamps.is_sorted(),
            "{request:?}"
        );
    }
}
