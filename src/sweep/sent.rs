//! A load of a point: as `evenkeel bench` would have been told to send it, and what came of it.

use super::plan::{Api, Fleet, Plan, Point};
use crate::bench::BenchError;
use crate::bench::options::{Backend, BenchArgs};
use crate::bench::settings::Settings;
use crate::load::runner::RunResult;
use crate::measure::record::Record;
use crate::simulate::point::BATCH_SEED;
use crate::study::Load;
use crate::study::monitor::Reading;

/// A load that was sent.
#[derive(Debug)]
pub struct Sent {
    /// as bench would have been told
    pub args: BenchArgs,
    /// what that came to
    pub settings: Settings,
    /// what was seen
    pub run: RunResult,
    /// wall time of its start, nanoseconds after 1970; 0 in virtual time
    pub started_wall_ns: u64,
}

/// A point that was run.
#[derive(Debug)]
pub struct Ran {
    /// the load
    pub online: Sent,
    /// the batch beside it
    pub batch: Option<Sent>,
    /// what the monitor saw
    pub readings: Vec<Reading>,
    /// the proxy's records; absent where they are not known
    pub records: Option<Vec<Record>>,
    /// for people to read
    pub notes: Vec<String>,
}

/// Options of the point's load; ids of requests begin with `id_prefix`.
pub fn online(plan: &Plan, point: &Point, id_prefix: &str) -> Result<BenchArgs, BenchError> {
    let load = point.setting.load;
    let mut args = common(plan, point, id_prefix)?;
    match load {
        Load::Closed { concurrency } => args.max_concurrency = Some(concurrency),
        Load::Poisson { rate_per_s } => args.request_rate = rate_per_s,
        Load::Batch { requests } => args.num_prompts = Some(requests),
    }
    args.duration = plan.measured_s(load);
    args.trim_s = plan.trim_s(load);
    Ok(args)
}

/// Options of the batch beside the load, if there is one.
pub fn batch(plan: &Plan, point: &Point, id_prefix: &str) -> Result<Option<BenchArgs>, BenchError> {
    let Some(places) = point.setting.batch_concurrency else {
        return Ok(None);
    };
    let mut args = common(plan, point, &format!("{id_prefix}batch-"))?;
    args.max_concurrency = Some(places);
    args.duration = plan.measured_s(point.setting.load);
    args.trim_s = Some(0.0);
    args.seed ^= BATCH_SEED;
    Ok(Some(args))
}

fn common(plan: &Plan, point: &Point, id_prefix: &str) -> Result<BenchArgs, BenchError> {
    let mut args = BenchArgs::usual()?;
    args.seed = point.setting.seed;
    args.warmup_s = plan.warm_up_s(point.setting.load);
    args.goodput.clone_from(&plan.objectives);
    args.request_id_prefix = Some(id_prefix.to_owned());
    args.label = Some(point.id.clone());
    args.save_detailed = true;
    match &plan.fleet {
        Fleet::Simulated(fleet) => {
            args.backend = Backend::OpenaiChat;
            args.model = Some(fleet.profile.name.clone());
            args.ignore_eos = true;
        }
        Fleet::Live(live) => {
            args.backend = match live.api {
                Api::Chat => Backend::OpenaiChat,
                Api::Completions => Backend::Openai,
            };
            args.base_url = Some(live.base_url.clone());
            args.model.clone_from(&live.model);
            args.api_key_env.clone_from(&live.api_key_env);
            args.ignore_eos = live.ignore_eos;
            args.request_timeout_s = live.request_timeout_s;
        }
    }
    Ok(args)
}

/// Gives settings the classes of a set of lengths.
pub fn with_lengths(plan: &Plan, mut settings: Settings, lengths: &str) -> Settings {
    settings.classes = plan.classes(lengths).to_vec();
    settings.mix_assumed = plan.length_sets.get(lengths).is_some_and(|set| set.assumed);
    settings
}
