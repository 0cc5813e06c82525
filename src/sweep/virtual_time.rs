//! A point in virtual time: the engine's model and the scheduler, without sockets and without waiting.

use super::SweepError;
use super::plan::{Plan, Point, Simulated};
use super::sent::{self, Ran, Sent};
use crate::bench::options::BenchArgs;
use crate::bench::plan::Extent;
use crate::bench::settings::Settings;
use crate::load::runner::RunResult;
use crate::simulate::{self, PointSpec, run_point};
use crate::study::Load;

/// Runs a point. The same plan gives the same result.
pub fn run(plan: &Plan, fleet: &Simulated, point: &Point) -> Result<Ran, SweepError> {
    let setting = &point.setting;
    let id_prefix = format!("{}-", point.id);
    let mut on = simulate::Fleet::new(fleet.profile.clone());
    on.slow_factors.clone_from(&fleet.slow_factors);
    on.policy = plan.policy_settings.get(&setting.policy).cloned();
    let spec = PointSpec {
        setting: setting.clone(),
        fleet: on,
        classes: plan.classes(&setting.lengths).to_vec(),
        batch_classes: plan.classes(plan.batch_lengths(setting.scenario)).to_vec(),
        arrivals: None,
        extent: match setting.load {
            Load::Batch { requests } => Extent::Requests(requests),
            load => Extent::Seconds(plan.measured_s(load).unwrap_or_default()),
        },
        warm_up_s: plan.warm_up_s(setting.load),
        trim_s: plan.trim_s(setting.load),
        look_every_s: plan.timing.look_every_s,
        id_prefix: id_prefix.clone(),
    };
    let ran = run_point(&spec)?;
    let online = sent::online(plan, point, &id_prefix)?;
    let batch = sent::batch(plan, point, &id_prefix)?;
    let batch_lengths = plan.batch_lengths(setting.scenario);
    Ok(Ran {
        online: sent(plan, online, &setting.lengths, ran.run)?,
        batch: batch
            .zip(ran.batch)
            .map(|(args, run)| sent(plan, args, batch_lengths, run))
            .transpose()?,
        readings: ran.readings,
        records: Some(ran.records),
        notes: Vec::new(),
    })
}

fn sent(plan: &Plan, args: BenchArgs, lengths: &str, run: RunResult) -> Result<Sent, SweepError> {
    let settings = Settings::unaddressed(&args)?;
    Ok(Sent {
        settings: sent::with_lengths(plan, settings, lengths),
        args,
        run,
        started_wall_ns: 0,
    })
}
