//! What a pool looks like at one moment, for the admin API and the metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_policies::load::InstanceState;
use evenkeel_policies::scheduler::Counters;

use super::Fleet;
use super::pool::Pool;

/// One instance at one moment.
#[derive(Debug, Clone)]
pub struct InstanceSnapshot {
    /// name
    pub name: Arc<str>,
    /// `host:port`
    pub authority: String,
    /// share of work
    pub weight: f64,
    /// free words
    pub labels: BTreeMap<String, String>,
    /// whether it takes requests
    pub state: InstanceState,
    /// requests it has open through us
    pub outstanding_requests: u32,
    /// prompt tokens to prefill plus predicted output tokens left
    pub outstanding_tokens: u64,
}

/// One pool at one moment.
#[derive(Debug, Clone)]
pub struct PoolSnapshot {
    /// name
    pub name: Arc<str>,
    /// policy's name
    pub policy: Arc<str>,
    /// instances
    pub instances: Vec<InstanceSnapshot>,
    /// requests waiting in its queue
    pub queued: usize,
    /// decisions a policy could not make by its own rule
    pub fallbacks: u64,
    /// what the scheduler counted
    pub counters: Counters,
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

impl Fleet {
    /// Every pool's state now.
    pub fn snapshot(&self) -> FleetSnapshot {
        FleetSnapshot {
            pools: self.pools.iter().map(|pool| pool.snapshot()).collect(),
        }
    }
}

impl Pool {
    /// Reads the scheduler's counts under its lock.
    pub fn snapshot(&self) -> PoolSnapshot {
        let inner = self.inner.lock();
        let scheduler = &inner.scheduler;
        let instances = scheduler.loads().filter_map(|(id, load, state)| {
            let instance = self.instances.get(id.0 as usize)?;
            Some(InstanceSnapshot {
                name: instance.name.clone(),
                authority: instance.url.authority.clone(),
                weight: instance.weight,
                labels: instance.labels.clone(),
                state,
                outstanding_requests: load.requests,
                outstanding_tokens: load.outstanding_tokens(),
            })
        });
        PoolSnapshot {
            name: self.name.clone(),
            policy: self.policy.clone(),
            instances: instances.collect(),
            queued: scheduler.queue_len(),
            fallbacks: scheduler.fallbacks(),
            counters: *scheduler.counters(),
        }
    }
}
