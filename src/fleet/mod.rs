//! The fleet: pools, their instances, and the live owner of each pool's scheduler.

pub mod change;
pub mod credentials;
pub mod estimates;
pub mod health;
pub mod instance;
pub mod lease;
pub mod link;
mod members;
pub mod pool;
pub mod retries;
pub mod snapshot;

use std::sync::Arc;

use evenkeel_policies::ConfigError;

use crate::config::checked::Config;
use change::Changes;
use link::{Link, LinkError};
pub use members::Members;
use pool::Pool;

/// Why a fleet could not be built.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// the policy's table is not usable
    #[error("pool `{pool}`: {source}")]
    Policy {
        /// pool
        pool: String,
        /// what is wrong
        source: ConfigError,
    },
    /// certificates, keys and credentials
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// All pools, in the order of the configuration.
pub struct Fleet {
    /// pools
    pub pools: Vec<Arc<Pool>>,
    /// pools that the configuration has no more and that had requests open then
    retired: Vec<Arc<Pool>>,
}

impl Fleet {
    /// Builds every pool with its scheduler.
    pub fn new(config: &Config) -> Result<Self, FleetError> {
        Ok(Plan::of(config, None)?.carry_out(config).0)
    }

    /// All pools that have something to tell: those of the configuration, then those removed with requests open.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Pool>> {
        let retired = self.retired.iter();
        let open = retired.filter(|pool| pool.open_requests() > 0);
        self.pools.iter().chain(open)
    }

    /// A pool of the configuration by name, with its index.
    pub fn named(&self, name: &str) -> Option<(usize, &Arc<Pool>)> {
        let mut pools = self.pools.iter().enumerate();
        pools.find(|(_, pool)| *pool.name == *name)
    }

    /// A pool of the configuration by its serial number, with its index.
    pub fn by_serial(&self, serial: u64) -> Option<(usize, &Arc<Pool>)> {
        let mut pools = self.pools.iter().enumerate();
        pools.find(|(_, pool)| pool.serial == serial)
    }

    fn known(&self, name: &str) -> Option<&Arc<Pool>> {
        let mut all = self.pools.iter().chain(&self.retired);
        all.find(|pool| *pool.name == *name)
    }
}

/// The way from one fleet to the next, with everything read that could fail. Nothing has changed yet.
pub struct Plan {
    steps: Vec<Step>,
    before: Vec<Arc<Pool>>,
    retired: Vec<Arc<Pool>>,
}

enum Step {
    New(Arc<Pool>),
    Change(Arc<Pool>, Link),
}

impl Plan {
    /// Reads and checks what the fleet of `config` needs; pools of the same name as `before` go on.
    pub fn of(config: &Config, before: Option<&Fleet>) -> Result<Plan, FleetError> {
        let mut steps = Vec::with_capacity(config.pools.len());
        for (index, pool) in config.pools.iter().enumerate() {
            let wrong = |source| FleetError::Policy {
                pool: pool.name.to_string(),
                source,
            };
            pool.policy.validate().map_err(wrong)?;
            let known = before.and_then(|fleet| fleet.known(&pool.name));
            let members = known.map(|known| known.members());
            let link = Link::read(config, pool, index, members.as_ref().map(|one| &one.link))?;
            steps.push(match known {
                Some(known) => Step::Change(known.clone(), link),
                None => {
                    let pool = Pool::new(config, pool, index as u64, link);
                    Step::New(Arc::new(pool.map_err(wrong)?))
                }
            });
        }
        let (before, retired) = before.map_or_else(Default::default, |fleet| {
            (fleet.pools.clone(), fleet.retired.clone())
        });
        Ok(Plan {
            steps,
            before,
            retired,
        })
    }

    /// Makes it so.
    pub fn carry_out(self, config: &Config) -> (Fleet, Changes) {
        let mut changes = Changes::default();
        let mut pools = Vec::with_capacity(self.steps.len());
        for (step, wanted) in self.steps.into_iter().zip(&config.pools) {
            let (pool, link) = match step {
                Step::New(pool) => {
                    changes.pools_added.push(pool.name.to_string());
                    pools.push(pool);
                    continue;
                }
                Step::Change(pool, link) => (pool, link),
            };
            if !self.before.iter().any(|one| Arc::ptr_eq(one, &pool)) {
                changes.pools_added.push(pool.name.to_string());
            }
            pool.estimates.set(&config.measure);
            pool.take(wanted, link, &mut changes);
            pools.push(pool);
        }
        let is_left = |pool: &Arc<Pool>| !pools.iter().any(|one| Arc::ptr_eq(one, pool));
        let removed: Vec<Arc<Pool>> = self.before.into_iter().filter(&is_left).collect();
        let names = removed.iter().map(|pool| pool.name.to_string());
        changes.pools_removed.extend(names);
        let mut retired = self.retired;
        retired.retain(|pool| is_left(pool) && pool.open_requests() > 0);
        // those just removed all stay known: a request of the generation before may still come to them
        retired.extend(removed);
        (Fleet { pools, retired }, changes)
    }
}
