//! Who belongs to a pool at one moment, and by which rules it goes: read without a lock, changed as a whole.

use std::sync::Arc;

use evenkeel_policies::scheduler::{InstanceId, Scheduler};

use super::instance::Instance;
use super::link::Link;
use crate::config::checked::{self, Health as HealthRules};

/// One state of a pool. It is exchanged only under the lock of the pool's scheduler, so that both agree there.
#[derive(Clone)]
pub struct Members {
    /// instances in service, by id
    pub instances: Vec<Arc<Instance>>,
    /// instances that were taken out of the pool and have requests open
    pub leaving: Vec<Arc<Instance>>,
    /// policy's name
    pub policy: Arc<str>,
    /// lanes by index
    pub lanes: Vec<Arc<str>>,
    /// when instances are taken out, and how they come back
    pub health: HealthRules,
    /// how instances are spoken to
    pub link: Link,
}

impl Members {
    /// An instance by id, in service or leaving.
    pub fn get(&self, id: InstanceId) -> Option<&Arc<Instance>> {
        let at = self.instances.binary_search_by_key(&id, |one| one.id);
        match at {
            Ok(at) => self.instances.get(at),
            Err(_) => self.leaving.iter().find(|one| one.id == id),
        }
    }

    /// An instance in service by name.
    pub fn named(&self, name: &str) -> Option<&Arc<Instance>> {
        self.instances.iter().find(|one| *one.name == *name)
    }

    /// The instance that a configuration means, in service or leaving.
    pub(super) fn same(&self, config: &checked::Instance) -> Option<&Arc<Instance>> {
        let all = self.instances.iter().chain(&self.leaving);
        all.into_iter().find(|one| one.is(config))
    }

    /// Whether an instance is in service.
    pub fn serves(&self, id: InstanceId) -> bool {
        self.instances
            .binary_search_by_key(&id, |one| one.id)
            .is_ok()
    }
}

/// The policy's name and its lanes' names.
pub(super) fn policy_names(scheduler: &Scheduler) -> (Arc<str>, Vec<Arc<str>>) {
    let lanes = scheduler.lanes().iter();
    let lanes = lanes.map(|lane| lane.as_str().into()).collect();
    (scheduler.policy_name().into(), lanes)
}
