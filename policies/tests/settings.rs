//! The policy's table: what is accepted, and what a wrong one is told.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use evenkeel_policies::{PolicyConfig, scheduler::Scheduler};

const LANES: &str = r#"policy = { kind = "lanes", inner = "least_outstanding_tokens", slots_per_instance = 64, lanes = [{ name = "short", max_tokens = 1024, reserve = 0.25 }, { name = "long" }], queue = { max_requests = 512, max_bytes = 1000000, max_wait_s = 20 } }"#;

#[derive(serde::Deserialize)]
struct File {
    policy: PolicyConfig,
}

fn read(text: &str) -> Result<PolicyConfig, toml::de::Error> {
    toml::from_str::<File>(text).map(|file| file.policy)
}

#[test]
fn every_kind_reads_and_builds_under_its_name() {
    for kind in [
        "random",
        "round_robin",
        "least_requests",
        "least_outstanding_tokens",
    ] {
        let config = read(&format!("policy = {{ kind = \"{kind}\" }}")).unwrap();
        assert_eq!(Scheduler::new(&config, 0).unwrap().policy_name(), kind);
    }
    let scheduler = Scheduler::new(&read(LANES).unwrap(), 0).unwrap();
    assert_eq!(
        (scheduler.policy_name(), scheduler.lanes()),
        ("lanes", &["short".to_owned(), "long".to_owned()][..])
    );
}

#[test]
fn unknown_keys_are_refused() {
    for (good, bad) in [
        ("max_tokens = 1024", "max_token = 1024"),
        ("max_wait_s", "max_wait"),
        ("inner", "iner"),
    ] {
        assert!(read(&LANES.replace(good, bad)).is_err(), "{bad}");
    }
    assert!(read("policy = { kind = \"round_robin\", slots = 3 }").is_err());
    assert!(read("policy = { kind = \"fastest\" }").is_err());
}

#[test]
fn wrong_settings_are_told_by_key() {
    let cases = [
        ("reserve = 0.25", "reserve = 1.0", "lanes[0].reserve"),
        ("reserve = 0.25", "reserve = nan", "lanes[0].reserve"),
        ("max_tokens = 1024, ", "", "lanes[0].max_tokens"),
        (
            "\"long\"",
            "\"long\", max_tokens = 9000",
            "lanes[1].max_tokens",
        ),
        ("max_tokens = 1024", "max_tokens = 0", "lanes[0].max_tokens"),
        ("\"long\"", "\"short\"", "lanes[1].name"),
        ("\"short\"", "\"\"", "lanes[0].name"),
        (", { name = \"long\" }", "", "lanes"),
        (
            "slots_per_instance = 64",
            "slots_per_instance = 0",
            "slots_per_instance",
        ),
        ("slots_per_instance = 64, ", "", "queue"),
        ("max_wait_s = 20", "max_wait_s = 0", "queue.max_wait_s"),
    ];
    for (good, bad, key) in cases {
        let config = read(&LANES.replace(good, bad)).unwrap();
        let error = config.validate().unwrap_err();
        assert_eq!(error.key, key, "{bad}: {error}");
        assert!(Scheduler::new(&config, 0).is_err());
    }
}
