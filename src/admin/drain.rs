//! `POST /api/pools/POOL/instances/INSTANCE/drain` and `…/undrain`: an instance ends what it has and takes nothing new.

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::fleet::Fleet;
use crate::fleet::pool::{Instance, Pool};

/// What is asked of one instance.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    pool: String,
    instance: String,
    drained: bool,
}

impl Change {
    /// Reads a path; `None` if it is none of these.
    pub fn parse(path: &str) -> Option<Change> {
        let rest = path.strip_prefix("/api/pools/")?;
        let mut parts = rest.split('/');
        let mut next = || {
            Some(
                percent_decode_str(parts.next()?)
                    .decode_utf8_lossy()
                    .into_owned(),
            )
        };
        let (pool, kind, instance, verb) = (next()?, next()?, next()?, next()?);
        let drained = match verb.as_str() {
            "drain" => true,
            "undrain" => false,
            _ => return None,
        };
        (kind == "instances" && next().is_none()).then_some(Change {
            pool,
            instance,
            drained,
        })
    }

    /// Makes the change; the instance's state afterwards, or which name is not known.
    pub fn apply(&self, fleet: &Fleet) -> Result<Value, String> {
        let pool = fleet.pools.iter().find(|pool| *pool.name == *self.pool);
        let pool = pool.ok_or_else(|| {
            let names = fleet.pools.iter().map(|pool| &*pool.name);
            unknown("pool", &self.pool, names)
        })?;
        let instance = pool
            .instances
            .iter()
            .find(|one| *one.name == *self.instance);
        let instance = instance.ok_or_else(|| {
            let names = pool.instances.iter().map(|one| &*one.name);
            unknown("instance", &self.instance, names)
        })?;
        pool.drain(instance.id, self.drained);
        tracing::info!(pool = %pool.name, instance = %instance.name, drained = self.drained, "an operator changed an instance");
        Ok(state(pool, instance))
    }
}

fn state(pool: &Pool, instance: &Instance) -> Value {
    let snapshot = pool.snapshot();
    let now = snapshot
        .instances
        .iter()
        .find(|one| one.name == instance.name);
    json!({
        "pool": &*pool.name,
        "instance": &*instance.name,
        "health": now.map(|now| super::fleet::health(now.state)),
        "outstanding_requests": now.map(|now| now.outstanding_requests),
    })
}

fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let name: String = name.chars().take(64).collect();
    format!(
        "no {what} is called {name:?}; there are {}",
        known.join(", ")
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_pool_instance_and_verb() {
        let change = Change::parse("/api/pools/a%20b/instances/10.0.0.1:8000/drain");
        let change = change.unwrap();
        assert_eq!(
            (change.pool.as_str(), change.instance.as_str()),
            ("a b", "10.0.0.1:8000")
        );
        assert!(change.drained);
        assert!(
            !Change::parse("/api/pools/p/instances/i/undrain")
                .unwrap()
                .drained
        );
        for path in [
            "/api/pools/p/instances/i",
            "/api/pools/p/instances/i/kill",
            "/api/pools/p/things/i/drain",
            "/api/pools/p/instances/i/drain/more",
            "/api/fleet",
        ] {
            assert_eq!(Change::parse(path), None, "{path}");
        }
    }
}
