//! From a plan to its points, in an order in which one variable changes at a time. Pure.
//!
//! Every list is run through forwards and backwards in turn, so that each point differs from the one before it in a
//! single variable, within a scenario and a repetition. Repetitions are the outermost, so that a drift of the machine
//! meets each point at two places. The grid of n instances is n times the grid: loads are equal for an instance.

use super::plan::{Plan, ScenarioPlan};
use crate::splitmix::mix;
use crate::study::{Load, Scaling, Setting};

/// JSON readers keep integers of 53 bits.
const SEED_BITS: u32 = 53;

/// Name of what is no variant.
pub const BASE: &str = "base";

/// A size of the fleet, and the curve it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    scaling: Scaling,
    instances: u32,
    gpus_per_instance: u32,
}

/// All settings but those of variants.
pub fn base(plan: &Plan) -> Vec<Setting> {
    let repeats: Vec<u32> = (0..plan.repeats).collect();
    let sizes = sizes(plan);
    snake(&repeats, |repeat| {
        snake(&plan.policies, |policy| {
            snake(&sizes, |size| {
                snake(&plan.scenarios, |scenario| {
                    of_scenario(plan, scenario, *size, policy, *repeat)
                })
            })
        })
    })
}

/// Down the vertical curve to the point that both have, then up the horizontal one.
fn sizes(plan: &Plan) -> Vec<Size> {
    let size = |scaling, instances, gpus_per_instance| Size {
        scaling,
        instances,
        gpus_per_instance,
    };
    let (instances, gpus) = (&plan.instances, &plan.gpus_per_instance);
    let (first_instances, first_gpus) = (
        instances.first().copied().unwrap_or(1),
        gpus.first().copied().unwrap_or(1),
    );
    let vertical = gpus.iter().skip(1).rev();
    let vertical = vertical.map(|gpus| size(Scaling::Vertical, first_instances, *gpus));
    let horizontal = instances.iter();
    let horizontal = horizontal.map(|count| size(Scaling::Horizontal, *count, first_gpus));
    vertical.chain(horizontal).collect()
}

fn of_scenario(
    plan: &Plan,
    scenario: &ScenarioPlan,
    size: Size,
    policy: &str,
    repeat: u32,
) -> Vec<Setting> {
    // The online load alone is what the mixed one is held against.
    let batches: Vec<Option<u32>> = match &scenario.batch {
        Some(batch) => vec![None, Some(batch.concurrency)],
        None => vec![None],
    };
    snake(&scenario.lengths, |lengths| {
        snake(&scenario.loads, |load| {
            let setting = |batch: &Option<u32>| {
                let mut setting = Setting {
                    scenario: scenario.scenario,
                    scaling: size.scaling,
                    instances: size.instances,
                    gpus_per_instance: size.gpus_per_instance,
                    load: times(*load, size.instances),
                    load_per_instance: load.amount(),
                    lengths: lengths.clone(),
                    policy: policy.to_owned(),
                    repeat,
                    seed: 0,
                    variant: BASE.to_owned(),
                    engine: plan.engine.clone(),
                    batch_concurrency: batch.map(|places| places.saturating_mul(size.instances)),
                    labels: plan.labels.clone(),
                };
                setting.seed = seed(plan, &setting);
                setting
            };
            batches.iter().map(setting).collect()
        })
    })
}

/// The load of so many instances.
pub fn times(load: Load, instances: u32) -> Load {
    match load {
        Load::Closed { concurrency } => Load::Closed {
            concurrency: concurrency.saturating_mul(instances),
        },
        Load::Poisson { rate_per_s } => Load::Poisson {
            rate_per_s: rate_per_s * f64::from(instances),
        },
        Load::Batch { requests } => Load::Batch {
            requests: requests.saturating_mul(instances),
        },
    }
}

/// Points that differ in the fleet alone get the same requests. Where instances keep their caches from one point to
/// the next, no two points do: a prompt that came before would be answered from the cache.
pub fn seed(plan: &Plan, setting: &Setting) -> u64 {
    let mut what = format!(
        "{}/{}/{}/{}",
        setting.scenario.name(),
        setting.lengths,
        setting.load_per_instance,
        setting.repeat
    );
    if !plan.starts_afresh() {
        what = setting.id();
    }
    let fold = |hash, byte: u8| mix(hash ^ u64::from(byte));
    what.bytes().fold(mix(plan.seed), fold) >> (u64::BITS - SEED_BITS)
}

/// `inner` of each of `outer`, every second one backwards.
fn snake<A, T>(outer: &[A], inner: impl Fn(&A) -> Vec<T>) -> Vec<T> {
    let mut all = Vec::new();
    for (at, one) in outer.iter().enumerate() {
        let mut list = inner(one);
        if at % 2 == 1 {
            list.reverse();
        }
        all.extend(list);
    }
    all
}
