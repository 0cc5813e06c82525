#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

/// A draw of the standard normal by its inverse.
fn normal(rng: &mut StdRng) -> f64 {
    Normal::standard().inverse_cdf(rng.random_range(1e-9..1.0 - 1e-9))
}

/// Share of `trials` in which the interval covers the truth.
fn coverage(trials: u64, mut covers: impl FnMut(&mut StdRng) -> bool) -> f64 {
    let hits = (0..trials)
        .filter(|seed| covers(&mut StdRng::seed_from_u64(*seed)))
        .count();
    hits as f64 / trials as f64
}

#[test]
fn quantiles_are_numpys() {
    let values = [1.0, 2.0, 4.0, 8.0];
    assert_eq!(quantile(&values, 0.0), Some(1.0));
    assert_eq!(quantile(&values, 0.5), Some(3.0));
    assert_eq!(quantile(&values, 0.9), Some(4.0 + 4.0 * 0.7000000000000002));
    assert_eq!(quantile(&values, 1.0), Some(8.0));
    assert_eq!(quantile(&[], 0.5), None);
    assert_eq!(quantile(&values, 1.1), None);
    assert_eq!(quantile(&values, f64::NAN), None);
}

#[test]
fn students_interval_is_the_textbooks() {
    // differences 1..5: mean 3, s = sqrt(2.5), t(0.975, 4) = 2.776445
    let a = [2.0, 4.0, 6.0, 8.0, 10.0];
    let b = [1.0, 2.0, 3.0, 4.0, 5.0];
    let found = paired_interval(&a, &b, 0.95, &mut StdRng::seed_from_u64(0)).unwrap();
    let half = 2.776445 * (2.5f64 / 5.0).sqrt();
    assert_eq!(found.estimate, 3.0);
    assert!((found.low - (3.0 - half)).abs() < 1e-4, "{found:?}");
    assert!((found.high - (3.0 + half)).abs() < 1e-4, "{found:?}");
}

#[test]
fn intervals_of_few_pairs_cover_the_truth() {
    let share = coverage(1000, |rng| {
        let b: Vec<f64> = (0..6).map(|_| 50.0 + 10.0 * normal(rng)).collect();
        let a: Vec<f64> = b.iter().map(|b| b + 2.0 + normal(rng)).collect();
        paired_interval(&a, &b, 0.95, rng).unwrap().contains(2.0)
    });
    println!("t, 6 pairs, 95 % asked: {share}");
    assert!((0.93..=0.97).contains(&share), "{share}");
}

#[test]
fn intervals_of_many_skewed_pairs_cover_the_truth() {
    let share = coverage(300, |rng| {
        let b: Vec<f64> = (0..40).map(|_| 50.0 + 10.0 * normal(rng)).collect();
        // exponential differences of mean 3
        let a: Vec<f64> = b
            .iter()
            .map(|b| b - 3.0 * (1.0 - rng.random::<f64>()).ln())
            .collect();
        paired_interval(&a, &b, 0.95, rng).unwrap().contains(3.0)
    });
    println!("BCa, 40 pairs, 95 % asked: {share}");
    assert!((0.90..=0.98).contains(&share), "{share}");
}

#[test]
fn an_interval_narrows_with_pairing_not_with_the_spread_of_runs() {
    let mut rng = StdRng::seed_from_u64(3);
    let b: Vec<f64> = (0..30).map(|_| 100.0 * normal(&mut rng)).collect();
    let a: Vec<f64> = b.iter().map(|b| b + 1.0 + 0.1 * normal(&mut rng)).collect();
    let found = paired_interval(&a, &b, 0.95, &mut rng).unwrap();
    assert!(
        found.high - found.low < 0.2 && (found.estimate - 1.0).abs() < 0.1,
        "{found:?}"
    );
}

#[test]
fn ratios_are_geometric_means_and_symmetric() {
    let (a, b) = ([2.0, 8.0, 4.0, 4.0], [1.0, 2.0, 2.0, 1.0]);
    let mut rng = StdRng::seed_from_u64(1);
    let there = paired_ratio_interval(&a, &b, 0.9, &mut rng).unwrap();
    let back = paired_ratio_interval(&b, &a, 0.9, &mut rng).unwrap();
    assert!(
        (there.estimate - 64f64.powf(0.25)).abs() < 1e-9,
        "{there:?}"
    );
    assert!((there.low * back.high - 1.0).abs() < 1e-9);
    assert_eq!(
        paired_ratio_interval(&[0.0, 1.0], &[1.0, 1.0], 0.9, &mut rng),
        None
    );
}

#[test]
fn identical_runs_give_an_interval_around_zero() {
    let mut rng = StdRng::seed_from_u64(2);
    for n in [2, 6, 50] {
        let same: Vec<f64> = (0..n).map(|_| normal(&mut rng)).collect();
        let found = paired_interval(&same, &same, 0.95, &mut rng).unwrap();
        assert!(found.contains(0.0) && found.estimate == 0.0, "{found:?}");
        let ratio = same.iter().map(|value| value.exp()).collect::<Vec<_>>();
        let found = paired_ratio_interval(&ratio, &ratio, 0.95, &mut rng).unwrap();
        assert!(found.contains(1.0), "{found:?}");
    }
    let run: Vec<(f64, f64)> = (0..500)
        .map(|at| (f64::from(at), normal(&mut rng)))
        .collect();
    let found = block_bootstrap_quantile_difference(&run, &run, 0.99, 10, 0.95, &mut rng).unwrap();
    assert_eq!((found.estimate, found.low, found.high), (0.0, 0.0, 0.0));
}

#[test]
fn nothing_is_said_of_unusable_input() {
    let mut rng = StdRng::seed_from_u64(0);
    assert_eq!(paired_interval(&[1.0], &[2.0], 0.95, &mut rng), None);
    assert_eq!(paired_interval(&[1.0, 2.0], &[2.0], 0.95, &mut rng), None);
    assert_eq!(
        paired_interval(&[1.0, f64::NAN], &[2.0, 1.0], 0.95, &mut rng),
        None
    );
    assert_eq!(
        paired_interval(&[1.0, 2.0], &[2.0, 1.0], 1.0, &mut rng),
        None
    );
    let at_once = [(1.0, 1.0); 50];
    let mut blocks =
        |a: &[(f64, f64)], n| block_bootstrap_quantile_difference(a, a, 0.5, n, 0.95, &mut rng);
    assert_eq!(blocks(&[], 10), None);
    assert_eq!(blocks(&at_once, 10), None, "one block only");
    assert_eq!(blocks(&at_once, 0), None);
}

/// Two runs of the same arrivals, the second `shift` faster. Requests share the state of their
/// block; each run adds an own state of deviation `own` to it.
fn two_runs(rng: &mut StdRng, blocks: usize, shift: f64, own: f64) -> [Vec<(f64, f64)>; 2] {
    let mut runs = [Vec::new(), Vec::new()];
    for block in 0..blocks {
        let shared = normal(rng);
        let states = [20.0 + own * normal(rng), 20.0 - shift + own * normal(rng)];
        for at in 0..25 {
            let time = block as f64 + f64::from(at) / 25.0;
            for (run, state) in runs.iter_mut().zip(states) {
                run.push((time, state + shared + normal(rng)));
            }
        }
    }
    runs
}

/// The percentile interval of a quantile is known to be on the wide side, most of all where the
/// runs differ by nothing but a request's own noise.
#[test]
fn blocks_cover_the_difference_of_quantiles() {
    for (q, own, allowed) in [
        (0.5, 1.0, 0.91..=0.99),
        (0.9, 1.0, 0.90..=0.99),
        (0.5, 0.0, 0.93..=1.0),
    ] {
        let share = coverage(150, |rng| {
            let [a, b] = two_runs(rng, 20, 2.0, own);
            let found = resample_blocks(&a, &b, q, 20, 0.95, 200, rng).unwrap();
            found.contains(2.0)
        });
        println!("blocks, quantile {q}, own {own}, 95 % asked: {share}");
        assert!(allowed.contains(&share), "quantile {q}, own {own}: {share}");
    }
}

#[test]
fn pairing_blocks_is_narrower_than_runs_apart() {
    let mut rng = StdRng::seed_from_u64(9);
    let [a, b] = two_runs(&mut rng, 20, 2.0, 0.0);
    let paired = block_bootstrap_quantile_difference(&a, &b, 0.5, 20, 0.95, &mut rng).unwrap();
    // the same blocks in another order: the pairing is lost
    let moved: Vec<(f64, f64)> = b
        .iter()
        .map(|(time, value)| ((time + 7.0) % 20.0, *value))
        .collect();
    let apart = block_bootstrap_quantile_difference(&a, &moved, 0.5, 20, 0.95, &mut rng).unwrap();
    assert!(
        paired.high - paired.low < 0.7 * (apart.high - apart.low),
        "{paired:?} {apart:?}"
    );
}

#[test]
fn sign_flips_give_the_exact_share() {
    let mut rng = StdRng::seed_from_u64(0);
    // all of one sign: only the data and its mirror lie as far out
    assert_eq!(
        sign_flip_p_value(&[1.0, 2.0, 3.0, 4.0, 5.0], &mut rng),
        Some(2.0 / 32.0)
    );
    assert_eq!(sign_flip_p_value(&[1.0, -1.0], &mut rng), Some(1.0));
    assert_eq!(sign_flip_p_value(&[0.1, 0.2, 0.3], &mut rng), Some(0.25));
    assert_eq!(sign_flip_p_value(&[], &mut rng), None);
    let many: Vec<f64> = (0..40).map(|_| 1.0 + normal(&mut rng)).collect();
    assert!(sign_flip_p_value(&many, &mut rng).unwrap() < 0.001);
}

#[test]
fn sign_flips_reject_no_more_than_they_say() {
    let rejected = coverage(1000, |rng| {
        let noise: Vec<f64> = (0..10).map(|_| normal(rng)).collect();
        sign_flip_p_value(&noise, rng).unwrap() <= 0.05
    });
    assert!((0.03..=0.07).contains(&rejected), "{rejected}");
}

#[test]
fn a_ratio_of_means_is_covered_as_often_as_asked() {
    let mut rng = StdRng::seed_from_u64(5);
    let mut draw = |mean: f64, n: usize| -> Vec<f64> {
        let one = |_| mean * (1.0 + 0.2 * (rng.random::<f64>() + rng.random::<f64>() - 1.0));
        (0..n).map(one).collect()
    };
    let covered = (0..1000)
        .filter(|_| {
            let (a, b) = (draw(7.8, 10), draw(10.0, 6));
            ratio_of_means_interval(&a, &b, 0.9).unwrap().contains(0.78)
        })
        .count();
    assert!((870..=930).contains(&covered), "{covered}");
    assert_eq!(ratio_of_means_interval(&[1.0], &[1.0, 1.0], 0.9), None);
    assert_eq!(ratio_of_means_interval(&[1.0, 2.0], &[0.0, 0.0], 0.9), None);
    let exact = ratio_of_means_interval(&[2.0, 2.0], &[4.0, 4.0], 0.9).unwrap();
    assert_eq!((exact.low, exact.high), (0.5, 0.5));
}
