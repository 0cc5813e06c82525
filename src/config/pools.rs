//! Pools, their instances, and which pool serves which model.
//!
//! A model or alias leads to its pool. A pool without models, or with `default = true`, takes
//! every model that no pool names; there may be one such pool. Several pools may serve the same
//! model only if each says its `share`; then each request is given to one of them at random, in
//! that proportion. Without a catch-all pool an unknown model is 404 `model_not_found`.

use std::sync::Arc;

use tokio_rustls::rustls::pki_types::ServerName;

use super::check::{Checker, Seen};
use super::checked::*;
use super::place::Step::{Index, Key};
use super::place::{Step, steps};
use super::{health, keys, raw, shown, url};

/// Names that metrics and reports use for something else.
const RESERVED: [&str; 2] = ["other", "all"];

/// Check all pools and build the table of models.
pub fn check(checker: &mut Checker<'_>, raw: Vec<raw::Pool>) -> (Vec<Pool>, ModelTable) {
    if raw.is_empty() {
        let help = "add `[[pools]]` with a name, a policy and `[[pools.instances]]`".to_owned();
        checker.fault(&[Key("pools")], "there are no pools".into(), "empty", help);
    }
    let shares: Vec<Option<f64>> = raw.iter().map(|pool| pool.share).collect();
    let mut names = Seen::new();
    let mut pools = Vec::with_capacity(raw.len());
    for (index, pool) in raw.into_iter().enumerate() {
        pools.push(check_pool(checker, pool, index, &mut names));
    }
    shared_urls(checker, &pools);
    let models = model_table(checker, &pools, &shares);
    (pools, models)
}

fn check_pool(checker: &mut Checker<'_>, pool: raw::Pool, index: usize, names: &mut Seen) -> Pool {
    let at = [Key("pools"), Index(index)];
    let path = format!("pools[{index}]");
    check_name(
        checker,
        &[&at[..], &[Key("name")]].concat(),
        &format!("{path}.name"),
        &pool.name,
        names,
    );
    if pool
        .share
        .is_some_and(|share| !(share > 0.0 && share.is_finite()))
    {
        let help = "a share is relative to the other pools of the model: 1 and 3 are a quarter and three quarters";
        checker.fault(
            &[&at[..], &[Key("share")]].concat(),
            format!("`{path}.share` must be above 0"),
            "not a share",
            help.to_owned(),
        );
    }
    if let Err(error) = pool.policy.validate() {
        let place = [&at[..], &[Key("policy")], &steps(&error.key)].concat();
        let message = format!("`{path}.policy.{}` {}", error.key, error.message);
        checker.fault(&place, message, "cannot be used", None);
    }
    if pool.instances.is_empty() {
        let help = "add `[[pools.instances]]` with `url = \"http://HOST:PORT\"`".to_owned();
        let message = format!("pool \"{}\" has no instances", pool.name);
        checker.fault(
            &[&at[..], &[Key("instances")]].concat(),
            message,
            "empty",
            help,
        );
    }
    let health = health::check(checker, &at, &path, pool.health);
    let key_path = format!("{path}.engine_key");
    let engine_key = keys::secret(checker, &at, &key_path, pool.engine_key.as_deref());
    let mut seen = (Seen::new(), Seen::new());
    let mut instances = Vec::new();
    for (number, instance) in pool.instances.into_iter().enumerate() {
        instances.extend(check_instance(checker, instance, index, number, &mut seen));
    }
    let tls = pool_tls(checker, pool.tls, index, &instances);
    let models: Vec<Model> = pool.models.into_iter().map(model).collect();
    Pool {
        name: Arc::from(pool.name),
        default: pool.default || models.is_empty(),
        models,
        policy: pool.policy,
        health,
        engine_key,
        tls,
        instances,
    }
}

fn pool_tls(
    checker: &mut Checker<'_>,
    tls: Option<raw::PoolTls>,
    index: usize,
    instances: &[Instance],
) -> PoolTls {
    let Some(tls) = tls else {
        return PoolTls::default();
    };
    let at = |name| [Key("pools"), Index(index), Key("tls"), Key(name)];
    if instances.iter().all(|instance| !instance.url.tls) {
        let help = "write the instances' URLs as \"https://...\", or leave `tls` out".to_owned();
        let message = format!("`pools[{index}].tls` has no instance to speak TLS with");
        checker.fault(&at("")[..3], message, "of no use", help);
    }
    let identity = match (tls.cert, tls.key) {
        (Some(cert), Some(key)) => Some(Identity { cert, key }),
        (None, None) => None,
        (cert, _) => {
            let (there, lacking) = if cert.is_some() {
                ("cert", "key")
            } else {
                ("key", "cert")
            };
            let message = format!("`pools[{index}].tls.{there}` stands without `{lacking}`");
            let help = "a certificate and its key go together".to_owned();
            checker.fault(&at(there), message, "half of a pair", help);
            None
        }
    };
    let server_name = tls.server_name.and_then(|name| {
        let parsed = ServerName::try_from(name.clone()).ok();
        if parsed.is_none() {
            let message = format!("`pools[{index}].tls.server_name` cannot be \"{name}\"");
            let help = "write a host name or an IP address, without a port".to_owned();
            checker.fault(&at("server_name"), message, "not a name", help);
        }
        parsed
    });
    PoolTls {
        ca: tls.ca,
        identity,
        server_name,
    }
}

fn model(model: raw::Model) -> Model {
    match model {
        raw::Model::Name(name) => Model {
            name,
            aliases: Vec::new(),
        },
        raw::Model::Table(table) => Model {
            name: table.name,
            aliases: table.aliases,
        },
    }
}

fn check_instance(
    checker: &mut Checker<'_>,
    instance: raw::Instance,
    pool: usize,
    number: usize,
    (names, urls): &mut (Seen, Seen),
) -> Option<Instance> {
    let at = [Key("pools"), Index(pool), Key("instances"), Index(number)];
    let path = format!("pools[{pool}].instances[{number}]");
    if !(instance.weight > 0.0 && instance.weight.is_finite()) {
        let help = "an instance that should get nothing is left out of the file".to_owned();
        checker.fault(
            &[&at[..], &[Key("weight")]].concat(),
            format!("`{path}.weight` must be above 0"),
            "not a weight",
            help,
        );
    }
    let url_at = [&at[..], &[Key("url")]].concat();
    let url = match url::parse(&instance.url) {
        Ok(url) => url,
        Err((label, help)) => {
            let message = match shown::has_user(&instance.url) {
                true => format!("`{path}.url` cannot be used"),
                false => format!("`{path}.url` \"{}\" cannot be used", instance.url),
            };
            checker.fault(&url_at, message, &label, help);
            return None;
        }
    };
    let target = url.to_string();
    if let Some(first) = urls.insert(target, path.clone()) {
        let message = format!("`{path}.url` is the URL of `{first}` too");
        let help =
            "each instance is listed once; to give one more work, raise its `weight`".to_owned();
        checker.fault(&url_at, message, "listed twice", help);
    }
    let name = instance.name.unwrap_or_else(|| default_name(&url));
    check_name(
        checker,
        &[&at[..], &[Key("name")]].concat(),
        &format!("{path}.name"),
        &name,
        names,
    );
    Some(Instance {
        name: Arc::from(name),
        url,
        weight: instance.weight,
        labels: instance.labels,
    })
}

/// The name of an instance that was given none.
pub fn default_name(url: &Upstream) -> String {
    match url.host.contains(':') {
        true => format!("[{}]:{}", url.host, url.port),
        false => format!("{}:{}", url.host, url.port),
    }
}

/// What would be right, for a name that metrics, records and logs cannot carry.
pub fn name_fault(name: &str) -> Option<&'static str> {
    let plain = |c: char| c.is_alphanumeric() || "-_.:/@[] ".contains(c);
    if name.is_empty() || name.len() > 128 || !name.chars().all(plain) {
        return Some("up to 128 letters, digits, and `-_.:/@`");
    }
    let reserved = RESERVED.contains(&name);
    reserved.then_some("choose another name; metrics use this one for sums")
}

/// A name that metrics, records and logs can carry, and nobody else has.
pub fn check_name(
    checker: &mut Checker<'_>,
    at: &[Step<'_>],
    path: &str,
    name: &str,
    names: &mut Seen,
) {
    if let Some(help) = name_fault(name) {
        let label = if RESERVED.contains(&name) {
            "reserved"
        } else {
            "not a usable name"
        };
        let message = format!("`{path}` cannot be \"{}\"", name.escape_debug());
        checker.fault(at, message, label, help.to_owned());
    } else if let Some(first) = names.insert(name.to_owned(), path.to_owned()) {
        let help = "give each its own name".to_owned();
        checker.fault(
            at,
            format!("`{path}` \"{name}\" is taken by `{first}`"),
            "used twice",
            help,
        );
    }
}

/// The same engine in two pools works, but each pool counts only its own load on it.
fn shared_urls(checker: &mut Checker<'_>, pools: &[Pool]) {
    let mut seen = std::collections::HashMap::new();
    for pool in pools {
        for instance in &pool.instances {
            let first = *seen.entry(&instance.url).or_insert(&pool.name);
            if *first != pool.name {
                checker.warnings.push(format!(
                    "instance {} is in pools \"{first}\" and \"{}\": neither sees the load of the other there",
                    instance.url.authority, pool.name
                ));
            }
        }
    }
}

fn model_table(checker: &mut Checker<'_>, pools: &[Pool], shares: &[Option<f64>]) -> ModelTable {
    let mut table = ModelTable::default();
    for (index, pool) in pools.iter().enumerate() {
        let share = shares[index].unwrap_or(1.0);
        for (number, model) in pool.models.iter().enumerate() {
            let at = [Key("pools"), Index(index), Key("models"), Index(number)];
            let place = Place {
                pool: index,
                model: u32::try_from(number).unwrap_or(u32::MAX),
                share,
            };
            for name in std::iter::once(&model.name).chain(&model.aliases) {
                if name.is_empty() || name.len() > 256 {
                    let message = format!(
                        "`pools[{index}].models[{number}]` has a name of {} bytes",
                        name.len()
                    );
                    checker.fault(&at, message, "1 to 256 bytes", None);
                }
                add_model(checker, &mut table, (pools, shares), name, place, &at);
            }
        }
        if !pool.default {
            continue;
        }
        let place = Place {
            pool: index,
            model: u32::try_from(pool.models.len()).unwrap_or(u32::MAX),
            share,
        };
        match table.catch_all.replace(place) {
            None => {}
            Some(first) => {
                let message = format!(
                    "pools \"{}\" and \"{}\" both take every model",
                    pools[first.pool].name, pool.name
                );
                let help = "name the `models` of all pools but one".to_owned();
                checker.fault(
                    &[Key("pools"), Index(index)],
                    message,
                    "a second pool for every model",
                    help,
                );
            }
        }
    }
    let only = match pools {
        [pool] => Some(Place {
            pool: 0,
            model: u32::try_from(pool.models.len()).unwrap_or(u32::MAX),
            share: 1.0,
        }),
        _ => None,
    };
    table.unnamed = table.catch_all.or(only);
    table
}

fn add_model(
    checker: &mut Checker<'_>,
    table: &mut ModelTable,
    (pools, shares): (&[Pool], &[Option<f64>]),
    name: &str,
    place: Place,
    at: &[Step<'_>],
) {
    let places = table.by_name.entry(name.to_owned()).or_default();
    if places.iter().any(|other| other.pool == place.pool) {
        let message = format!(
            "pool \"{}\" names the model \"{name}\" twice",
            pools[place.pool].name
        );
        checker.fault(
            at,
            message,
            "already named",
            "leave one of them out".to_owned(),
        );
        return;
    }
    let without = |place: &Place| shares[place.pool].is_none();
    if let Some(other) = places
        .iter()
        .find(|other| without(other) || without(&place))
    {
        let (first, second) = (&pools[other.pool].name, &pools[place.pool].name);
        let message =
            format!("the model \"{name}\" is served by pool \"{first}\" and by pool \"{second}\"");
        let help = "put all its instances into one pool; or, to split its requests at random, give each of the pools \
                    a `share`, such as `share = 1`"
            .to_owned();
        checker.fault(at, message, "in two pools", help);
    }
    places.push(place);
}
