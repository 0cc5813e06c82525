#![allow(clippy::unwrap_used, clippy::expect_used)]
use proptest::prelude::*;

use super::*;

const MINUTE_NS: u64 = 60_000_000_000;
const S_NS: f64 = 1e9;

fn gaps(schedule: &[u64]) -> Vec<f64> {
    schedule
        .windows(2)
        .map(|pair| (pair[1] - pair[0]) as f64)
        .collect()
}

fn mean_and_cv(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
    (mean, variance.sqrt() / mean)
}

#[test]
fn a_million_arrivals_have_the_rate_and_the_variation_asked_for() {
    let rate_per_s = 200.0;
    let gamma = |burstiness| Arrivals::Gamma {
        rate_per_s,
        burstiness,
    };
    let cases = [
        (Arrivals::Constant { rate_per_s }, 0.0),
        (Arrivals::Poisson { rate_per_s }, 1.0),
        (gamma(1.0), 1.0),
        (gamma(4.0), 0.5),
        (gamma(0.25), 2.0),
        (gamma(0.1), 10.0_f64.sqrt()),
    ];
    for (arrivals, right_cv) in cases {
        let schedule = arrivals.schedule_ns(7, 5_000 * 1_000_000_000).unwrap();
        let (mean, cv) = mean_and_cv(&gaps(&schedule));
        // four standard errors of a mean of 10^6 gaps, and some for rounding to whole nanoseconds
        let bound = 0.004 * right_cv + 1e-6;
        assert!(
            (mean * rate_per_s / S_NS - 1.0).abs() < bound,
            "{arrivals:?}: mean {mean} ns"
        );
        assert!(
            (cv - right_cv).abs() < 0.01 * right_cv + 1e-6,
            "{arrivals:?}: CV {cv}"
        );
        let count = schedule.len() as f64;
        assert!(
            (count / 1e6 - 1.0).abs() < bound + 2e-6,
            "{arrivals:?}: {count} arrivals"
        );
    }
}

#[test]
fn a_ramp_sends_what_its_rate_adds_up_to_in_each_part() {
    for (from_per_s, to_per_s) in [
        (0.0, 1_000.0),
        (1_000.0, 0.0),
        (100.0, 900.0),
        (500.0, 500.0),
    ] {
        let ramp = Arrivals::Ramp {
            from_per_s,
            to_per_s,
            over_s: 1_000.0,
            burstiness: 1.0,
        };
        let schedule = ramp.schedule_ns(3, 1_200 * 1_000_000_000).unwrap();
        for part in 0..12 {
            let end_s = f64::from(part + 1) * 100.0;
            let right = ramp.expected_requests(end_s) - ramp.expected_requests(end_s - 100.0);
            let inside = |at: &&u64| (end_s - 100.0..end_s).contains(&(**at as f64 / S_NS));
            let found = schedule.iter().filter(inside).count() as f64;
            // five standard deviations of a Poisson count
            assert!(
                (found - right).abs() <= 5.0 * right.sqrt(),
                "{ramp:?} part {part}: {found} for {right}"
            );
        }
    }
}

#[test]
fn a_nearly_even_ramp_from_nothing_follows_its_curve_to_a_part_of_a_gap() {
    let ramp = Arrivals::Ramp {
        from_per_s: 0.0,
        to_per_s: 100.0,
        over_s: 10.0,
        burstiness: 1e6,
    };
    let schedule = ramp.schedule_ns(3, 10_000_000_000).unwrap();
    // 5 t² arrivals until t
    for (index, at_ns) in schedule.iter().enumerate() {
        let at_s = *at_ns as f64 / S_NS;
        assert!(
            (5.0 * at_s * at_s - (index + 1) as f64).abs() < 0.2,
            "{index} at {at_s}"
        );
    }
    assert!((498..=500).contains(&schedule.len()), "{}", schedule.len());
}

#[test]
fn constant_gaps_are_equal_and_do_not_drift() {
    let schedule = Arrivals::Constant { rate_per_s: 300.0 }
        .schedule_ns(7, MINUTE_NS)
        .unwrap();
    let last = *schedule.last().unwrap() as f64;
    assert!((last - schedule.len() as f64 * 1e9 / 300.0).abs() < 10.0);
    assert!(
        gaps(&schedule)
            .iter()
            .all(|gap| (gap - 1e9 / 300.0).abs() <= 1.0)
    );
}

#[test]
fn the_seed_decides_the_schedule() {
    let arrivals = Arrivals::Poisson { rate_per_s: 50.0 };
    let first = arrivals.schedule_ns(1, MINUTE_NS).unwrap();
    assert_eq!(first, arrivals.schedule_ns(1, MINUTE_NS).unwrap());
    assert_ne!(first, arrivals.schedule_ns(2, MINUTE_NS).unwrap());
    assert!(first.is_sorted() && first.iter().all(|at| *at < MINUTE_NS));
}

#[test]
fn a_burstiness_and_a_variation_name_the_same_arrivals() {
    let gamma = Arrivals::Gamma {
        rate_per_s: 5.0,
        burstiness: 0.25,
    };
    assert_eq!(Arrivals::of_burstiness(5.0, 0.25), gamma);
    assert_eq!(Arrivals::of_cv(5.0, 2.0), gamma);
    let poisson = Arrivals::Poisson { rate_per_s: 5.0 };
    assert_eq!(Arrivals::of_burstiness(5.0, 1.0), poisson);
    assert_eq!(Arrivals::of_cv(5.0, 1.0), poisson);
    let constant = Arrivals::Constant { rate_per_s: 5.0 };
    assert_eq!(Arrivals::of_burstiness(5.0, f64::INFINITY), constant);
    assert_eq!(Arrivals::of_cv(5.0, 0.0), constant);
}

#[test]
fn what_is_no_rate_is_refused_in_words() {
    let words = |arrivals: Arrivals| arrivals.schedule_ns(1, MINUTE_NS).unwrap_err().to_string();
    for rate_per_s in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(words(Arrivals::Poisson { rate_per_s }).contains("positive number"));
    }
    assert!(words(Arrivals::Poisson { rate_per_s: 1e12 }).contains("at most 20000000"));
    for burstiness in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let gamma = Arrivals::Gamma {
            rate_per_s: 1.0,
            burstiness,
        };
        assert!(words(gamma).contains("burstiness"));
    }
    let ramp = |from_per_s, to_per_s, over_s| Arrivals::Ramp {
        from_per_s,
        to_per_s,
        over_s,
        burstiness: 1.0,
    };
    assert!(words(ramp(0.0, 0.0, 1.0)).contains("ramp"));
    assert!(words(ramp(-1.0, 5.0, 1.0)).contains("-1"));
    assert!(words(ramp(1.0, 5.0, 0.0)).contains("last"));
}

#[test]
fn an_absolute_schedule_is_kept_and_one_that_goes_back_is_refused() {
    assert_eq!(
        absolute_ns(&[0.0, 0.5, 0.5, 2.0]).unwrap(),
        [0, 500_000_000, 500_000_000, 2_000_000_000]
    );
    let error = absolute_ns(&[0.0, 2.0, 1.0]).unwrap_err().to_string();
    assert!(
        error.contains("number 2") && error.contains("1 s"),
        "{error}"
    );
    assert!(absolute_ns(&[f64::NAN]).is_err() && absolute_ns(&[1e30]).is_err());
}

proptest! {
    #[test]
    fn every_schedule_ascends_and_ends_in_time(
        from_per_s in 0.0..200.0_f64,
        to_per_s in 0.001..200.0_f64,
        over_s in 0.1..20.0_f64,
        burstiness in 0.01..50.0_f64,
        seed: u64,
    ) {
        let duration_ns = 10_000_000_000;
        let ramp = Arrivals::Ramp { from_per_s, to_per_s, over_s, burstiness };
        let gamma = Arrivals::Gamma { rate_per_s: to_per_s, burstiness };
        for arrivals in [ramp, gamma] {
            let schedule = arrivals.schedule_ns(seed, duration_ns).unwrap();
            prop_assert!(schedule.is_sorted());
            prop_assert!(schedule.iter().all(|at| *at < duration_ns));
        }
    }
}
