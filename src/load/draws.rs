//! Draws from distributions, out of a seeded generator. Pure.
//!
//! Written out rather than taken from a library so that a seed gives the same plan in every
//! version of Evenkeel: a plan that changes with a dependency cannot be compared with last year's.

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

/// From the exponential distribution of mean 1.
pub(super) fn exponential(rng: &mut Xoshiro256PlusPlus) -> f64 {
    // 1 - u lies in (0, 1], so the logarithm is finite.
    -(1.0 - rng.random::<f64>()).ln()
}

/// From the standard normal distribution (Box and Muller 1958, one of the pair).
pub(super) fn standard_normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
}

/// From the gamma distribution of this shape and mean 1 (Marsaglia and Tsang 2000).
pub(super) fn gamma(rng: &mut Xoshiro256PlusPlus, shape: f64) -> f64 {
    if shape < 1.0 {
        // their remark for small shapes: a gamma of one more, times a power of a uniform draw
        let power = (1.0 - rng.random::<f64>()).powf(1.0 / shape);
        return gamma_from_one(rng, shape + 1.0) * power / shape;
    }
    gamma_from_one(rng, shape) / shape
}

/// From the gamma distribution of a shape of at least 1 and scale 1.
fn gamma_from_one(rng: &mut Xoshiro256PlusPlus, shape: f64) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let normal = standard_normal(rng);
        let cube = (1.0 + c * normal).powi(3);
        if cube <= 0.0 {
            continue;
        }
        let uniform = 1.0 - rng.random::<f64>();
        if uniform.ln() < 0.5 * normal * normal + d - d * cube + d * cube.ln() {
            return d * cube;
        }
    }
}

/// From the Weibull distribution of this shape and mean 1.
pub(super) fn weibull(rng: &mut Xoshiro256PlusPlus, shape: f64) -> f64 {
    let log_mean = statrs::function::gamma::ln_gamma(1.0 + 1.0 / shape);
    (exponential(rng).ln() / shape - log_mean).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    /// Mean and coefficient of variation of a million draws.
    fn measured(draw: impl Fn(&mut Xoshiro256PlusPlus) -> f64) -> (f64, f64) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
        let n = 1_000_000;
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..n {
            let value = draw(&mut rng);
            sum += value;
            squares += value * value;
        }
        let mean = sum / f64::from(n);
        let variance = squares / f64::from(n) - mean * mean;
        (mean, variance.sqrt() / mean)
    }

    #[test]
    fn gamma_and_weibull_have_mean_one_and_the_variation_of_their_shape() {
        for shape in [0.1, 0.25, 0.5, 1.0, 4.0, 50.0_f64] {
            let (mean, cv) = measured(|rng| gamma(rng, shape));
            let right = 1.0 / shape.sqrt();
            assert!(
                (mean - 1.0).abs() < 0.005 * right.max(1.0),
                "gamma {shape}: mean {mean}"
            );
            assert!(
                (cv / right - 1.0).abs() < 0.015,
                "gamma {shape}: {cv} for {right}"
            );
        }
        // CV² = Γ(1 + 2/k) / Γ(1 + 1/k)² - 1: √5 for 1/2, 1 for 1, 0.5227 for 2
        for (shape, right) in [(0.5, 5.0_f64.sqrt()), (1.0, 1.0), (2.0, 0.522_723)] {
            let (mean, cv) = measured(|rng| weibull(rng, shape));
            assert!((mean - 1.0).abs() < 0.01, "Weibull {shape}: mean {mean}");
            assert!(
                (cv / right - 1.0).abs() < 0.02,
                "Weibull {shape}: {cv} for {right}"
            );
        }
    }

    #[test]
    fn a_gamma_of_shape_one_has_the_quantiles_of_the_exponential() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut values: Vec<f64> = (0..200_000).map(|_| gamma(&mut rng, 1.0)).collect();
        values.sort_unstable_by(f64::total_cmp);
        for quantile in [0.1, 0.5, 0.9, 0.99] {
            let right = -f64::ln(1.0 - quantile);
            let found = values[(quantile * 200_000.0) as usize];
            assert!(
                (found / right - 1.0).abs() < 0.03,
                "{quantile}: {found} for {right}"
            );
        }
    }
}
