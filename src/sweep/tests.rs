//! Plans and their points.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;

use super::check::parse;
use super::plan::{Plan, Point};
use crate::study::{Load, Scaling, Scenario, Setting};

const FLEET: &str = "name = \"t\"\n[fleet]\nkind = \"simulated\"\nprofile = \"test-fast\"\n";
const SMALL: &str = "[length_sets.tiny]\nclasses = [{ name = \"a\", share = 1, prompt_tokens = 20, output_tokens = 5, spread = 0.5 }]\n";

fn plan(text: &str) -> Plan {
    parse(text, "plan.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn sim(rest: &str) -> Plan {
    plan(&format!("{FLEET}{rest}"))
}

/// What is said of a wrong plan, quotes and all.
fn said(text: &str) -> String {
    parse(text, "plan.toml")
        .map(|plan| plan.points.len())
        .unwrap_err()
        .to_string()
}

fn settings(plan: &Plan) -> Vec<&Setting> {
    plan.points.iter().map(|point| &point.setting).collect()
}

const WHOLE: &str = "[matrix]\ninstances = [1, 2, 4]\ngpus_per_instance = [1, 2]\npolicies = [\"round_robin\", \"least_requests\"]\n\
    [online]\nconcurrency = [16, 64]\nrate_per_s = [2.5]\nlengths = [\"mix\", \"short\"]\n\
    [offline]\nbatch_requests = [100]\n[mixed]\nconcurrency = [8]\nbatch_concurrency = 4\n";

#[test]
fn the_grid_of_n_instances_is_n_times_the_grid() {
    let plan = sim(WHOLE);
    for setting in settings(&plan) {
        let n = f64::from(setting.instances);
        assert_eq!(setting.load.amount(), setting.load_per_instance * n);
        assert!(
            setting
                .batch_concurrency
                .is_none_or(|batch| batch == 4 * setting.instances)
        );
    }
    let at = |n: u32, load: Load| {
        settings(&plan)
            .iter()
            .filter(|one| one.instances == n && one.load == load)
            .count()
    };
    // two policies, two sets of lengths, and two sizes of one instance
    assert_eq!(at(1, Load::Closed { concurrency: 16 }), 2 * 2 * 2);
    assert_eq!(at(4, Load::Closed { concurrency: 256 }), 2 * 2);
    assert_eq!(at(4, Load::Poisson { rate_per_s: 10.0 }), 2 * 2);
    assert_eq!(at(2, Load::Batch { requests: 200 }), 2);
}

#[test]
fn the_two_curves_are_apart_and_share_the_point_of_one_instance_with_one_gpu() {
    let plan = sim(WHOLE);
    let sizes: BTreeSet<(Scaling, u32, u32)> = settings(&plan)
        .iter()
        .map(|one| (one.scaling, one.instances, one.gpus_per_instance))
        .collect();
    let horizontal = |n| (Scaling::Horizontal, n, 1);
    let right = [
        horizontal(1),
        horizontal(2),
        horizontal(4),
        (Scaling::Vertical, 1, 2),
    ];
    assert_eq!(sizes, right.into_iter().collect());
}

#[test]
fn ids_are_unique_and_points_are_in_order() {
    let plan = sim(&format!("repeats = 2\n{WHOLE}").replace("repeats = 2\n", ""));
    let ids: BTreeSet<&str> = plan.points.iter().map(|point| point.id.as_str()).collect();
    assert_eq!(ids.len(), plan.points.len());
    let orders: Vec<u32> = plan.points.iter().map(|point| point.order).collect();
    assert_eq!(orders, (0..plan.points.len() as u32).collect::<Vec<_>>());
}

/// The variables in which two points differ.
fn differences(one: &Setting, other: &Setting) -> Vec<&'static str> {
    [
        ("scenario", one.scenario != other.scenario),
        ("instances", one.instances != other.instances),
        ("gpus", one.gpus_per_instance != other.gpus_per_instance),
        (
            "load",
            (one.load_per_instance, std::mem::discriminant(&one.load))
                != (other.load_per_instance, std::mem::discriminant(&other.load)),
        ),
        ("lengths", one.lengths != other.lengths),
        ("policy", one.policy != other.policy),
        ("repeat", one.repeat != other.repeat),
        (
            "batch",
            one.batch_concurrency.is_some() != other.batch_concurrency.is_some(),
        ),
        ("engine", one.engine != other.engine),
    ]
    .into_iter()
    .filter_map(|(name, differs)| differs.then_some(name))
    .collect()
}

#[test]
fn one_variable_changes_at_a_time_within_a_scenario() {
    let text = format!("repeats = 3\n{FLEET}{WHOLE}");
    let plan = plan(&text);
    assert_eq!(plan.points.len(), 3 * 2 * 4 * (2 * 3 + 1 + 2));
    for pair in plan.points.windows(2) {
        let changed = differences(&pair[0].setting, &pair[1].setting);
        if changed.contains(&"scenario") {
            let others = ["scenario", "load", "lengths", "batch"];
            assert!(
                changed.iter().all(|one| others.contains(one)),
                "{changed:?}"
            );
        } else {
            assert_eq!(
                changed.len(),
                1,
                "{} -> {}: {changed:?}",
                pair[0].id,
                pair[1].id
            );
        }
    }
}

#[test]
fn points_that_differ_in_the_fleet_alone_get_the_same_requests() {
    let plan = sim(WHOLE);
    let seeds = |fits: fn(&Setting) -> bool| -> BTreeSet<u64> {
        settings(&plan)
            .into_iter()
            .filter(|one| fits(one))
            .map(|one| one.seed)
            .collect()
    };
    let online_16 = |one: &Setting| {
        one.scenario == Scenario::Online && one.load_per_instance == 16.0 && one.lengths == "mix"
    };
    assert_eq!(seeds(online_16).len(), 1);
    assert!(seeds(|one| one.scenario == Scenario::Online).len() > 1);
    assert!(settings(&plan).iter().all(|one| one.seed < 1 << 53));
    let other = plan_with_seed(2);
    assert_ne!(plan.points[0].setting.seed, other.points[0].setting.seed);
}

fn plan_with_seed(seed: u64) -> Plan {
    plan(&format!("seed = {seed}\n{FLEET}{WHOLE}"))
}

#[test]
fn a_fleet_that_keeps_its_caches_never_gets_the_same_prompts_twice() {
    let live = "name = \"t\"\n[fleet]\nkind = \"live\"\nbase_url = \"http://127.0.0.1:1\"\n[mixed]\nconcurrency = [4, 8]\n";
    let plan = plan(live);
    let seeds: BTreeSet<u64> = settings(&plan).iter().map(|one| one.seed).collect();
    assert_eq!(seeds.len(), plan.points.len());
    let said = plan.warnings.join("\n");
    assert!(
        said.contains("hooks.restart") && said.contains("[[monitor]]"),
        "{said}"
    );
}

#[test]
fn a_mixed_load_is_run_with_and_without_its_batch() {
    let plan = sim("[mixed]\nrate_per_s = [3.0]\n");
    let batches: Vec<Option<u32>> = settings(&plan)
        .iter()
        .map(|one| one.batch_concurrency)
        .collect();
    assert_eq!(batches, [None, Some(16)]);
    assert_eq!(plan.batch_lengths(Scenario::Mixed), "long");
}

#[test]
fn presets_fill_in_what_the_plan_leaves_out_and_nothing_else() {
    let loads = |text: &str| -> Vec<f64> {
        settings(&plan(text))
            .iter()
            .map(|one| one.load.amount())
            .collect()
    };
    let with = |preset: &str, rest: &str| format!("preset = \"{preset}\"\n{FLEET}{rest}");
    assert_eq!(
        loads(&with("online", "")),
        [100.0, 200.0, 400.0, 600.0, 800.0, 1000.0]
    );
    assert_eq!(
        loads(&with("online", "[online]\nconcurrency = [7]\n")),
        [7.0]
    );
    assert_eq!(
        loads(&with("online", "[online]\nlengths = [\"short\"]\n")).len(),
        6
    );
    assert_eq!(loads(&with("offline", "")), [1000.0]);
    assert_eq!(loads(&with("mixed", "")), [64.0, 64.0]);
    assert_eq!(
        loads(&with("offline", "[online]\nconcurrency = [7]\n")),
        [7.0, 1000.0]
    );
}

#[test]
fn a_variant_changes_one_variable_of_the_points_it_is_run_at() {
    let plan = sim(&format!(
        "{WHOLE}[[variants]]\nname = \"lower\"\nwhy = \"TPOT should recover\"\nchange = {{ concurrency = 32 }}\n\
        at = {{ concurrency = [64], instances = [1], gpus_per_instance = [1], lengths = [\"mix\"], scenarios = [\"online\"] }}\n\
        [[variants]]\nname = \"static\"\nchange = {{ batching = \"static\" }}\nat = {{ scenarios = [\"offline\"] }}\n\
        [[variants]]\nname = \"random\"\nchange = {{ policy = \"random\" }}\nat = {{ scenarios = [\"mixed\"], instances = [4] }}\n"
    ));
    let of = |name: &str| -> Vec<&Point> {
        plan.points
            .iter()
            .filter(|point| point.setting.variant == name)
            .collect()
    };
    let lower = of("lower");
    assert_eq!(lower.len(), 1);
    let setting = &lower[0].setting;
    assert_eq!(
        (setting.load, setting.load_per_instance),
        (Load::Closed { concurrency: 32 }, 32.0)
    );
    assert_eq!(setting.labels["why"], "TPOT should recover");
    assert_eq!(of("static").len(), 4, "the sizes of the first policy");
    assert_eq!(
        of("static")[0].setting.engine["batching"].as_str(),
        Some("static")
    );
    assert_eq!(of("random").len(), 2, "with the batch and without");
    for point in plan
        .points
        .iter()
        .filter(|point| point.setting.variant != "base")
    {
        let is_base = |other: &&Point| {
            other.setting.variant == "base"
                && differences(&other.setting, &point.setting).len() == 1
        };
        assert!(
            plan.points.iter().any(|other| is_base(&other)),
            "{}",
            point.id
        );
    }
}

#[test]
fn two_variables_at_once_are_refused() {
    let variant = |change: &str| {
        said(&format!(
            "{FLEET}{WHOLE}[[variants]]\nname = \"v\"\nchange = {{ {change} }}\n"
        ))
    };
    for change in [
        "concurrency = 32, policy = \"random\"",
        "engine = { max_num_seqs = 8, kv_blocks = 2000 }",
        "batching = \"static\", engine = { max_num_seqs = 8 }",
    ] {
        let said = variant(change);
        assert!(
            said.contains("changes 2 variables") && said.contains("one variable at a time"),
            "{said}"
        );
        assert!(said.contains("plan.toml:"), "no line: {said}");
    }
    assert!(variant("").contains("changes no variable"));
    assert!(variant("policy = \"round_robin\"").contains("changes nothing"));
    assert!(variant("engine = { max_num_sqs = 8 }").contains("max_num_sqs"));
    assert!(variant("policy = \"best\"").contains("`best`"));
    let nowhere = said(&format!(
        "{FLEET}{WHOLE}[[variants]]\nname = \"v\"\nchange = {{ concurrency = 32 }}\nat = {{ concurrency = [65] }}\n"
    ));
    assert!(nowhere.contains("at no point"), "{nowhere}");
}

#[test]
fn what_a_plan_cannot_be_is_said_with_its_line_and_what_would_be_right() {
    let online = "[online]\nconcurrency = [4]\n";
    for (text, words) in [
        ("name = 3", &["`name` must be a string", "fleet"][..]),
        (
            "name = \"x\"\n[fleet]\nkind = \"cloud\"\n",
            &["`simulated`", "`live`"],
        ),
        (FLEET, &["sends no load", "preset"]),
        (
            &format!("{FLEET}[online]\n"),
            &["`online` sends no load", "concurrency"],
        ),
        (
            &format!("{FLEET}[online]\nconcurency = [4]\n"),
            &["did you mean `concurrency`"],
        ),
        (
            &format!("objectives = [\"itl:3\"]\n{FLEET}{online}"),
            &["ttft:MS"],
        ),
        (&format!("attainment = 99\n{FLEET}{online}"), &["0.99"]),
        (
            &format!("{FLEET}{online}lengths = [\"huge\"]\n"),
            &["`huge`", "short"],
        ),
        (
            &format!("{FLEET}{online}[matrix]\ninstances = [1, 0]\n"),
            &["numbers from 1"],
        ),
        (
            &format!("{FLEET}{online}[matrix]\ninstances = [2, 2]\n"),
            &["two points"],
        ),
        (
            &format!("{FLEET}{online}[matrix]\npolicies = [\"lanes\"]\n"),
            &["lanes", "policy_settings.lanes"],
        ),
        (
            &format!("{FLEET}{online}[timing]\nduration_s = 50\ntrim_s = 25\n"),
            &["leaves nothing of 50 s"],
        ),
        (
            &format!("{FLEET}{online}[engine]\nmax_num_sqs = 3\n"),
            &["max_num_sqs"],
        ),
        (
            &format!("{FLEET}{online}[hooks]\nstart = \"x\"\n"),
            &["simulated", "live"],
        ),
        (
            &format!("{FLEET}{online}[length_sets.x]\nmix = [0, 0, 0]\n"),
            &["length_sets.x"],
        ),
        (
            &format!("{FLEET}[online]\nconcurrency = [2000000]\n"),
            &["at most 1000000"],
        ),
        (
            &format!("{FLEET}{online}[[monitor]]\nkind = \"gpu\"\nurl = \"host:1\"\n"),
            &["http://host:1"],
        ),
    ] {
        let said = said(text);
        for word in words {
            assert!(said.contains(word), "{text}\n{said}");
        }
        assert!(said.contains("plan.toml:"), "no place: {said}");
    }
}

#[test]
fn a_live_fleet_that_nothing_can_change_is_refused_more_than_one_size() {
    let live = "name = \"t\"\n[fleet]\nkind = \"live\"\nbase_url = \"http://127.0.0.1:1\"\n[online]\nconcurrency = [4]\n[matrix]\ninstances = [1, 2]\n";
    let said = said(live);
    assert!(
        said.contains("2 different fleets") && said.contains("start ="),
        "{said}"
    );
    let hooks = "[hooks]\nstart = \"true\"\nrestart = \"true\"\n";
    assert!(plan(&format!("{live}{hooks}")).starts_afresh());
}

#[test]
fn what_is_probably_not_meant_is_warned_of() {
    let warned = |text: &str, word: &str| {
        let warnings = sim(text).warnings.join("\n");
        assert!(warnings.contains(word), "{word} in: {warnings}");
    };
    let fixed = "[length_sets.one]\nclasses = [{ name = \"a\", share = 1, prompt_tokens = 100, output_tokens = 20 }]\n";
    warned(
        &format!("[online]\nconcurrency = [64]\nlengths = [\"one\"]\n{fixed}"),
        "every prompt has 100 tokens",
    );
    warned("[online]\nconcurrency = [8, 16]\n", "past the knee");
    warned(
        "[online]\nconcurrency = [64]\nlengths = [\"short\"]\n",
        "a mix of lengths",
    );
    warned(
        "[online]\nconcurrency = [64]\nlengths = [\"long\"]\n",
        "max_model_len_tokens",
    );
    warned("[online]\nconcurrency = [64]\n", "no interval");
    let calm = plan(&format!(
        "repeats = 3\n{FLEET}{SMALL}[online]\nconcurrency = [64]\nlengths = [\"tiny\", \"tiny2\"]\n[length_sets.tiny2]\nmix = [1, 0, 0]\n"
    ));
    assert!(calm.warnings.is_empty(), "{:?}", calm.warnings);
}

#[test]
fn the_plans_that_are_shipped_hold_what_they_promise() {
    let whole = plan(include_str!("../../configs/sweeps/scalability.toml"));
    let loads = |scenario: Scenario, instances: u32| -> BTreeSet<String> {
        let is_there = |one: &&Setting| one.scenario == scenario && one.instances == instances;
        let found = settings(&whole).into_iter().filter(is_there);
        found.map(|one| one.load.tag()).collect()
    };
    let eight: Vec<&str> = "c128 c256 c512 c1024 c2048 r160 r320 r640 r1280"
        .split(' ')
        .collect();
    assert_eq!(
        loads(Scenario::Online, 8),
        eight.iter().map(|tag| (*tag).to_owned()).collect()
    );
    assert_eq!(loads(Scenario::Offline, 4).len(), 1);
    assert_eq!(loads(Scenario::Mixed, 2).len(), 1);
    let gpus: BTreeSet<u32> = settings(&whole)
        .iter()
        .map(|one| one.gpus_per_instance)
        .collect();
    assert_eq!(gpus, [1, 2, 4].into());
    let variants: BTreeSet<&str> = settings(&whole)
        .iter()
        .map(|one| one.variant.as_str())
        .collect();
    assert!(variants.contains("lower_concurrency") && variants.contains("static_batching"));

    let quick = plan(include_str!("../../configs/sweeps/quick.toml"));
    let load = |point: &Point| {
        let load = point.setting.load;
        quick.measured_s(load).unwrap_or(5.0) + quick.warm_up_s(load) + 1.0
    };
    assert!(quick.points.iter().map(load).sum::<f64>() < 120.0);
}
