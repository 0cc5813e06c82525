#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::io::Write;
use std::process::{Command, Stdio};

use evenkeel_policies::scheduler::Counters;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::measure::figures::Figures;
use crate::measure::figures::tests::exchange;

/// A name with all that the text format must escape, and then some.
const NASTY: &str = "a\"b\\c\nd{e=\"f\"} é\t#";

fn fleet(instances: &[&str]) -> FleetSnapshot {
    let instance = |name: &&str| InstanceSnapshot {
        name: (*name).into(),
        url: "http://127.0.0.1:1".into(),
        weight: 1.0,
        labels: Default::default(),
        state: InstanceState::Up,
        ejections: [1, 0, 2],
        outstanding_requests: 2,
        outstanding_tokens: 300,
        mean_outstanding_tokens: Some(100.0),
        token_seconds: 1.5,
    };
    FleetSnapshot {
        pools: vec![PoolSnapshot {
            name: "chat".into(),
            removed: false,
            policy: "round_robin".into(),
            instances: instances.iter().map(instance).collect(),
            queued: 0,
            retries: Default::default(),
            fallbacks: 1,
            counters: Counters {
                shed_queue_full: 3,
                ..Counters::default()
            },
            load_skew: None,
        }],
    }
}

/// Metrics of two instances, one slow, with figures over all magnitudes.
fn busy_text() -> String {
    let registry = Registry::new(2, 100);
    let mut rng = StdRng::seed_from_u64(1);
    for index in 0..600 {
        let slow = index % 3 == 0;
        let mut request = exchange("chat", if slow { NASTY } else { ["b", "c"][index % 2] });
        let batch = rng.random_range(1.0..12.0);
        request.mean_batch = Some(batch);
        let mut figures = Figures::of(&request);
        figures.tpot_ms = Some((8.0 + batch) * if slow { 1.6 } else { 1.0 });
        figures.client_ttft_ms = Some(10f64.powf(rng.random_range(-2.0..5.0)));
        registry.core(index).record(&request, &figures, 1);
    }
    let process = Process {
        open_connections: 5,
        tasks: 9,
        refused_connections: 2,
        refused_heads: vec![("request_malformed", 7), ("other", 0)],
        records_written: Some(599),
        records_dropped: Some(1),
        record_disk_errors: Some(0),
        access_log_dropped: None,
        reloads: (3, 1),
        last_reload_taken: true,
    };
    encode(&registry, &fleet(&[NASTY, "b", "c", "idle"]), &process, 1).unwrap()
}

/// The value of the one sample that begins with `prefix`.
fn sample(text: &str, prefix: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(prefix))?;
    line.rsplit(' ').next()?.parse().ok()
}

pub(crate) fn promtool(text: &str) {
    let started = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut tool =
        started.expect("promtool cannot be started; install it: apt-get install prometheus");
    let mut input = tool.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let output = tool.wait_with_output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}

#[test]
pub(crate) fn promtool_has_no_complaint() {
    promtool(&busy_text());
    let idle = encode(
        &Registry::new(1, 10),
        &fleet(&["a"]),
        &Process::default(),
        1,
    );
    promtool(&idle.unwrap());
}

#[test]
fn names_and_units_keep_the_rules() {
    let all = described();
    let text = busy_text();
    for described in &all {
        let name = described.name;
        assert!(
            name.starts_with("evenkeel_") && !name.contains(':'),
            "{name}"
        );
        assert!(
            !name.contains("_ms") && !described.help.is_empty(),
            "{name}"
        );
    }
    for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
        let name = line.split(' ').nth(2).unwrap();
        assert!(all.iter().any(|described| described.name == name), "{name}");
    }
}

#[test]
fn nasty_label_values_are_escaped() {
    let text = busy_text();
    let escaped = r#"instance="a\"b\\c\nd{e=\"f\"} é	#""#;
    assert!(text.contains(&format!(
        "evenkeel_instance_up{{pool=\"chat\",{escaped}}} 1\n"
    )));
    assert!(
        text.lines()
            .all(|line| line.starts_with('#') || line.starts_with("evenkeel_"))
    );
}

#[test]
fn a_histogram_holds_its_counts() {
    let text = busy_text();
    let name = |suffix: &str, le: &str| {
        let le = if le.is_empty() {
            String::new()
        } else {
            format!(",le=\"{le}\"")
        };
        format!("evenkeel_client_ttft_seconds_{suffix}{{pool=\"chat\",instance=\"b\"{le}}} ")
    };
    assert_eq!(sample(&text, &name("count", "")), Some(200.0));
    assert_eq!(sample(&text, &name("bucket", "+Inf")), Some(200.0));
    let buckets: Vec<f64> = text
        .lines()
        .filter(|line| line.starts_with(name("bucket", "").trim_end_matches("} ")))
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(buckets.is_sorted() && buckets.len() == 27, "{buckets:?}");
    // log-uniform over 7 decades from 10 µs: 5 of 7 lie under 1 s
    let under_a_second = sample(&text, &name("bucket", "1")).unwrap();
    assert!(
        (under_a_second / 200.0 - 5.0 / 7.0).abs() < 0.12,
        "{under_a_second}"
    );
}

#[test]
fn counters_are_there_from_the_start_and_the_unknown_is_absent() {
    let text = busy_text();
    let idle = "{pool=\"chat\",instance=\"idle\"";
    assert_eq!(
        sample(&text, &format!("evenkeel_output_tokens_total{idle}")),
        Some(0.0)
    );
    let ok = format!("evenkeel_requests_total{idle},outcome=\"ok\"}}");
    assert_eq!(sample(&text, &ok), Some(0.0));
    assert_eq!(
        sample(&text, &format!("evenkeel_e2e_seconds_count{idle}")),
        None
    );
    assert_eq!(
        sample(&text, &format!("evenkeel_instance_speed_vs_fleet{idle}")),
        None
    );
    assert_eq!(sample(&text, "evenkeel_access_log_dropped_total"), None);
    assert_eq!(sample(&text, "evenkeel_records_dropped_total"), Some(1.0));
    let refused = "evenkeel_refused_heads_total{reason=\"request_malformed\"}";
    assert_eq!(sample(&text, refused), Some(7.0));
    let ejected = format!("evenkeel_instance_ejections_total{idle},cause=\"checks\"}}");
    assert_eq!(sample(&text, &ejected), Some(2.0));
    for (state, value) in [("up", 1.0), ("down", 0.0)] {
        let state = format!("evenkeel_instance_state{idle},state=\"{state}\"}}");
        assert_eq!(sample(&text, &state), Some(value));
    }
    let full = "evenkeel_sheds_total{pool=\"chat\",reason=\"queue_full\"}";
    assert_eq!(sample(&text, full), Some(3.0));
    let slow = text.lines().find(|line| {
        line.starts_with("evenkeel_instance_speed_vs_fleet{pool=\"chat\",instance=\"a")
    });
    let slow: f64 = slow.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!((slow / 1.6 - 1.0).abs() < 0.05, "{slow}");
}

/// Prints the README's table of metrics.
#[test]
fn every_metric_is_described_once() {
    let mut names = std::collections::BTreeSet::new();
    println!("| metric | kind | unit | meaning |\n| --- | --- | --- | --- |");
    for described in described() {
        assert!(names.insert(described.name), "{} twice", described.name);
        let kind = format!("{:?}", described.kind).to_lowercase();
        let Described {
            name, unit, help, ..
        } = described;
        println!("| `{name}` | {kind} | {unit} | {help} |");
    }
}
