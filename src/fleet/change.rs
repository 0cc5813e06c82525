//! A pool takes another configuration while it serves: instances join, change and leave, another policy takes over.
//! Nothing that is open is touched, and nobody who waits is sent away for it.

use std::sync::Arc;

use evenkeel_policies::scheduler::InstanceId;

use super::instance::Instance;
use super::link::Link;
use super::members::{Members, policy_names};
use super::pool::{Inner, Pool, ns};
use crate::config::checked;
use crate::measure::clock::Ns;

/// What a change of configuration did.
#[derive(Debug, Default, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Changes {
    /// pools that are new
    pub pools_added: Vec<String>,
    /// pools that are gone; requests they have open go on
    pub pools_removed: Vec<String>,
    /// pools whose policy is another
    pub policies_changed: Vec<String>,
    /// instances that joined, as `pool/instance`
    pub instances_added: Vec<String>,
    /// instances that left; requests they have open go on
    pub instances_removed: Vec<String>,
    /// instances with another weight or other labels
    pub instances_changed: Vec<String>,
}

impl Pool {
    /// Takes the configuration `wanted`. Instances with the same name and URL are the same, counts and all; one that
    /// has not left yet comes back.
    pub(super) fn take(
        self: &Arc<Self>,
        wanted: &checked::Pool,
        link: Link,
        changes: &mut Changes,
    ) {
        self.with(|inner, now| {
            let before = self.members.load_full();
            let (policy, lanes) = self.follow(inner, now, wanted, &before, changes);
            inner.slow_start_ns = ns(wanted.health.slow_start);
            inner.health.set_rules(&wanted.health);
            // first who comes, then who goes: whoever waits always has somebody to wait for
            let mut instances = Vec::with_capacity(wanted.instances.len());
            for one in &wanted.instances {
                instances.push(self.join(inner, now, one, &before, changes));
            }
            instances.sort_by_key(|one| one.id);
            let stays = |id| instances.binary_search_by_key(&id, |one| one.id).is_ok();
            let gone = before.instances.iter().filter(|one| !stays(one.id));
            let gone: Vec<Arc<Instance>> = gone.cloned().collect();
            let mut leaving = before.leaving.clone();
            leaving.retain(|one| !stays(one.id));
            leaving.extend(gone.iter().cloned());
            self.members.store(Arc::new(Members {
                instances,
                leaving,
                policy,
                lanes,
                health: wanted.health.clone(),
                link,
            }));
            for one in &gone {
                inner.health.remove(one.id);
            }
            self.judge(inner, now);
            for one in &gone {
                self.leave(inner, now, one, changes);
            }
        });
    }

    fn join(
        &self,
        inner: &mut Inner,
        now: Ns,
        wanted: &checked::Instance,
        before: &Members,
        changes: &mut Changes,
    ) -> Arc<Instance> {
        let name = || format!("{}/{}", self.name, wanted.name);
        if let Some(known) = before.same(wanted).filter(|one| before.serves(one.id)) {
            if inner.change(now, known, wanted) {
                changes.instances_changed.push(name());
            }
            return known.clone();
        }
        changes.instances_added.push(name());
        let instance = before.same(wanted).cloned().unwrap_or_else(|| {
            let id = InstanceId(inner.next_id);
            inner.next_id += 1;
            Arc::new(Instance::new(id, wanted, now))
        });
        instance.labels.lock().clone_from(&wanted.labels);
        instance.load.lock().set_in_rotation(now, true);
        let id = instance.id;
        instance.forget_heard();
        inner.health.add(id);
        inner
            .scheduler
            .add_instance(now, id, wanted.weight, &mut inner.actions);
        inner.scheduler.slow_start(now, id, inner.slow_start_ns);
        instance
    }

    fn leave(&self, inner: &mut Inner, now: Ns, gone: &Instance, changes: &mut Changes) {
        let name = format!("{}/{}", self.name, gone.name);
        changes.instances_removed.push(name);
        gone.load.lock().set_in_rotation(now, false);
        inner
            .scheduler
            .remove_instance(now, gone.id, &mut inner.actions);
        self.forget_if_left(inner, gone.id);
    }

    /// Lets another policy choose, if it is another. First of all: what is granted from then on is named by its lanes.
    fn follow(
        &self,
        inner: &mut Inner,
        now: Ns,
        wanted: &checked::Pool,
        before: &Members,
        changes: &mut Changes,
    ) -> (Arc<str>, Vec<Arc<str>>) {
        let kept = (before.policy.clone(), before.lanes.clone());
        if inner.policy == wanted.policy {
            return kept;
        }
        let actions = &mut inner.actions;
        let taken = inner.scheduler.set_policy(now, &wanted.policy, actions);
        if let Err(error) = taken {
            // cannot be: a checked configuration holds no such policy
            tracing::error!(pool = %self.name, %error, "the old policy stays");
            return kept;
        }
        changes.policies_changed.push(self.name.to_string());
        inner.policy = wanted.policy.clone();
        policy_names(&inner.scheduler)
    }

    /// Drops an instance that was removed and has nothing open any more.
    pub(super) fn forget_if_left(&self, inner: &Inner, id: InstanceId) {
        if inner.scheduler.load(id).is_some() {
            return;
        }
        let mut members = Members::clone(&self.members.load());
        members.leaving.retain(|one| one.id != id);
        self.members.store(Arc::new(members));
    }

    /// Lets an instance end what it has and take nothing new, or come back. False if there is no such instance.
    pub fn drain(self: &Arc<Self>, name: &str, drained: bool) -> bool {
        self.with(|inner, now| {
            let Some(id) = self.members.load().named(name).map(|one| one.id) else {
                return false;
            };
            inner.health.drain(id, drained);
            self.judge(inner, now);
            true
        })
    }
}

impl Inner {
    /// Takes what may change of an instance; tells whether something did.
    fn change(&mut self, now: Ns, instance: &Instance, wanted: &checked::Instance) -> bool {
        let weight = self.scheduler.load(instance.id).map(|load| load.weight);
        let other_weight = weight != Some(wanted.weight);
        if other_weight {
            self.scheduler.set_weight(now, instance.id, wanted.weight);
        }
        let mut labels = instance.labels.lock();
        let other_labels = *labels != wanted.labels;
        labels.clone_from(&wanted.labels);
        other_weight || other_labels
    }
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
