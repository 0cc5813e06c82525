//! The options of `evenkeel demo` and the load they stand for.

use std::path::PathBuf;

use clap::Args;

use crate::load::arrivals::Arrivals;
use crate::load::workload::{Class, Lengths, Workload};

/// Names of the policies the demo knows, in the order it runs them.
pub const POLICIES: [&str; 3] = ["round_robin", "least_outstanding_tokens", "lanes"];

/// Requests up to this many tokens, prompt and predicted output together, are short to the lanes.
pub const SHORT_MAX_TOKENS: u32 = 512;

/// Simulated engines behind the proxy, one of them slow, under each policy in turn.
///
/// Starts four simulated engines and the proxy in this process, sends the same requests at the same
/// times under each policy, and prints what users waited for. Everything runs on the loopback
/// interface; no GPU and no model is needed. The engines' speeds are invented, the proxy and its
/// measurements are the real ones.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Folder for records and summary.json [default: a new evenkeel-demo-TIME in the current folder]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Seconds of load for each policy
    #[arg(long, default_value_t = 21.0, value_parser = positive)]
    pub seconds: f64,
    /// Seed of arrivals, lengths and every random choice
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Repeat with this many seeds and compare seed by seed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub seeds: u32,
    /// Requests per second, over all instances
    #[arg(long, default_value_t = DEFAULT_RATE_PER_S, value_parser = positive)]
    pub rate: f64,
    /// How many times slower the slow instance is
    #[arg(long, default_value_t = 1.6, value_parser = positive)]
    pub slow_factor: f64,
    /// Policies to run, in this order; the first is the one that others are compared with
    #[arg(long, value_delimiter = ',', default_values = POLICIES, value_parser = clap::builder::PossibleValuesParser::new(POLICIES))]
    pub policies: Vec<String>,
}

/// Requests per second at which the fleet is busy enough for the policy to matter: about 70 % of what
/// four instances, one 1.6 times slower, can take.
pub const DEFAULT_RATE_PER_S: f64 = 50.0;

/// Instances of the demo.
pub const INSTANCES: usize = 4;

/// Which one is slow.
pub const SLOW_INSTANCE: usize = 2;

/// Share of the run dropped at its begin, while the first requests meet empty engines.
const WARM_UP_SHARE: f64 = 0.15;
const WARM_UP_MAX_S: f64 = 5.0;

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err("give a number above 0".to_owned()),
    }
}

impl DemoArgs {
    /// Seconds dropped at the begin of each run.
    pub fn warm_up_s(&self) -> f64 {
        (self.seconds * WARM_UP_SHARE).min(WARM_UP_MAX_S)
    }

    /// The seeds to run with.
    pub fn all_seeds(&self) -> Vec<u64> {
        (0..u64::from(self.seeds))
            .map(|offset| self.seed.wrapping_add(offset))
            .collect()
    }

    /// How many times as long each instance's steps last.
    pub fn slow_factors(&self) -> Vec<f64> {
        (0..INSTANCES)
            .map(|index| {
                if index == SLOW_INSTANCE {
                    self.slow_factor
                } else {
                    1.0
                }
            })
            .collect()
    }

    /// The load: most requests short as in chat, some with long prompts as in retrieval or summaries.
    pub fn workload(&self) -> Workload {
        workload(self.rate)
    }
}

/// The demo's mix at a rate.
pub fn workload(rate_per_s: f64) -> Workload {
    let class = |name: &str, share, prompt, output| Class {
        name: name.to_owned(),
        share,
        prompt,
        output,
    };
    let lengths = |median_tokens, sigma, min_tokens, max_tokens| Lengths::LogNormal {
        median_tokens,
        sigma,
        min_tokens,
        max_tokens,
    };
    Workload {
        arrivals: Arrivals::Poisson { rate_per_s },
        classes: vec![
            class(
                "short",
                0.85,
                lengths(80, 0.5, 16, 256),
                lengths(24, 0.5, 4, 96),
            ),
            class(
                "long",
                0.15,
                lengths(1800, 0.4, 800, 5000),
                lengths(96, 0.4, 24, 256),
            ),
        ],
    }
}
