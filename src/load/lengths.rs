//! How long prompts and answers are: distributions of lengths in tokens.
//!
//! Pure: draws come from the generator that is handed over.

use std::fmt;
use std::sync::Arc;

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::LoadError;
use super::draws::standard_normal;

/// A distribution of lengths in tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Lengths {
    /// always the same
    Fixed {
        /// length
        tokens: u32,
    },
    /// every length between the two, both included, equally likely
    Uniform {
        /// shortest
        min_tokens: u32,
        /// longest
        max_tokens: u32,
    },
    /// log-normal, as lengths in production traces roughly are; a draw outside the two ends is moved to the end
    LogNormal {
        /// median
        median_tokens: u32,
        /// standard deviation of the logarithm
        sigma: f64,
        /// shortest
        min_tokens: u32,
        /// longest
        max_tokens: u32,
    },
    /// as often as they were seen
    Empirical {
        /// what was seen
        seen: Arc<SeenLengths>,
    },
}

/// Lengths and how often each was seen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SeenLengths {
    /// lengths, ascending
    pub tokens: Vec<u32>,
    /// weight of each length, together with those of all shorter ones
    pub cumulated: Vec<f64>,
}

impl SeenLengths {
    /// From lengths with their weights, in any order; a length may come more than once.
    pub fn weighted(mut pairs: Vec<(u32, f64)>) -> SeenLengths {
        pairs.sort_unstable_by_key(|(tokens, _)| *tokens);
        let mut seen = SeenLengths::default();
        let mut total = 0.0;
        for (tokens, weight) in pairs {
            total += weight;
            if seen.tokens.last() == Some(&tokens) {
                seen.cumulated.pop();
            } else {
                seen.tokens.push(tokens);
            }
            seen.cumulated.push(total);
        }
        seen
    }

    /// From lengths that were seen once each.
    pub fn counted(lengths: impl IntoIterator<Item = u32>) -> SeenLengths {
        SeenLengths::weighted(lengths.into_iter().map(|tokens| (tokens, 1.0)).collect())
    }

    /// The length below which `share` of the weight lies. `None` if nothing was seen.
    pub fn quantile(&self, share: f64) -> Option<u32> {
        let total = *self.cumulated.last()?;
        let at = self.cumulated.partition_point(|sum| *sum <= share * total);
        self.tokens.get(at).or(self.tokens.last()).copied()
    }

    /// Mean length. `None` if nothing was seen.
    pub fn mean(&self) -> Option<f64> {
        let total = *self.cumulated.last()?;
        let mut before = 0.0;
        let weighted = self
            .tokens
            .iter()
            .zip(&self.cumulated)
            .map(|(tokens, sum)| {
                let weight = sum - before;
                before = *sum;
                f64::from(*tokens) * weight
            });
        Some(weighted.sum::<f64>() / total)
    }

    pub(super) fn is_usable(&self) -> bool {
        let total = self.cumulated.last().copied().unwrap_or(0.0);
        self.tokens.len() == self.cumulated.len()
            && total.is_finite()
            && total > 0.0
            && self.cumulated.is_sorted()
            && self.tokens.first().is_some_and(|tokens| *tokens > 0)
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.single_tokens()) {
            (_, Some(tokens)) => write!(f, "{tokens} tokens"),
            (Lengths::Empirical { .. }, _) => {
                write!(f, "about {} tokens, as seen", self.median_tokens())
            }
            (
                Lengths::LogNormal {
                    median_tokens,
                    min_tokens,
                    max_tokens,
                    ..
                },
                _,
            ) => write!(
                f,
                "about {median_tokens} tokens, {min_tokens} to {max_tokens}"
            ),
            (
                Lengths::Uniform {
                    min_tokens,
                    max_tokens,
                },
                _,
            ) => write!(f, "{min_tokens} to {max_tokens} tokens"),
            (Lengths::Fixed { tokens }, _) => write!(f, "{tokens} tokens"),
        }
    }
}

impl Lengths {
    /// The length half of the requests stay under.
    pub fn median_tokens(&self) -> u32 {
        match self {
            Lengths::Fixed { tokens } => *tokens,
            Lengths::Uniform {
                min_tokens,
                max_tokens,
            } => min_tokens.midpoint(*max_tokens),
            Lengths::LogNormal { median_tokens, .. } => *median_tokens,
            Lengths::Empirical { seen } => seen.quantile(0.5).unwrap_or(0),
        }
    }

    /// The one length, if there is only one.
    pub fn single_tokens(&self) -> Option<u32> {
        match self {
            Lengths::Fixed { tokens } => Some(*tokens),
            Lengths::Uniform {
                min_tokens,
                max_tokens,
            }
            | Lengths::LogNormal {
                min_tokens,
                max_tokens,
                ..
            } => (min_tokens == max_tokens).then_some(*min_tokens),
            Lengths::Empirical { seen } => match seen.tokens[..] {
                [tokens] => Some(tokens),
                _ => None,
            },
        }
    }

    pub(super) fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> u32 {
        match self {
            Lengths::Fixed { tokens } => *tokens,
            Lengths::Uniform {
                min_tokens,
                max_tokens,
            } => rng.random_range(*min_tokens..=*max_tokens),
            Lengths::LogNormal {
                median_tokens,
                sigma,
                min_tokens,
                max_tokens,
            } => {
                let tokens = f64::from(*median_tokens) * (sigma * standard_normal(rng)).exp();
                (tokens.round() as u32).clamp(*min_tokens, *max_tokens)
            }
            Lengths::Empirical { seen } => seen.quantile(rng.random::<f64>()).unwrap_or(1),
        }
    }

    pub(super) fn validate(&self) -> Result<(), LoadError> {
        let refuse = |why| Err(LoadError::Lengths(format!("{self:?}"), why));
        match self {
            Lengths::Fixed { tokens: 0 } => refuse("a length of 0"),
            Lengths::Fixed { .. } => Ok(()),
            Lengths::Uniform {
                min_tokens,
                max_tokens,
            }
            | Lengths::LogNormal {
                min_tokens,
                max_tokens,
                ..
            } if *min_tokens == 0 || min_tokens > max_tokens => {
                refuse("the shortest length must be at least 1 and at most the longest")
            }
            Lengths::LogNormal {
                median_tokens,
                sigma,
                ..
            } if *median_tokens == 0 || !sigma.is_finite() || *sigma < 0.0 => {
                refuse("the median must be at least 1 and sigma not negative")
            }
            Lengths::Empirical { seen } if !seen.is_usable() => Err(LoadError::SeenLengths),
            Lengths::Uniform { .. } | Lengths::LogNormal { .. } | Lengths::Empirical { .. } => {
                Ok(())
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn drawn(lengths: &Lengths) -> Vec<u32> {
        lengths.validate().unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(9);
        let mut values: Vec<u32> = (0..200_000).map(|_| lengths.draw(&mut rng)).collect();
        values.sort_unstable();
        values
    }

    #[test]
    fn seen_lengths_come_back_as_often_as_they_were_seen() {
        let seen = SeenLengths::weighted(vec![(40, 0.5), (10, 1.0), (40, 0.5), (99, 2.0)]);
        assert_eq!(seen.tokens, [10, 40, 99]);
        assert_eq!(seen.cumulated, [1.0, 2.0, 4.0]);
        assert_eq!(seen.mean(), Some((10.0 + 40.0 + 2.0 * 99.0) / 4.0));
        let values = drawn(&Lengths::Empirical {
            seen: Arc::new(seen),
        });
        let share = |tokens| values.iter().filter(|v| **v == tokens).count() as f64 / 200_000.0;
        assert!((share(10) - 0.25).abs() < 0.005 && (share(40) - 0.25).abs() < 0.005);
        assert!((share(99) - 0.5).abs() < 0.005);
    }

    #[test]
    fn a_length_of_no_weight_is_never_drawn() {
        let seen = SeenLengths::weighted(vec![(1, 0.0), (2, 1.0), (3, 0.0)]);
        assert_eq!(
            (seen.quantile(0.0), seen.quantile(0.999)),
            (Some(2), Some(2))
        );
    }

    #[test]
    fn a_log_normal_has_its_quantiles() {
        let values = drawn(&Lengths::LogNormal {
            median_tokens: 1000,
            sigma: 0.5,
            min_tokens: 1,
            max_tokens: 1_000_000,
        });
        // median · e^(σ z) with z of 10 %, 50 %, 90 %, 99 %
        for (share, right) in [(0.1, 526.9), (0.5, 1000.0), (0.9, 1898.0), (0.99, 3200.0)] {
            let found = f64::from(values[(share * 200_000.0) as usize]);
            assert!(
                (found / right - 1.0_f64).abs() < 0.02,
                "{share}: {found} for {right}"
            );
        }
    }

    #[test]
    fn a_table_without_weight_is_refused() {
        for pairs in [
            vec![],
            vec![(5, 0.0)],
            vec![(5, f64::NAN)],
            vec![(0, 1.0)],
            vec![(5, -1.0)],
        ] {
            let seen = Arc::new(SeenLengths::weighted(pairs));
            assert!(Lengths::Empirical { seen }.validate().is_err());
        }
    }
}
