//! What a pool looks like at one moment, for the admin API and the metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_policies::load::InstanceState;
use evenkeel_policies::scheduler::Counters;

use super::Fleet;
use super::health::Cause;
use super::pool::Pool;
use super::retries::RetryCounts;
use crate::measure::clock::now_ns;
use crate::measure::skew::{self, LoadSkew, Spread};

/// One instance at one moment.
#[derive(Debug, Clone)]
pub struct InstanceSnapshot {
    /// name
    pub name: Arc<str>,
    /// `host:port`
    pub url: String,
    /// share of work
    pub weight: f64,
    /// free words
    pub labels: BTreeMap<String, String>,
    /// whether it takes requests
    pub state: InstanceState,
    /// how often it was taken out, by cause
    pub ejections: [u64; Cause::ALL.len()],
    /// requests it has open through us
    pub outstanding_requests: u32,
    /// prompt tokens to prefill plus predicted output tokens left
    pub outstanding_tokens: u64,
    /// outstanding tokens averaged over the time in rotation; absent before any
    pub mean_outstanding_tokens: Option<f64>,
    /// outstanding tokens × seconds in rotation
    pub token_seconds: f64,
}

/// One pool at one moment.
#[derive(Debug, Clone)]
pub struct PoolSnapshot {
    /// name
    pub name: Arc<str>,
    /// policy's name
    pub policy: Arc<str>,
    /// it is in the configuration no more, and has requests open
    pub removed: bool,
    /// instances
    pub instances: Vec<InstanceSnapshot>,
    /// requests waiting in its queue
    pub queued: usize,
    /// further tries under way, and refused for want of budget
    pub retries: RetryCounts,
    /// decisions a policy could not make by its own rule
    pub fallbacks: u64,
    /// what the scheduler counted
    pub counters: Counters,
    /// how unevenly load lies, since the start; absent with too little data
    pub load_skew: Option<LoadSkew>,
}

impl PoolSnapshot {
    /// Requests refused, by reason.
    pub fn sheds(&self) -> [(&'static str, u64); 4] {
        [
            ("queue_full", self.counters.shed_queue_full),
            ("queue_bytes", self.counters.shed_queue_bytes),
            ("queue_wait", self.counters.shed_queue_wait),
            ("no_instance", self.counters.shed_no_instance),
        ]
    }
}

/// All pools, each at one moment.
#[derive(Debug, Clone)]
pub struct FleetSnapshot {
    /// pools
    pub pools: Vec<PoolSnapshot>,
}

impl FleetSnapshot {
    /// All instances with their pools.
    pub fn instances(&self) -> impl Iterator<Item = (&PoolSnapshot, &InstanceSnapshot)> {
        self.pools
            .iter()
            .flat_map(move |pool| pool.instances.iter().map(move |instance| (pool, instance)))
    }
}

impl FleetSnapshot {
    /// The same with one entry a name: an instance that leaves while another one took its name over adds what it has
    /// open to that one.
    pub fn by_name(&self) -> FleetSnapshot {
        let mut fleet = self.clone();
        for pool in &mut fleet.pools {
            let mut merged: Vec<InstanceSnapshot> = Vec::with_capacity(pool.instances.len());
            // in service first, so that its state is what is told
            let leaves = |one: &InstanceSnapshot| one.state == InstanceState::Leaving;
            pool.instances.sort_by_key(leaves);
            for one in pool.instances.drain(..) {
                match merged.iter_mut().find(|known| known.name == one.name) {
                    Some(known) => {
                        known.outstanding_requests += one.outstanding_requests;
                        known.outstanding_tokens += one.outstanding_tokens;
                    }
                    None => merged.push(one),
                }
            }
            pool.instances = merged;
        }
        fleet
    }
}

impl Fleet {
    /// Every pool's state now.
    pub fn snapshot(&self) -> FleetSnapshot {
        let pools = self.all().enumerate();
        let of_pool = |(number, pool): (usize, &std::sync::Arc<Pool>)| PoolSnapshot {
            removed: number >= self.pools.len(),
            ..pool.snapshot()
        };
        FleetSnapshot {
            pools: pools.map(of_pool).collect(),
        }
    }
}

impl Pool {
    /// Reads the scheduler's counts under its lock.
    pub fn snapshot(&self) -> PoolSnapshot {
        let inner = self.inner.lock();
        let now = now_ns();
        let members = self.members();
        let scheduler = &inner.scheduler;
        let instances = scheduler.loads().filter_map(|(id, load, state)| {
            let instance = members.get(id)?;
            let tokens = *instance.load.lock();
            Some(InstanceSnapshot {
                name: instance.name.clone(),
                url: instance.url.to_string(),
                weight: load.weight,
                labels: instance.labels.lock().clone(),
                state,
                ejections: inner.health.ejections(id),
                outstanding_requests: load.requests,
                outstanding_tokens: load.outstanding_tokens(),
                mean_outstanding_tokens: tokens.mean_tokens(now),
                token_seconds: tokens.token_seconds(now),
            })
        });
        let instances: Vec<InstanceSnapshot> = instances.collect();
        PoolSnapshot {
            name: self.name.clone(),
            policy: members.policy.clone(),
            removed: false,
            load_skew: load_skew(&instances, &inner.token_seconds),
            instances,
            queued: scheduler.queue_len(),
            retries: self.retries.counts(),
            fallbacks: scheduler.fallbacks(),
            counters: *scheduler.counters(),
        }
    }
}

fn load_skew(instances: &[InstanceSnapshot], requests: &Spread) -> Option<LoadSkew> {
    let in_rotation = instances.iter().filter_map(|instance| {
        Some(skew::InstanceLoad {
            mean_tokens: instance.mean_outstanding_tokens?,
            weight: instance.weight,
        })
    });
    skew::load_skew(&in_rotation.collect::<Vec<_>>(), requests)
}
