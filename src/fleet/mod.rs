//! The fleet: pools, their instances, and the live owner of each pool's scheduler.

pub mod estimates;
pub mod health;
pub mod lease;
pub mod pool;
pub mod retries;
pub mod snapshot;

use std::sync::Arc;

use evenkeel_policies::ConfigError;

use crate::config::checked::Config;
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
}

/// All pools, in the order of the configuration.
pub struct Fleet {
    /// pools
    pub pools: Vec<Arc<Pool>>,
}

impl Fleet {
    /// Builds every pool with its scheduler.
    pub fn new(config: &Config) -> Result<Self, FleetError> {
        let build = |(index, pool)| {
            Pool::new(config, pool, index)
                .map(Arc::new)
                .map_err(|source| FleetError::Policy {
                    pool: pool.name.to_string(),
                    source,
                })
        };
        let pools = config
            .pools
            .iter()
            .enumerate()
            .map(|(index, pool)| (index as u64, pool))
            .map(build);
        Ok(Self {
            pools: pools.collect::<Result<_, _>>()?,
        })
    }
}
