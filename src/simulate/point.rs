//! A point of a study in virtual time: a [`Setting`] on a simulated fleet, seen as a live run would be. Pure.
//!
//! The same seed draws the same requests as `evenkeel bench` does for the same load, and what comes back is what its
//! writers and figures take: a [`RunResult`], the balancer's [`Record`]s, a monitor's [`Reading`]s.

use evenkeel_policies::PolicyConfig;

use super::SimulateError;
use super::clockwork::{Course, FleetSpec, drive};
use super::connections::Connections;
use super::flow::Flow;
use super::generator::GeneratorCost;
use super::seen;
use crate::bench::plan::{self, Extent, Mode};
use crate::engine::profile::Profile;
use crate::load::arrivals::Arrivals;
use crate::load::runner::{ClosedEnd, Pace, RunResult};
use crate::load::workload::Class;
use crate::measure::record::Record;
use crate::report::load_summary;
use crate::report::window::WindowRule;
use crate::study::monitor::Reading;
use crate::study::{Load, Setting};

/// Keeps the batch's requests apart from the online ones of the same seed.
pub const BATCH_SEED: u64 = 0x6261_7463_6821;

/// The fleet of a study, faults included. Its size is the setting's.
#[derive(Debug, Clone)]
pub struct Fleet {
    /// one instance on one GPU; [`Setting::engine`] and `gpus_per_instance` are applied to it
    pub profile: Profile,
    /// how many times as long each instance's steps last; those past the end are as fast as the profile
    pub slow_factors: Vec<f64>,
    /// shares of the connections that a balancer without an eye for load gives to instances, repeated where there are
    /// more instances; `None`: the policy chooses
    pub connection_shares: Option<Vec<f64>>,
    /// the policy with its settings; `None`: the setting's name says it all
    pub policy: Option<PolicyConfig>,
    /// what sending costs the one core of the generator
    pub generator: GeneratorCost,
}

impl Fleet {
    /// A fleet with nothing wrong.
    pub fn new(profile: Profile) -> Fleet {
        Fleet {
            profile,
            slow_factors: Vec::new(),
            connection_shares: None,
            policy: None,
            generator: GeneratorCost::USUAL,
        }
    }
}

/// A point to be run.
#[derive(Debug, Clone)]
pub struct PointSpec {
    /// what is set
    pub setting: Setting,
    /// on what
    pub fleet: Fleet,
    /// what requests are
    pub classes: Vec<Class>,
    /// what the batch's are, for the mixed scenario
    pub batch_classes: Vec<Class>,
    /// how arrivals are spread, where it is not the setting's Poisson
    pub arrivals: Option<Arrivals>,
    /// how long it goes on after the warm-up; of a batch the setting tells
    pub extent: Extent,
    /// length of the warm-up, seconds
    pub warm_up_s: f64,
    /// what is cut at both ends, seconds; `None`: as `evenkeel bench` does
    pub trim_s: Option<f64>,
    /// time between two looks of the monitor, seconds
    pub look_every_s: f64,
    /// ids of requests are this and the request's number
    pub id_prefix: String,
}

impl PointSpec {
    /// A point of `seconds` after `warm_up_s`, with a look each second.
    pub fn new(
        setting: Setting,
        fleet: Fleet,
        classes: Vec<Class>,
        warm_up_s: f64,
        seconds: f64,
    ) -> PointSpec {
        PointSpec {
            setting,
            fleet,
            classes,
            batch_classes: Vec::new(),
            arrivals: None,
            extent: Extent::Seconds(seconds),
            warm_up_s,
            trim_s: None,
            look_every_s: 1.0,
            id_prefix: "sim-".into(),
        }
    }
}

/// A point that was run.
#[derive(Debug, Clone)]
pub struct SimPoint {
    /// what was set
    pub setting: Setting,
    /// the load as its generator saw it
    pub run: RunResult,
    /// the batch beside it, for the mixed scenario
    pub batch: Option<RunResult>,
    /// what the balancer would have written of each request, batch included; the batch's ids have `batch-` behind the
    /// prefix
    pub records: Vec<Record>,
    /// what a monitor would have read
    pub readings: Vec<Reading>,
    /// how the run is to be read: its warm-up and what is cut
    pub rule: WindowRule,
    /// requests had times to keep
    pub scheduled: bool,
    /// until the last answer, seconds of virtual time
    pub seconds: f64,
}

impl SimPoint {
    /// How [`load_summary::LoadSummary`] is to read it.
    pub fn reading(
        &self,
        objectives: Vec<crate::report::goodput::Objective>,
    ) -> load_summary::Reading {
        load_summary::Reading {
            rule: self.rule,
            objectives,
            scheduled: self.scheduled,
        }
    }

    /// The run in figures.
    pub fn summary(
        &self,
        objectives: Vec<crate::report::goodput::Objective>,
    ) -> load_summary::LoadSummary {
        load_summary::LoadSummary::of(&self.run, &self.reading(objectives))
    }
}

/// Runs a point. The same arguments give the same result.
pub fn run_point(spec: &PointSpec) -> Result<SimPoint, SimulateError> {
    let setting = &spec.setting;
    if !(spec.look_every_s.is_finite() && spec.look_every_s > 0.0) {
        return Err(SimulateError::Looks(spec.look_every_s));
    }
    let warm_up_ns = match setting.load {
        Load::Batch { .. } => 0,
        _ => (spec.warm_up_s.max(0.0) * 1e9) as u64,
    };
    let flows = flows(spec, warm_up_ns)?;
    let scheduled = !matches!(setting.load, Load::Closed { .. });
    let fleet = fleet_spec(spec)?;
    let course = Course {
        flows,
        generator: spec.fleet.generator,
        connections: spec.fleet.connection_shares.as_ref().map(|shares| {
            let instances = setting.instances as usize;
            let shares: Vec<f64> = shares.iter().copied().cycle().take(instances).collect();
            Connections::new(&shares)
        }),
        look_every_ns: Some((spec.look_every_s * 1e9) as u64),
    };
    let driven = drive(&fleet, course, setting.seed)?;
    let records = seen::records(&driven.jobs, &setting.policy, &spec.id_prefix);
    let (online, batch) = driven
        .jobs
        .into_iter()
        .partition(|job| job.sender.flow == 0);
    let result = |jobs| seen::run_result(jobs, driven.generator);
    Ok(SimPoint {
        setting: setting.clone(),
        run: result(online),
        batch: setting.batch_concurrency.map(|_| result(batch)),
        records,
        readings: driven.readings,
        rule: WindowRule {
            warm_up_ns,
            trim_s: spec.trim_s,
        },
        scheduled,
        seconds: driven.end_ns as f64 / 1e9,
    })
}

fn flows(spec: &PointSpec, warm_up_ns: u64) -> Result<Vec<Flow>, SimulateError> {
    let setting = &spec.setting;
    let (mode, extent, places) = match setting.load {
        Load::Closed { concurrency } => (Mode::Closed(concurrency), spec.extent, concurrency),
        Load::Poisson { rate_per_s } => {
            let arrivals = spec.arrivals.unwrap_or(Arrivals::Poisson { rate_per_s });
            (Mode::Open(arrivals), spec.extent, 0)
        }
        Load::Batch { requests } => (Mode::AtOnce, Extent::Requests(requests), 0),
    };
    let load = |problem: crate::bench::BenchError| SimulateError::Load(problem.to_string());
    let (requests, pace) =
        plan::requests(mode, extent, spec.classes.clone(), setting.seed, warm_up_ns)
            .map_err(load)?;
    let mut flows = vec![Flow::new(requests, pace, places)];
    if let Some(places) = setting.batch_concurrency {
        // It ends with the online load, whenever that is.
        let endless = Pace::Closed(ClosedEnd::After { run_ns: u64::MAX });
        let mode = Mode::Closed(places);
        let seed = setting.seed ^ BATCH_SEED;
        let classes = spec.batch_classes.clone();
        let (requests, _) =
            plan::requests(mode, extent, classes, seed, warm_up_ns).map_err(load)?;
        flows.push(Flow::new(requests, endless, places));
    }
    Ok(flows)
}

fn fleet_spec(spec: &PointSpec) -> Result<FleetSpec, SimulateError> {
    let setting = &spec.setting;
    let profile = spec.fleet.profile.on_gpus(setting.gpus_per_instance)?;
    let factor = |at: usize| spec.fleet.slow_factors.get(at).copied().unwrap_or(1.0);
    Ok(FleetSpec {
        profile: profile.with(&setting.engine)?,
        slow_factors: (0..setting.instances as usize).map(factor).collect(),
        policy: match &spec.fleet.policy {
            Some(policy) => policy.clone(),
            None => policy(&setting.policy)?,
        },
        default_output_tokens: 256,
        limit_factor: 1.0,
    })
}

/// A policy that needs no settings, by its name.
fn policy(name: &str) -> Result<PolicyConfig, SimulateError> {
    let mut table = toml::Table::new();
    table.insert("kind".into(), name.into());
    let wrong =
        |error: toml::de::Error| SimulateError::PolicyName(name.into(), error.message().into());
    table.try_into().map_err(wrong)
}

#[cfg(test)]
#[path = "point_tests.rs"]
mod tests;
