//! The usual loads of a scenario, for a plan that names a preset in their place. Pure.

use super::plan::{Batch, ScenarioPlan};
use super::raw::{Mixed, Offline, Online, Plan, Preset};
use crate::study::{Load, Scenario};

/// From few users to many more than one instance is made for.
const ONLINE_USERS: [u32; 6] = [100, 200, 400, 600, 800, 1_000];
/// Enough that the time of filling and of emptying the instance is a small part.
const OFFLINE_REQUESTS: u32 = 1_000;
/// An online load that leaves room for a batch to be felt.
const MIXED_USERS: u32 = 64;
const BATCH_PLACES: u32 = 16;

/// The scenarios of the plan, with its preset filled in; those that were left without a load are in the second list.
pub fn scenarios(plan: &mut Plan) -> (Vec<ScenarioPlan>, Vec<Scenario>) {
    let preset = |which| (plan.preset == Some(which)).then_some(());
    let online = plan.online.take();
    let online = online.or_else(|| preset(Preset::Online).map(|()| Online::default()));
    let offline = plan.offline.take();
    let offline = offline.or_else(|| preset(Preset::Offline).map(|()| Offline::default()));
    let mixed = plan.mixed.take();
    let mixed = mixed.or_else(|| preset(Preset::Mixed).map(|()| Mixed::default()));
    let all = [
        online.map(|one| of_online(one, plan.preset)),
        offline.map(|one| of_offline(one, plan.preset)),
        mixed.map(|one| of_mixed(one, plan.preset)),
    ];
    let (with, without): (Vec<_>, Vec<_>) = all
        .into_iter()
        .flatten()
        .partition(|one| !one.loads.is_empty());
    (with, without.iter().map(|one| one.scenario).collect())
}

fn of_online(mut online: Online, preset: Option<Preset>) -> ScenarioPlan {
    let empty = online.concurrency.is_empty() && online.rate_per_s.is_empty();
    if empty && preset == Some(Preset::Online) {
        online.concurrency = ONLINE_USERS.to_vec();
    }
    ScenarioPlan {
        scenario: Scenario::Online,
        loads: loads(&online.concurrency, &online.rate_per_s),
        lengths: or_mix(online.lengths),
        batch: None,
    }
}

fn of_offline(mut offline: Offline, preset: Option<Preset>) -> ScenarioPlan {
    if offline.batch_requests.is_empty() && preset == Some(Preset::Offline) {
        offline.batch_requests = vec![OFFLINE_REQUESTS];
    }
    let batch = |requests: &u32| Load::Batch {
        requests: *requests,
    };
    ScenarioPlan {
        scenario: Scenario::Offline,
        loads: offline.batch_requests.iter().map(batch).collect(),
        lengths: or_mix(offline.lengths),
        batch: None,
    }
}

fn of_mixed(mut mixed: Mixed, preset: Option<Preset>) -> ScenarioPlan {
    let empty = mixed.concurrency.is_empty() && mixed.rate_per_s.is_empty();
    if empty && preset == Some(Preset::Mixed) {
        mixed.concurrency = vec![MIXED_USERS];
    }
    ScenarioPlan {
        scenario: Scenario::Mixed,
        loads: loads(&mixed.concurrency, &mixed.rate_per_s),
        lengths: or_mix(mixed.lengths),
        batch: Some(Batch {
            concurrency: mixed.batch_concurrency.unwrap_or(BATCH_PLACES),
            lengths: mixed.batch_lengths.unwrap_or_else(|| "long".to_owned()),
        }),
    }
}

fn loads(concurrency: &[u32], rate_per_s: &[f64]) -> Vec<Load> {
    let closed = concurrency.iter().map(|concurrency| Load::Closed {
        concurrency: *concurrency,
    });
    let poisson = rate_per_s.iter().map(|rate_per_s| Load::Poisson {
        rate_per_s: *rate_per_s,
    });
    closed.chain(poisson).collect()
}

fn or_mix(lengths: Vec<String>) -> Vec<String> {
    match lengths.is_empty() {
        true => vec!["mix".to_owned()],
        false => lengths,
    }
}
