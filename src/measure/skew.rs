//! How unevenly load lies on a pool's instances, and how uneven chance alone would make it.
//!
//! Pure. An instance's load is its outstanding tokens averaged over the time it was in rotation,
//! over its weight; a pool's load skew is the greatest of them over their mean, since the start.
//! Shares of requests and tokens are shown too, but say nothing by themselves: a policy that knows
//! load is right to starve a slow instance.

use statrs::distribution::{ContinuousCDF, Normal};

use super::clock::Ns;
use super::speed::LoadIntegral;

/// Ended requests per instance that a skew needs.
pub const LEAST_REQUESTS_EACH: u64 = 20;

/// An instance's outstanding tokens over the time it is in rotation.
#[derive(Debug, Clone, Copy)]
pub struct RotationLoad {
    tokens: f64,
    counted: LoadIntegral,
    in_rotation: LoadIntegral,
    is_in: bool,
}

impl RotationLoad {
    /// In rotation and idle from `now_ns` on.
    pub fn new(now_ns: Ns) -> RotationLoad {
        let mut load = RotationLoad {
            tokens: 0.0,
            counted: LoadIntegral::new(now_ns),
            in_rotation: LoadIntegral::new(now_ns),
            is_in: true,
        };
        load.set_in_rotation(now_ns, true);
        load
    }

    /// From `now_ns` on `tokens` are outstanding.
    pub fn advance(&mut self, now_ns: Ns, tokens: u64) {
        self.tokens = tokens as f64;
        self.settle(now_ns);
    }

    /// From `now_ns` on the instance takes requests, or does not.
    pub fn set_in_rotation(&mut self, now_ns: Ns, is_in: bool) {
        self.is_in = is_in;
        self.in_rotation.advance(now_ns, f64::from(u8::from(is_in)));
        self.settle(now_ns);
    }

    fn settle(&mut self, now_ns: Ns) {
        let counted = if self.is_in { self.tokens } else { 0.0 };
        self.counted.advance(now_ns, counted);
    }

    /// Tokens outstanding now.
    pub fn tokens(&self) -> f64 {
        self.tokens
    }

    /// Tokens × seconds so far, in rotation.
    pub fn token_seconds(&self, now_ns: Ns) -> f64 {
        self.counted.value_at(now_ns) / 1e9
    }

    /// Mean outstanding tokens; absent for an instance that never was in rotation.
    pub fn mean_tokens(&self, now_ns: Ns) -> Option<f64> {
        let in_rotation_ns = self.in_rotation.value_at(now_ns);
        (in_rotation_ns > 0.0).then(|| self.counted.value_at(now_ns) / in_rotation_ns)
    }
}

/// Number, mean and spread of values, one by one (Welford 1962).
#[derive(Debug, Clone, Copy, Default)]
pub struct Spread {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Spread {
    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        let off = value - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (value - self.mean);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; 0 without a value.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Coefficient of variation; absent under 2 values or where the mean is not above 0.
    pub fn cv(&self) -> Option<f64> {
        let known = self.count >= 2 && self.mean > 0.0;
        known.then(|| (self.squares / (self.count - 1) as f64).sqrt() / self.mean)
    }
}

/// One instance, as input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InstanceLoad {
    /// mean outstanding tokens in rotation
    pub mean_tokens: f64,
    /// share of work
    pub weight: f64,
}

/// A pool's load skew beside what chance gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadSkew {
    /// greatest over mean of load over weight; 1 is even
    pub measured: f64,
    /// what random placement by weight gives on average
    pub by_chance: f64,
}

/// Load skew of a pool. `requests` are the token-seconds each ended request laid on an instance.
/// Absent for one instance, without load, and under [`LEAST_REQUESTS_EACH`] ended requests per
/// instance.
pub fn load_skew(instances: &[InstanceLoad], requests: &Spread) -> Option<LoadSkew> {
    let n = instances.len() as u64;
    if n < 2 || requests.count() < n * LEAST_REQUESTS_EACH {
        return None;
    }
    let loads = instances.iter().map(|one| one.mean_tokens / one.weight);
    let weights: Vec<f64> = instances.iter().map(|one| one.weight).collect();
    Some(LoadSkew {
        measured: greatest_over_mean(loads)?,
        by_chance: skew_by_chance(&weights, requests.count(), requests.cv()?),
    })
}

fn greatest_over_mean(loads: impl ExactSizeIterator<Item = f64> + Clone) -> Option<f64> {
    let mean = loads.clone().sum::<f64>() / loads.len() as f64;
    let greatest = loads.reduce(f64::max)?;
    (mean > 0.0 && mean.is_finite()).then(|| greatest / mean)
}

/// Expected greatest over mean of load over weight where `requests` requests, whose loads have
/// coefficient of variation `cv`, fall on instances at random by weight.
///
/// An instance's load is a compound Poisson sum with relative deviation
/// √((1 + cv²) W / (w R)), W the sum of weights w and R the requests; sums of many are about
/// normal, so with equal weights this is 1 + m(n) √((1 + cv²) n / R), m(n) the expected greatest
/// of n standard normals. It leaves out that a queue makes uneven load more uneven, so near
/// saturation chance gives more.
pub fn skew_by_chance(weights: &[f64], requests: u64, cv: f64) -> f64 {
    let sum: f64 = weights.iter().sum();
    let deviations = weights
        .iter()
        .map(|weight| ((1.0 + cv * cv) * sum / (weight * requests as f64)).sqrt());
    1.0 + expected_greatest(&deviations.collect::<Vec<f64>>())
}

/// Expected greatest of independent normals of mean 0 with these deviations: the integral of
/// 1 - F above 0 less that of F below, F the product of their distributions, by midpoints.
pub fn expected_greatest(deviations: &[f64]) -> f64 {
    const STEPS: u32 = 400;
    const REACH: f64 = 8.0;
    let Some(widest) = deviations.iter().copied().reduce(f64::max) else {
        return 0.0;
    };
    if widest <= 0.0 || !widest.is_finite() {
        return 0.0;
    }
    let normal = Normal::standard();
    let below = |x: f64| {
        let each = deviations.iter().map(|deviation| normal.cdf(x / deviation));
        each.product::<f64>()
    };
    let step = REACH * widest / f64::from(STEPS);
    let at = |index: u32| (f64::from(index) + 0.5) * step;
    let sum: f64 = (0..STEPS)
        .map(|index| 1.0 - below(at(index)) - below(-at(index)))
        .sum();
    sum * step
}

/// Each value over their sum; absent where the sum is not above 0.
pub fn shares(values: &[f64]) -> Vec<Option<f64>> {
    let sum: f64 = values.iter().sum();
    let share = |value: &f64| (sum > 0.0).then(|| value / sum);
    values.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn the_greatest_of_normals_is_the_tables() {
        for (n, expected) in [
            (1, 0.0),
            (2, 0.56419),
            (4, 1.02938),
            (10, 1.53875),
            (100, 2.50759),
        ] {
            let found = expected_greatest(&vec![1.0; n]);
            assert!((found - expected).abs() < 1e-3, "{n}: {found}");
            assert!((expected_greatest(&vec![0.2; n]) - 0.2 * found).abs() < 1e-6);
        }
    }

    /// Mean over trials of greatest over mean, requests of exponential size placed by weight.
    fn simulated(weights: &[f64], requests: u64) -> f64 {
        let sum: f64 = weights.iter().sum();
        let mut rng = StdRng::seed_from_u64(11);
        let mut trial = || {
            let mut loads = vec![0.0; weights.len()];
            for _ in 0..requests {
                let mut left = rng.random_range(0.0..sum);
                let place = weights.iter().position(|weight| {
                    left -= weight;
                    left < 0.0
                });
                loads[place.unwrap_or(0)] -= (1.0 - rng.random::<f64>()).ln();
            }
            let over_weight = loads
                .iter()
                .zip(weights)
                .map(|(load, weight)| load / weight);
            greatest_over_mean(over_weight).unwrap()
        };
        (0..400).map(|_| trial()).sum::<f64>() / 400.0
    }

    #[test]
    fn chance_is_what_a_simulation_gives() {
        for (weights, requests) in [
            (vec![1.0; 4], 400),
            (vec![1.0; 16], 1600),
            (vec![1.0, 1.0, 2.0, 4.0], 800),
        ] {
            let expected = skew_by_chance(&weights, requests, 1.0) - 1.0;
            let found = simulated(&weights, requests) - 1.0;
            println!(
                "{weights:?}, {requests} requests: {expected:.4} by formula, {found:.4} simulated"
            );
            assert!(
                (found / expected - 1.0).abs() < 0.1,
                "{weights:?}: {found} for {expected}"
            );
        }
    }

    #[test]
    fn load_outside_of_rotation_does_not_count() {
        let mut load = RotationLoad::new(1_000);
        assert_eq!(load.mean_tokens(1_000), None);
        load.advance(2_000, 30);
        load.advance(3_000, 60);
        load.set_in_rotation(4_000, false);
        load.advance(9_000, 500);
        assert_eq!(load.mean_tokens(10_000), Some(30.0));
        assert_eq!((load.tokens(), load.token_seconds(10_000)), (500.0, 9e-5));
        load.set_in_rotation(10_000, true);
        assert_eq!(load.mean_tokens(11_000), Some(590_000.0 / 4_000.0));
    }

    #[test]
    fn skew_is_said_only_of_enough_requests() {
        let even = |n: usize| {
            vec![
                InstanceLoad {
                    mean_tokens: 100.0,
                    weight: 1.0
                };
                n
            ]
        };
        let mut requests = Spread::default();
        (0..79).for_each(|at| requests.add(f64::from(at)));
        assert_eq!(load_skew(&even(4), &requests), None);
        requests.add(1.0);
        let skew = load_skew(&even(4), &requests).unwrap();
        assert!(skew.measured == 1.0 && skew.by_chance > 1.0);
        assert_eq!(load_skew(&even(1), &requests), None);
        let mut loads = even(4);
        loads[2].mean_tokens = 300.0;
        assert_eq!(load_skew(&loads, &requests).unwrap().measured, 2.0);
        // three times the weight: three times the load is even
        loads[2].weight = 3.0;
        assert_eq!(load_skew(&loads, &requests).unwrap().measured, 1.0);
        let idle = [InstanceLoad {
            mean_tokens: 0.0,
            weight: 1.0,
        }; 2];
        assert_eq!(load_skew(&idle, &requests), None);
    }

    #[test]
    fn spread_is_the_coefficient_of_variation() {
        let mut spread = Spread::default();
        assert_eq!(spread.cv(), None);
        [2.0, 4.0, 6.0]
            .into_iter()
            .for_each(|value| spread.add(value));
        assert_eq!((spread.count(), spread.cv()), (3, Some(0.5)));
        assert_eq!(shares(&[1.0, 3.0]), vec![Some(0.25), Some(0.75)]);
        assert_eq!(shares(&[0.0, 0.0]), vec![None, None]);
    }
}
