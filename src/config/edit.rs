//! Changes of a running configuration by one instance, as the admin API asks for them. The file knows nothing of them:
//! the next reload makes the pools again what it says.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::checked::{Config, Instance, Pool};
use super::pools;
use super::url;

/// An instance to be added.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewInstance {
    /// base URL
    pub url: String,
    /// unique in the pool; absent: host:port
    pub name: Option<String>,
    /// share of work
    #[serde(default = "one")]
    pub weight: f64,
    /// free words
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

fn one() -> f64 {
    1.0
}

impl NewInstance {
    /// Its name, given or not.
    pub fn name(&self) -> String {
        let by_url = || url::parse(&self.url).map(|url| pools::default_name(&url));
        let given = self.name.clone().map(Ok);
        given.unwrap_or_else(by_url).unwrap_or_default()
    }
}

/// Why a configuration cannot be changed so.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// no such pool
    #[error("there is no pool `{0}`")]
    NoPool(String),
    /// no such instance
    #[error("pool `{pool}` has no instance `{instance}`")]
    NoInstance {
        /// pool
        pool: String,
        /// instance
        instance: String,
    },
    /// the last one
    #[error(
        "`{0}` is the last instance of its pool: drain it, or take the pool out of the configuration file"
    )]
    LastInstance(String),
    /// the pool has it already
    #[error("pool `{pool}` has an instance with this {what} already: `{instance}`")]
    Taken {
        /// pool
        pool: String,
        /// name or URL
        what: &'static str,
        /// the one that has it
        instance: String,
    },
    /// a value cannot be used
    #[error("`{key}` cannot be {value}: {right}")]
    Value {
        /// key
        key: &'static str,
        /// as it was given
        value: String,
        /// what would be right
        right: String,
    },
}

impl Config {
    /// The same with one more instance.
    pub fn with_instance(&self, pool: &str, new: NewInstance) -> Result<Config, EditError> {
        let mut config = self.clone();
        let pool = config.pool_mut(pool)?;
        let instance = checked(new)?;
        for known in &pool.instances {
            let what = match () {
                () if known.name == instance.name => "name",
                () if known.url == instance.url => "url",
                () => continue,
            };
            return Err(EditError::Taken {
                pool: pool.name.to_string(),
                what,
                instance: known.name.to_string(),
            });
        }
        pool.instances.push(instance);
        Ok(config)
    }

    /// The same without an instance.
    pub fn without_instance(&self, pool: &str, instance: &str) -> Result<Config, EditError> {
        let mut config = self.clone();
        let pool = config.pool_mut(pool)?;
        let at = pool.instances.iter().position(|one| *one.name == *instance);
        let Some(at) = at else {
            return Err(EditError::NoInstance {
                pool: pool.name.to_string(),
                instance: instance.to_owned(),
            });
        };
        if pool.instances.len() == 1 {
            return Err(EditError::LastInstance(instance.to_owned()));
        }
        pool.instances.remove(at);
        Ok(config)
    }

    fn pool_mut(&mut self, name: &str) -> Result<&mut Pool, EditError> {
        let mut pools = self.pools.iter_mut();
        let pool = pools.find(|pool| *pool.name == *name);
        pool.ok_or_else(|| EditError::NoPool(name.to_owned()))
    }
}

fn checked(new: NewInstance) -> Result<Instance, EditError> {
    let wrong = |key, value: String, right: String| EditError::Value { key, value, right };
    let url = url::parse(&new.url)
        .map_err(|(_, right)| wrong("url", format!("\"{}\"", new.url.escape_debug()), right))?;
    if !(new.weight > 0.0 && new.weight.is_finite()) {
        let right = "write a number above 0".to_owned();
        return Err(wrong("weight", new.weight.to_string(), right));
    }
    let name = new.name();
    if let Some(right) = pools::name_fault(&name) {
        let value = format!("\"{}\"", name.escape_debug());
        return Err(wrong("name", value, right.to_owned()));
    }
    Ok(Instance {
        name: Arc::from(name),
        url,
        weight: new.weight,
        labels: new.labels,
    })
}
