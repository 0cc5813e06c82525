//! The plan as it is used: checked, with presets filled in and every point of it laid out. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use evenkeel_policies::PolicyConfig;

pub use super::raw::{Api, Hooks, Timing, Values};
use crate::config::Upstream;
use crate::engine::profile::Profile;
use crate::load::workload::Class;
use crate::monitor::Endpoint;
use crate::report::goodput::Objective;
use crate::study::{Load, Price, Scenario, Setting};

/// A plan.
#[derive(Debug)]
pub struct Plan {
    /// the study's name
    pub name: String,
    /// its text
    pub source: String,
    /// seed of arrivals, lengths and texts
    pub seed: u64,
    /// what a good request is
    pub objectives: Vec<Objective>,
    /// the same as it was written
    pub objective_words: Vec<String>,
    /// share of requests that must be good
    pub attainment: f64,
    /// price of a GPU for an hour
    pub gpu_hour_price: Option<Price>,
    /// times each point is run
    pub repeats: u32,
    /// written into every point
    pub labels: BTreeMap<String, String>,
    /// where it runs
    pub fleet: Fleet,
    /// settings of the engine
    pub engine: Values,
    /// what starts, restarts and stops a live fleet
    pub hooks: Hooks,
    /// numbers of instances
    pub instances: Vec<u32>,
    /// GPUs inside an instance
    pub gpus_per_instance: Vec<u32>,
    /// names of policies
    pub policies: Vec<String>,
    /// those that need settings
    pub policy_settings: BTreeMap<String, PolicyConfig>,
    /// how long points are
    pub timing: Timing,
    /// the scenarios
    pub scenarios: Vec<ScenarioPlan>,
    /// sets of lengths that are used, by name
    pub length_sets: BTreeMap<String, LengthSet>,
    /// exporters of the plan, in its order
    pub exporters: Vec<Endpoint>,
    /// every point, in the order in which they run
    pub points: Vec<Point>,
    /// what is allowed but probably not meant
    pub warnings: Vec<String>,
}

/// Where it runs.
#[derive(Debug)]
pub enum Fleet {
    /// simulated engines
    Simulated(Simulated),
    /// servers of somebody's
    Live(Live),
}

/// Simulated engines.
#[derive(Debug)]
pub struct Simulated {
    /// one instance on one GPU, without the plan's settings
    pub profile: Profile,
    /// how many times as long each instance's steps last
    pub slow_factors: Vec<f64>,
}

/// Servers behind a base URL.
#[derive(Debug)]
pub struct Live {
    /// the URL as it was written
    pub base_url: String,
    /// where that is
    pub upstream: Upstream,
    /// pages that answer once the fleet is ready
    pub ready: Vec<Upstream>,
    /// model to ask for
    pub model: Option<String>,
    /// kind of API
    pub api: Api,
    /// where the proxy's records are
    pub records_dir: Option<PathBuf>,
    /// environment variable with the API key
    pub api_key_env: String,
    /// full output lengths
    pub ignore_eos: bool,
    /// longest time from send to last byte
    pub request_timeout_s: f64,
}

/// A scenario and its loads.
#[derive(Debug, Clone)]
pub struct ScenarioPlan {
    /// which
    pub scenario: Scenario,
    /// for each instance
    pub loads: Vec<Load>,
    /// names of the sets of lengths
    pub lengths: Vec<String>,
    /// of the mixed scenario
    pub batch: Option<Batch>,
}

/// Batch work beside an online load.
#[derive(Debug, Clone)]
pub struct Batch {
    /// requests unanswered at once, for each instance
    pub concurrency: u32,
    /// name of the set of lengths
    pub lengths: String,
}

/// A set of lengths.
#[derive(Debug, Clone)]
pub struct LengthSet {
    /// kinds of requests
    pub classes: Vec<Class>,
    /// the lengths are an assumption of ours
    pub assumed: bool,
}

/// A point of the plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// its name
    pub id: String,
    /// its place, from 0
    pub order: u32,
    /// all that is set for it
    pub setting: Setting,
}

impl Plan {
    /// Whether instances begin anew for each point, so that no cache is left from one to the next.
    pub fn starts_afresh(&self) -> bool {
        match &self.fleet {
            Fleet::Simulated(_) => true,
            Fleet::Live(_) => {
                self.hooks.restart.is_some()
                    || (self.hooks.start.is_some() && self.hooks.stop.is_some())
            }
        }
    }

    /// Seconds of load of a point after its warm-up; of a batch nobody knows.
    pub fn measured_s(&self, load: Load) -> Option<f64> {
        let timing = &self.timing;
        match load {
            Load::Closed { .. } => Some(timing.duration_s),
            Load::Poisson { .. } => Some(timing.poisson_duration_s.unwrap_or(timing.duration_s)),
            Load::Batch { .. } => None,
        }
    }

    /// Seconds before that.
    pub fn warm_up_s(&self, load: Load) -> f64 {
        match load {
            Load::Batch { .. } => 0.0,
            _ => self.timing.warm_up_s,
        }
    }

    /// Seconds cut at both ends. A batch is issued at one time and has none.
    pub fn trim_s(&self, load: Load) -> Option<f64> {
        match load {
            Load::Batch { .. } => Some(0.0),
            _ => self.timing.trim_s,
        }
    }

    /// The classes of a set; empty for one that is not there, which a checked plan does not name.
    pub fn classes(&self, lengths: &str) -> &[Class] {
        self.length_sets
            .get(lengths)
            .map_or(&[], |set| set.classes.as_slice())
    }

    /// The set of lengths of the batch of a scenario.
    pub fn batch_lengths(&self, scenario: Scenario) -> &str {
        let found = self.scenarios.iter().find(|one| one.scenario == scenario);
        found
            .and_then(|one| one.batch.as_ref())
            .map_or("long", |batch| &batch.lengths)
    }
}
