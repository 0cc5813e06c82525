#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::path::Path;

use super::*;
use crate::load::traces::{TraceFile, open, read};

const HOUR_NS: u64 = 3_600_000_000_000;

fn file(name: &str) -> TraceFile {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    open(&folder.join(name)).unwrap()
}

fn rates(name: &str) -> RateWindows {
    match file(name) {
        TraceFile::Rates(rates) => rates,
        other => panic!("{other:?}"),
    }
}

fn lengths() -> LengthWindows {
    match file("servegen_m-small_client14_dataset.json") {
        TraceFile::Lengths(lengths) => lengths,
        other => panic!("{other:?}"),
    }
}

fn constant(rate_per_s: f64, family: Family) -> RateWindows {
    let window = |index: u64| RateWindow {
        start_ns: index * HOUR_NS,
        rate_per_s,
        gap_cv: 1.0,
        family,
    };
    RateWindows {
        name: "made up".into(),
        windows: (0..10).map(window).collect(),
        window_ns: HOUR_NS,
        end_ns: 10 * HOUR_NS,
        rows: 10,
        idle: 0,
        malformed: Default::default(),
    }
}

#[test]
fn rates_have_their_windows_and_those_in_which_nothing_came() {
    let rates = rates("servegen_deepseek-r1_client3_trace.csv");
    assert_eq!(
        (rates.rows, rates.windows.len(), rates.idle),
        (144, 13, 131)
    );
    assert_eq!((rates.window_ns, rates.end_ns), (HOUR_NS / 6, 24 * HOUR_NS));
    let first = rates.windows[0];
    assert_eq!(
        (first.start_ns, first.rate_per_s),
        (6_600_000_000_000, 2.34)
    );
    assert_eq!(first.family, Family::Weibull(0.33531662898922937));
    // half of the first window
    let half = rates.expected_requests(6_300_000_000_000, 6_900_000_000_000);
    assert!((half - 2.34 * 300.0).abs() < 1e-9, "{half}");
}

#[test]
fn drawn_times_have_the_rates_and_the_variation_of_their_family() {
    // of Weibull 1/2 the CV is the root of 5
    let right = [
        (Family::Gamma(4.0), 0.5),
        (Family::Gamma(0.25), 2.0),
        (Family::Weibull(1.0), 1.0),
        (Family::Weibull(0.5), 5.0_f64.sqrt()),
    ];
    for (family, right_cv) in right {
        let rates = constant(50.0, family);
        let draw = Draw {
            from_ns: 0,
            until_ns: u64::MAX,
            rate_scale: 0.5,
            seed: 3,
        };
        let times = draw.times_ns(&rates).unwrap();
        let expected: f64 = 25.0 * 36_000.0;
        let bound = 4.0 * right_cv / expected.sqrt();
        assert!(
            (times.len() as f64 / expected - 1.0).abs() < bound,
            "{family:?}: {}",
            times.len()
        );
        let gaps: Vec<f64> = times
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let square = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>();
        let cv = (square / gaps.len() as f64).sqrt() / mean;
        assert!((cv / right_cv - 1.0).abs() < 0.02, "{family:?}: CV {cv}");
    }
}

#[test]
fn over_many_seeds_real_rates_are_met_window_by_window() {
    let rates = rates("servegen_m-small_client14_trace.csv");
    let seeds = 80;
    let mut drawn = vec![0.0; rates.windows.len()];
    for seed in 0..seeds {
        let draw = Draw {
            from_ns: 0,
            until_ns: rates.end_ns,
            rate_scale: 0.1,
            seed,
        };
        for at_ns in draw.times_ns(&rates).unwrap() {
            drawn[(at_ns / rates.window_ns) as usize] += 1.0 / seeds as f64;
        }
    }
    let mut worst: f64 = 0.0;
    for (window, drawn) in rates.windows.iter().zip(&drawn) {
        let expected = window.rate_per_s * 0.1 * 600.0;
        worst = worst.max((drawn / expected - 1.0).abs());
    }
    let all = drawn.iter().sum::<f64>() / (0.1 * rates.expected_requests(0, rates.end_ns));
    assert!(worst < 0.08, "a window is off by {worst}");
    assert!((all - 1.0).abs() < 0.01, "all windows together: {all}");
}

#[test]
fn a_part_of_the_time_is_the_requests_of_that_part() {
    let rates = rates("servegen_m-small_client14_trace.csv");
    let draw = Draw {
        from_ns: 2 * HOUR_NS,
        until_ns: 3 * HOUR_NS,
        rate_scale: 1.0,
        seed: 4,
    };
    let times = draw.times_ns(&rates).unwrap();
    assert!(times.is_sorted() && times.iter().all(|at_ns| *at_ns < HOUR_NS));
    let after = Draw {
        from_ns: 20 * HOUR_NS,
        until_ns: 21 * HOUR_NS,
        ..draw
    };
    let error = after.times_ns(&rates).unwrap_err().to_string();
    assert!(
        error.contains("0.0 requests are to be expected from 72000 s to 75600 s"),
        "{error}"
    );
    let scaled = Draw {
        rate_scale: 0.0,
        ..draw
    };
    assert!(
        scaled
            .times_ns(&rates)
            .unwrap_err()
            .to_string()
            .contains("positive number")
    );
    let many = Draw {
        rate_scale: 1e6,
        ..draw
    };
    assert!(
        many.times_ns(&rates)
            .unwrap_err()
            .to_string()
            .contains("at most 20000000")
    );
}

#[test]
fn drawn_lengths_are_those_of_their_window() {
    let (rates, lengths) = (rates("servegen_m-small_client14_trace.csv"), lengths());
    assert_eq!((lengths.rows, lengths.windows.len()), (2, 2));
    for (part, window) in lengths.windows.iter().enumerate() {
        let from_ns = 6 * HOUR_NS * part as u64;
        let draw = Draw {
            from_ns,
            until_ns: from_ns + 6 * HOUR_NS,
            rate_scale: 1.0,
            seed: 9,
        };
        let trace = draw.trace(&rates, &lengths).unwrap();
        let n = trace.requests.len() as f64;
        for share in [0.1, 0.5, 0.9, 0.99] {
            let right = window.prompt.quantile(share).unwrap();
            let below = trace
                .requests
                .iter()
                .filter(|request| request.prompt_tokens < right)
                .count() as f64
                / n;
            let up_to = trace
                .requests
                .iter()
                .filter(|request| request.prompt_tokens <= right)
                .count() as f64
                / n;
            // Kolmogorov's bound at 1 %
            let bound = 1.63 / n.sqrt();
            assert!(
                below - bound <= share && share <= up_to + bound,
                "{part} {share}: {below} {up_to}"
            );
        }
    }
}

#[test]
fn rows_and_windows_that_cannot_be_read_are_named() {
    let text = "0,1,1,Gamma,1,1\n600,2,1,Pareto,1,1\n600,2,1,Gamma,nan,1\n300,2,1\n900,-1,1,,0,0\n1200,0,0,,0,0\n1000,1,1,Gamma,1,1\n";
    let TraceFile::Rates(rates) = read("t", text.as_bytes()).unwrap() else {
        panic!("no rates");
    };
    assert_eq!(
        (
            rates.rows,
            rates.windows.len(),
            rates.idle,
            rates.malformed.count
        ),
        (7, 1, 1, 5)
    );
    let lines: Vec<u64> = rates.malformed.first.iter().map(|row| row.line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 7]);
    assert!(
        rates.malformed.first[0]
            .why
            .contains("Gamma or Weibull is wanted")
    );
    assert!(rates.malformed.first[4].why.contains("in order of time"));

    let text = r#"{
        "0": {"input_tokens": "{5: 1.0}", "output_tokens": "{7: 0.5, 9: 0.5}"},
        "600": {"input_tokens": "{}", "output_tokens": "{}"},
        "1200": {"input_tokens": "{5: lots}", "output_tokens": "{7: 1}"},
        "1800": {"input_tokens": [5], "output_tokens": "{7: 1}"},
        "later": {"input_tokens": "{5: 1}", "output_tokens": "{7: 1}"},
        "2400": {"input_tokens": "{0: 1}", "output_tokens": "{7: 1}"}
    }"#;
    let TraceFile::Lengths(lengths) = read("t", text.as_bytes()).unwrap() else {
        panic!("no lengths");
    };
    assert_eq!(
        (lengths.rows, lengths.windows.len(), lengths.empty),
        (6, 1, 1)
    );
    let lines: Vec<u64> = lengths.malformed.first.iter().map(|row| row.line).collect();
    assert_eq!(lines, [4, 5, 6, 7]);
    let window = lengths.at(u64::MAX).unwrap();
    assert_eq!(
        (window.prompt.mean(), window.output.mean()),
        (Some(5.0), Some(8.0))
    );
}
