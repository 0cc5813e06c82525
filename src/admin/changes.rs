//! What changes something, by POST:
//!
//! | path | what happens |
//! | --- | --- |
//! | `/api/reload` | the configuration file is read again: all of it is taken, or nothing |
//! | `/api/pools/POOL/instances` | the instance in the body (`url`, and `name`, `weight`, `labels`) joins the pool |
//! | `/api/pools/POOL/instances/INSTANCE/drain` | it ends what it has and takes nothing new |
//! | `…/undrain` | it is back, into its slow start |
//! | `…/remove` | it leaves the pool; what it has open goes on to its end |
//!
//! What joins and leaves here is in no file: a reload makes the pools what the file says. What is drained stays so.

use http::StatusCode;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::config::ConfigErrors;
use crate::config::edit::{EditError, NewInstance};
use crate::config::error::Report;
use crate::fleet::pool::Pool;
use crate::proxy::core::Shared;
use crate::proxy::generation::Generation;
use crate::proxy::reload::{NotTaken, Taken};

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// the file is to be read again
    Reload,
    /// an instance is to join a pool
    Add {
        /// pool
        pool: String,
    },
    /// something is asked of one instance
    Instance {
        /// pool
        pool: String,
        /// instance
        instance: String,
        /// what
        verb: Verb,
    },
}

/// What may be asked of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// end what it has, take nothing new
    Drain,
    /// take requests again
    Undrain,
    /// leave the pool
    Remove,
}

/// A status and a body.
pub type Told = (StatusCode, Value);

impl Change {
    /// Reads a path; `None` if it is none of these.
    pub fn parse(path: &str) -> Option<Change> {
        if path == "/api/reload" {
            return Some(Change::Reload);
        }
        let rest = path.strip_prefix("/api/pools/")?;
        let words: Option<Vec<String>> = rest.split('/').map(decoded).collect();
        match words?.as_slice() {
            [pool, kind] if kind == "instances" => Some(Change::Add { pool: pool.clone() }),
            [pool, kind, instance, verb] if kind == "instances" => Some(Change::Instance {
                pool: pool.clone(),
                instance: instance.clone(),
                verb: match verb.as_str() {
                    "drain" => Verb::Drain,
                    "undrain" => Verb::Undrain,
                    "remove" => Verb::Remove,
                    _ => return None,
                },
            }),
            _ => None,
        }
    }

    /// Makes the change, and says what is now, or why it was not made.
    pub fn apply(&self, shared: &Shared, body: &[u8]) -> Told {
        let told = match self {
            Change::Reload => shared
                .reload("the admin API")
                .map(|taken| reloaded(&taken))
                .map_err(|error| refused(&error)),
            Change::Add { pool } => add(shared, pool, body),
            Change::Instance {
                pool,
                instance,
                verb: Verb::Remove,
            } => remove(shared, pool, instance),
            Change::Instance {
                pool,
                instance,
                verb,
            } => drain(shared, pool, instance, *verb == Verb::Drain),
        };
        match told {
            Ok(body) => (StatusCode::OK, body),
            Err(told) => told,
        }
    }
}

fn decoded(word: &str) -> Option<String> {
    let word = percent_decode_str(word).decode_utf8().ok()?;
    Some(word.into_owned())
}

fn add(shared: &Shared, pool: &str, body: &[u8]) -> Result<Value, Told> {
    let new: NewInstance = serde_json::from_slice(body).map_err(|error| {
        let message = format!(
            "the body is no instance ({error}); write one like {{\"url\": \"http://10.0.0.3:8000\"}}, with name, weight \
             and labels if you like"
        );
        (StatusCode::BAD_REQUEST, error_body(&message))
    })?;
    let name = new.name();
    let taken = shared.edit(|config| config.with_instance(pool, new));
    taken.map_err(|error| refused(&error))?;
    state(&shared.generation(), pool, &name)
}

fn remove(shared: &Shared, pool: &str, instance: &str) -> Result<Value, Told> {
    let generation = shared.generation();
    known(&generation, pool, instance)?;
    let taken = shared.edit(|config| config.without_instance(pool, instance));
    taken.map_err(|error| refused(&error))?;
    state(&shared.generation(), pool, instance)
}

fn drain(shared: &Shared, pool: &str, instance: &str, drained: bool) -> Result<Value, Told> {
    let generation = shared.generation();
    let pool_now = known(&generation, pool, instance)?;
    pool_now.drain(instance, drained);
    tracing::info!(pool, instance, drained, "an operator changed an instance");
    state(&generation, pool, instance)
}

fn known<'g>(
    generation: &'g Generation,
    pool: &str,
    instance: &str,
) -> Result<&'g std::sync::Arc<Pool>, Told> {
    let fleet = &generation.fleet;
    let Some((_, found)) = fleet.named(pool) else {
        let names = fleet.pools.iter().map(|pool| pool.name.to_string());
        return Err(unknown("pool", pool, names));
    };
    let members = found.members();
    if members.named(instance).is_none() {
        let names = members.instances.iter().map(|one| one.name.to_string());
        return Err(unknown("instance", instance, names));
    }
    Ok(found)
}

/// An instance as it is now; one that has left, with nothing open, is `gone`.
fn state(generation: &Generation, pool: &str, instance: &str) -> Result<Value, Told> {
    let snapshot = generation
        .fleet
        .named(pool)
        .map(|(_, pool)| pool.snapshot());
    let mut instances = snapshot.iter().flat_map(|pool| &pool.instances);
    // under one name the newest is last
    let now = instances.rfind(|one| *one.name == *instance);
    Ok(json!({
        "pool": pool,
        "instance": instance,
        "health": now.map_or("gone", |now| super::fleet::health(now.state)),
        "outstanding_requests": now.map_or(0, |now| now.outstanding_requests),
        "generation": generation.number,
    }))
}

fn unknown(what: &str, name: &str, there: impl Iterator<Item = String>) -> Told {
    let there: Vec<String> = there.collect();
    let name: String = name.chars().take(64).collect();
    let there = there.join(", ");
    let message = format!("no {what} is called {name:?}; there are {there}");
    (StatusCode::NOT_FOUND, error_body(&message))
}

fn reloaded(taken: &Taken) -> Value {
    json!({
        "reloaded": true,
        "generation": taken.generation,
        "changes": taken.changes,
    })
}

fn refused(error: &NotTaken) -> Told {
    let status = match error {
        NotTaken::NoFile | NotTaken::Edit(EditError::Taken { .. } | EditError::LastInstance(_)) => {
            StatusCode::CONFLICT
        }
        NotTaken::Edit(EditError::NoPool(_) | EditError::NoInstance { .. }) => {
            StatusCode::NOT_FOUND
        }
        NotTaken::Config(_) | NotTaken::NotUsable { .. } | NotTaken::Edit(_) => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
    };
    let mut body = error_body(&error.to_string());
    if let NotTaken::Config(ConfigErrors::Invalid(report)) = error {
        body["error"]["faults"] = faults(report);
    }
    (status, body)
}

fn faults(report: &Report) -> Value {
    let fault = |fault: &crate::config::Fault| {
        json!({
            "file": report.name,
            "line": report.line(fault),
            "message": fault.message,
            "help": fault.help,
        })
    };
    report.faults.iter().map(fault).collect()
}

fn error_body(message: &str) -> Value {
    json!({"error": {"message": message}})
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_pool_instance_and_verb() {
        let change = Change::parse("/api/pools/a%20b/instances/10.0.0.1:8000%2Fx/drain");
        let expected = Change::Instance {
            pool: "a b".into(),
            instance: "10.0.0.1:8000/x".into(),
            verb: Verb::Drain,
        };
        assert_eq!(change, Some(expected));
        assert_eq!(Change::parse("/api/reload"), Some(Change::Reload));
        let pool = "p".to_owned();
        assert_eq!(
            Change::parse("/api/pools/p/instances"),
            Some(Change::Add { pool })
        );
        for (word, wanted) in [("undrain", Verb::Undrain), ("remove", Verb::Remove)] {
            let path = format!("/api/pools/p/instances/i/{word}");
            let Some(Change::Instance { verb, .. }) = Change::parse(&path) else {
                panic!("{path}");
            };
            assert_eq!(verb, wanted);
        }
        for path in [
            "/api/pools/p",
            "/api/pools/p/instances/i",
            "/api/pools/p/instances/i/kill",
            "/api/pools/p/things/i/drain",
            "/api/pools/p/things",
            "/api/pools/p/instances/i/drain/more",
            "/api/fleet",
        ] {
            assert_eq!(Change::parse(path), None, "{path}");
        }
    }
}
