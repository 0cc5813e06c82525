//! Plans made of options.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    bench: BenchArgs,
}

fn args(options: &[&str]) -> BenchArgs {
    Line::try_parse_from([&["bench"], options].concat())
        .unwrap()
        .bench
}

fn planned(options: &[&str], warm_up_ns: u64) -> (Vec<PlannedRequest>, Pace) {
    let args = args(options);
    let (requests, pace) = requests(
        Mode::of(&args).unwrap(),
        Extent::of(&args),
        classes(&args).unwrap().0,
        args.seed,
        warm_up_ns,
    )
    .unwrap();
    (requests.take(5000).collect(), pace)
}

#[test]
fn an_open_loop_sends_so_many_beyond_its_warm_up() {
    let options = ["--request-rate", "50", "--num-prompts", "300"];
    let (plan, pace) = planned(&options, 2_000_000_000);
    assert_eq!(pace, Pace::Schedule);
    let measured = plan.iter().filter(|one| one.at_ns >= 2_000_000_000).count();
    assert_eq!(measured, 300);
    assert!(
        (60..140).contains(&(plan.len() - measured)),
        "{}",
        plan.len()
    );
    assert!(plan.is_sorted_by_key(|one| one.at_ns));
    let (same, _) = planned(&options, 2_000_000_000);
    assert_eq!(plan, same);
}

#[test]
fn an_open_loop_of_a_duration_ends_with_it() {
    let options = [
        "--request-rate",
        "100",
        "--burstiness",
        "inf",
        "--duration",
        "3",
    ];
    let (plan, _) = planned(&options, 1_000_000_000);
    assert_eq!(plan.len(), 399);
    assert!(plan.last().unwrap().at_ns < 4_000_000_000);
}

#[test]
fn a_schedule_that_cannot_be_held_or_kept_is_refused() {
    for (options, word) in [
        (
            ["--request-rate", "1e6", "--duration", "3600"],
            "lower rate",
        ),
        (
            ["--request-rate", "1e-9", "--num-prompts", "5"],
            "higher rate",
        ),
        (
            ["--request-rate", "1e-300", "--num-prompts", "5"],
            "higher rate",
        ),
    ] {
        let args = args(&options);
        let planned = requests(
            Mode::of(&args).unwrap(),
            Extent::of(&args),
            classes(&args).unwrap().0,
            0,
            0,
        );
        let Err(said) = planned else {
            panic!("{options:?} was planned");
        };
        assert!(said.is_usage() && said.to_string().contains(word), "{said}");
    }
}

#[test]
fn burstiness_is_the_shape_of_the_gaps() {
    let mode = |text| {
        let args = args(&["--request-rate", "5", "--burstiness", text]);
        Mode::of(&args).unwrap()
    };
    let rate_per_s = 5.0;
    let gamma = Arrivals::Gamma {
        rate_per_s,
        burstiness: 0.5,
    };
    assert_eq!(mode("1"), Mode::Open(Arrivals::Poisson { rate_per_s }));
    assert_eq!(mode("inf"), Mode::Open(Arrivals::Constant { rate_per_s }));
    assert_eq!(mode("0.5"), Mode::Open(gamma));
}

#[test]
fn a_closed_loop_draws_on_and_never_twice_the_same_text() {
    let (plan, pace) = planned(&["--max-concurrency", "8", "--duration", "5"], 1);
    let end = ClosedEnd::After {
        run_ns: 5_000_000_001,
    };
    assert_eq!(pace, Pace::Closed(end));
    assert_eq!(plan.len(), 5000);
    let texts: HashSet<u64> = plan.iter().map(|one| one.text_seed).collect();
    assert_eq!(texts.len(), 5000);
    assert!(plan.iter().zip(0..).all(|(one, index)| one.index == index));
}

#[test]
fn without_rate_and_concurrency_all_go_at_once() {
    let (plan, pace) = planned(&["--num-prompts", "1500"], 0);
    assert_eq!((plan.len(), pace), (1500, Pace::Schedule));
    assert!(plan.iter().all(|one| one.at_ns == 0));
    let said = Mode::of(&args(&["--duration", "3"])).unwrap_err();
    assert!(
        said.is_usage() && said.to_string().contains("--duration"),
        "{said}"
    );
}

#[test]
fn lengths_are_vllms_where_asked_for_and_a_named_mix_else() {
    let (mixed, assumed) = classes(&args(&["--mix", "1:0:3"])).unwrap();
    let told: Vec<_> = mixed
        .iter()
        .map(|one| (one.name.as_str(), one.share))
        .collect();
    assert_eq!((told, assumed), (vec![("short", 1.0), ("long", 3.0)], true));
    let options = ["--random-input-len", "100", "--random-range-ratio", "0.1"];
    let (random, assumed) = classes(&args(&options)).unwrap();
    assert!(!assumed);
    let uniform = |min_tokens, max_tokens| Lengths::Uniform {
        min_tokens,
        max_tokens,
    };
    assert_eq!(random[0].prompt, uniform(90, 110));
    assert_eq!(random[0].output, uniform(115, 141));
    let (random, _) = classes(&args(&["--dataset-name", "random"])).unwrap();
    assert_eq!(random[0].prompt, uniform(1024, 1024));
    for text in ["", "1:2", "1:2:3:4", "a:b:c", "0:0:0", "-1:1:1", "nan:1:1"] {
        let said = mix(text).unwrap_err().to_string();
        assert!(said.contains("20:60:20"), "{text}: {said}");
    }
}

#[test]
fn a_mixs_bounds_are_those_of_the_buckets() {
    use crate::report::latency::Bucket;
    for class in mix("1:1:1").unwrap() {
        let Lengths::LogNormal {
            min_tokens,
            max_tokens,
            ..
        } = class.prompt
        else {
            panic!("{class:?}");
        };
        assert_eq!(Bucket::of(min_tokens).name(), class.name);
        assert_eq!(Bucket::of(max_tokens).name(), class.name);
    }
}

#[test]
fn options_that_are_no_numbers_are_refused() {
    for options in [
        ["--request-rate", "0"],
        ["--burstiness", "-1"],
        ["--burstiness", "1e-9"],
        ["--max-concurrency", "0"],
        ["--trim-s", "inf"],
        ["--random-range-ratio", "1"],
        ["--goodput", "ttft"],
        ["--metric-percentiles", "50,101"],
    ] {
        assert!(
            Line::try_parse_from([&["bench"][..], &options].concat()).is_err(),
            "{options:?}"
        );
    }
}
