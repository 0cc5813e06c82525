//! What is set for one point of a study. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// All that was set for one point; two points of a comparison differ in one of these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// what the load stands for
    pub scenario: Scenario,
    /// which curve the point lies on
    pub scaling: Scaling,
    /// inference servers
    pub instances: u32,
    /// GPUs inside each of them
    pub gpus_per_instance: u32,
    /// how much is sent, to all instances together
    pub load: Load,
    /// the same for one instance, or for one GPU in vertical scaling, so that points of equal load are found by it
    pub load_per_instance: f64,
    /// name of the set of lengths, such as `mix`, `short`
    pub lengths: String,
    /// policy of the balancer
    pub policy: String,
    /// number of the repetition, from 0
    pub repeat: u32,
    /// seed of this point
    pub seed: u64,
    /// which variant of the plan: `base`, or the name of a counter-experiment or of another variable's value
    pub variant: String,
    /// settings of the engine, as the plan has them, such as `max_num_seqs`
    #[serde(default)]
    pub engine: BTreeMap<String, toml::Value>,
    /// batch work sent beside an online load, for the mixed scenario: requests unanswered at once
    #[serde(default)]
    pub batch_concurrency: Option<u32>,
    /// what else the plan says of it
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// What a load stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scenario {
    /// people who wait: TTFT, TPOT, the tail
    Online,
    /// work that is to be done: throughput
    Offline,
    /// both at once
    Mixed,
}

/// The curve a point lies on. One instance with one GPU lies on both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scaling {
    /// more instances
    Horizontal,
    /// more GPUs in an instance
    Vertical,
}

/// How much is sent, to all instances together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Load {
    /// so many requests unanswered at once
    Closed {
        /// how many
        concurrency: u32,
    },
    /// Poisson arrivals
    Poisson {
        /// requests a second
        rate_per_s: f64,
    },
    /// all at once, until they are done
    Batch {
        /// how many
        requests: u32,
    },
}

impl Load {
    /// Concurrency, requests a second, or requests.
    pub fn amount(self) -> f64 {
        match self {
            Load::Closed { concurrency } => f64::from(concurrency),
            Load::Poisson { rate_per_s } => rate_per_s,
            Load::Batch { requests } => f64::from(requests),
        }
    }

    /// `c16`, `r20`, `b1000`.
    pub fn tag(self) -> String {
        let letter = match self {
            Load::Closed { .. } => 'c',
            Load::Poisson { .. } => 'r',
            Load::Batch { .. } => 'b',
        };
        format!("{letter}{}", self.amount())
    }
}

impl Scenario {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Online => "online",
            Scenario::Offline => "offline",
            Scenario::Mixed => "mixed",
        }
    }
}

impl Setting {
    /// Name of the point, fit for a folder: what tells it from the others of its study, in a fixed order.
    pub fn id(&self) -> String {
        let mut id = format!(
            "{}-n{}-g{}-{}-{}-{}-{}",
            self.scenario.name(),
            self.instances,
            self.gpus_per_instance,
            self.load.tag(),
            self.lengths,
            self.policy,
            self.variant
        );
        if let Some(batch) = self.batch_concurrency {
            id += &format!("-batch{batch}");
        }
        id += &format!("-{}", self.repeat);
        let fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        id.replace(|c| !fit(c), "_")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_named_by_what_was_set() {
        let setting = Setting {
            scenario: Scenario::Mixed,
            scaling: Scaling::Horizontal,
            instances: 4,
            gpus_per_instance: 1,
            load: Load::Poisson { rate_per_s: 2.5 },
            load_per_instance: 0.625,
            lengths: "mix".into(),
            policy: "least requests".into(),
            repeat: 1,
            seed: 7,
            variant: "base".into(),
            engine: BTreeMap::new(),
            batch_concurrency: Some(8),
            labels: BTreeMap::new(),
        };
        assert_eq!(
            setting.id(),
            "mixed-n4-g1-r2.5-mix-least_requests-base-batch8-1"
        );
    }
}
