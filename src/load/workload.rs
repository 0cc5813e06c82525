//! What requests are to be sent: a mix of classes, each with its own lengths, drawn from a seed.
//!
//! Pure. One plan is made before a run and given to every policy, so that policies are compared
//! on the same requests at the same times.

use std::sync::Arc;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use super::LoadError;
use super::arrivals::Arrivals;
pub use super::lengths::Lengths;
use super::prefix::SharedPrefix;

/// One kind of request in a mix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// name in reports: `short`, `medium`, `long`
    pub name: String,
    /// share of the requests, relative to the other classes
    pub share: f64,
    /// prompt length
    pub prompt: Lengths,
    /// output length the engine is to generate
    pub output: Lengths,
}

/// A mix of classes arriving over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// when requests come
    pub arrivals: Arrivals,
    /// what they are
    pub classes: Vec<Class>,
}

/// One request of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedRequest {
    /// position in the plan, from 0
    pub index: u32,
    /// when to send it, nanoseconds after the start of the run
    pub at_ns: u64,
    /// index of its class in [`Workload::classes`]
    pub class: u16,
    /// prompt length
    pub prompt_tokens: u32,
    /// output length
    pub output_tokens: u32,
    /// seed of its text, unlike that of any other request of the plan
    pub text_seed: u64,
    /// how its text begins, where it shares that with others; the rest is of its own
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Arc<SharedPrefix>>,
}

impl Workload {
    /// All requests of a run of `duration_ns`, in sending order.
    ///
    /// Arrival times and lengths come from separate streams of the seed, so that another rate
    /// keeps the lengths and another mix keeps the times.
    pub fn plan(&self, seed: u64, duration_ns: u64) -> Result<Vec<PlannedRequest>, LoadError> {
        self.plan_at(&self.arrivals.schedule_ns(seed, duration_ns)?, seed)
    }

    /// The same with arrivals that are given, ascending, in nanoseconds after the start.
    pub fn plan_at(
        &self,
        schedule_ns: &[u64],
        seed: u64,
    ) -> Result<Vec<PlannedRequest>, LoadError> {
        self.validate()?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6c65_6e67_7468_735f);
        let total: f64 = self.classes.iter().map(|class| class.share).sum();
        let draw = |(index, at_ns): (usize, &u64)| {
            let class = self.draw_class(rng.random::<f64>() * total);
            PlannedRequest {
                index: index as u32,
                at_ns: *at_ns,
                class: class as u16,
                prompt_tokens: self.classes[class].prompt.draw(&mut rng),
                output_tokens: self.classes[class].output.draw(&mut rng),
                text_seed: rng.random(),
                prefix: None,
            }
        };
        Ok(schedule_ns.iter().enumerate().map(draw).collect())
    }

    /// Mean prompt and output tokens of a request, over the whole mix, from `samples` draws.
    pub fn mean_tokens(&self, samples: u32) -> Result<(f64, f64), LoadError> {
        self.validate()?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let total: f64 = self.classes.iter().map(|class| class.share).sum();
        let (mut prompt, mut output) = (0.0, 0.0);
        for class in &self.classes {
            let weight = class.share / total / f64::from(samples.max(1));
            for _ in 0..samples.max(1) {
                prompt += weight * f64::from(class.prompt.draw(&mut rng));
                output += weight * f64::from(class.output.draw(&mut rng));
            }
        }
        Ok((prompt, output))
    }

    fn validate(&self) -> Result<(), LoadError> {
        let usable = |class: &Class| class.share.is_finite() && class.share >= 0.0;
        if !self.classes.iter().all(usable) || !self.classes.iter().any(|class| class.share > 0.0) {
            return Err(LoadError::EmptyMix);
        }
        self.classes
            .iter()
            .try_for_each(|class| class.prompt.validate().and(class.output.validate()))
    }

    /// The class whose part of the cumulated shares holds `point`.
    fn draw_class(&self, mut point: f64) -> usize {
        for (index, class) in self.classes.iter().enumerate() {
            if point < class.share {
                return index;
            }
            point -= class.share;
        }
        // Rounding may leave the point at the very end: the last class that has a share.
        self.classes
            .iter()
            .rposition(|class| class.share > 0.0)
            .unwrap_or(0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn mix(rate_per_s: f64) -> Workload {
        let class = |name: &str, share, prompt, output| Class {
            name: name.into(),
            share,
            prompt,
            output,
        };
        Workload {
            arrivals: Arrivals::Poisson { rate_per_s },
            classes: vec![
                class(
                    "short",
                    0.8,
                    Lengths::Uniform {
                        min_tokens: 20,
                        max_tokens: 60,
                    },
                    Lengths::Fixed { tokens: 16 },
                ),
                class(
                    "long",
                    0.2,
                    Lengths::LogNormal {
                        median_tokens: 900,
                        sigma: 0.4,
                        min_tokens: 300,
                        max_tokens: 2000,
                    },
                    Lengths::Fixed { tokens: 200 },
                ),
            ],
        }
    }

    #[test]
    fn shares_and_lengths_follow_the_mix() {
        let plan = mix(100.0).plan(3, 600_000_000_000).unwrap();
        let long: Vec<_> = plan.iter().filter(|request| request.class == 1).collect();
        let share = long.len() as f64 / plan.len() as f64;
        assert!((share - 0.2).abs() < 0.01, "share of long requests {share}");
        let mut prompts: Vec<u32> = long.iter().map(|request| request.prompt_tokens).collect();
        prompts.sort_unstable();
        let median = f64::from(prompts[prompts.len() / 2]);
        assert!(
            (median / 900.0 - 1.0).abs() < 0.03,
            "median long prompt {median}"
        );
        assert!(prompts.iter().all(|tokens| (300..=2000).contains(tokens)));
    }

    #[test]
    fn the_seed_decides_the_plan_and_the_rate_does_not_touch_the_lengths() {
        let slow = mix(10.0).plan(5, 20_000_000_000).unwrap();
        assert_eq!(slow, mix(10.0).plan(5, 20_000_000_000).unwrap());
        let fast = mix(20.0).plan(5, 20_000_000_000).unwrap();
        assert!(
            slow.iter()
                .zip(&fast)
                .all(|(a, b)| a.prompt_tokens == b.prompt_tokens && a.class == b.class)
        );
        assert!(slow.iter().zip(&fast).any(|(a, b)| a.at_ns != b.at_ns));
    }

    #[test]
    fn no_two_requests_share_their_text() {
        let plan = mix(100.0).plan(5, 60_000_000_000).unwrap();
        let distinct: std::collections::HashSet<u64> =
            plan.iter().map(|request| request.text_seed).collect();
        assert_eq!(distinct.len(), plan.len());
    }

    #[test]
    fn the_mean_of_the_mix_is_that_of_its_plan() {
        let (prompt, output) = mix(100.0).mean_tokens(20_000).unwrap();
        let plan = mix(100.0).plan(9, 1_200_000_000_000).unwrap();
        let mean = |of: fn(&PlannedRequest) -> u32| {
            plan.iter().map(|r| f64::from(of(r))).sum::<f64>() / plan.len() as f64
        };
        assert!((prompt / mean(|r| r.prompt_tokens) - 1.0).abs() < 0.05);
        assert!((output / mean(|r| r.output_tokens) - 1.0).abs() < 0.05);
    }

    #[test]
    fn unusable_mixes_are_refused() {
        let mut none = mix(1.0);
        none.classes.iter_mut().for_each(|class| class.share = 0.0);
        assert!(matches!(
            none.plan(1, 1_000_000_000),
            Err(LoadError::EmptyMix)
        ));
        let mut reversed = mix(1.0);
        reversed.classes[0].prompt = Lengths::Uniform {
            min_tokens: 9,
            max_tokens: 3,
        };
        assert!(matches!(
            reversed.plan(1, 1_000_000_000),
            Err(LoadError::Lengths(..))
        ));
    }
}
