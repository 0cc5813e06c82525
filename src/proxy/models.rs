//! `/v1/models`, merged over the pools: what a client may ask for here.

use std::time::Duration;

use bytes::Bytes;
use evenkeel_policies::shape::Api;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Request, Response};
use serde_json::{Value, json};

use super::body::UpstreamBody;
use super::generation::Generation;
use super::headers;
use super::refusal::Refusal;
use super::upstream;
use crate::config::checked::{ArrivalStamp, Config, Pool as PoolConfig};
use crate::fleet::instance::Instance;
use crate::fleet::link::Link;
use crate::fleet::pool::Pool;

const LIST_BYTES_MAX: usize = 4 * 1024 * 1024;
const LIST_TIME_MAX: Duration = Duration::from_secs(2);

/// Asks one instance of each pool. A pool with configured models lists just these and their aliases.
pub async fn merged(
    generation: &Generation,
    parts: &Parts,
    wanted: Option<&str>,
) -> Response<Bytes> {
    let config = &generation.config;
    let mut data: Vec<Value> = Vec::new();
    let mut answered = false;
    for (pool, live) in config.pools.iter().zip(&generation.fleet.pools) {
        let listed = pool_list(config, live, parts).await;
        answered |= listed.is_some() || !pool.models.is_empty();
        for entry in entries(pool, listed.unwrap_or_default()) {
            if !data.iter().any(|known| known["id"] == entry["id"]) {
                data.push(entry);
            }
        }
    }
    if !answered {
        return Refusal::NoModels.response(Api::Other);
    }
    if let Some(id) = wanted {
        return match data.into_iter().find(|entry| entry["id"] == id) {
            Some(entry) => json_response(&entry),
            None => Refusal::UnknownModel(super::receive::bounded(id, 128)).response(Api::Other),
        };
    }
    json_response(&json!({"object": "list", "data": data}))
}

fn json_response(value: &Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(value.to_string()));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The entries of one pool: as the engine lists them, cut to what the pool serves, aliases added.
fn entries(pool: &PoolConfig, listed: Vec<Value>) -> Vec<Value> {
    if pool.models.is_empty() {
        return listed;
    }
    let mut entries = Vec::new();
    for model in &pool.models {
        let known = listed
            .iter()
            .find(|entry| entry["id"] == *model.name)
            .cloned();
        let entry = known.unwrap_or_else(
            || json!({"id": model.name, "object": "model", "owned_by": "evenkeel"}),
        );
        for alias in &model.aliases {
            let by_engine = listed.iter().find(|entry| entry["id"] == **alias).cloned();
            let mut named = by_engine.unwrap_or_else(|| entry.clone());
            named["id"] = json!(alias);
            entries.push(named);
        }
        entries.push(entry);
    }
    entries
}

async fn pool_list(config: &Config, pool: &Pool, parts: &Parts) -> Option<Vec<Value>> {
    let members = pool.members().clone();
    for instance in &members.instances {
        let list = instance_list(config, &members.link, instance, parts);
        match tokio::time::timeout(LIST_TIME_MAX, list).await {
            Ok(Some(list)) => return Some(list),
            _ => tracing::debug!(instance = %instance.name, "no list of models"),
        }
    }
    None
}

async fn instance_list(
    config: &Config,
    link: &Link,
    instance: &Instance,
    parts: &Parts,
) -> Option<Vec<Value>> {
    let connection = upstream::connect(
        &instance.url,
        link.tls.as_deref(),
        config.timeouts.connect,
        config.limits.head_bytes,
        ArrivalStamp::Read,
    )
    .await
    .ok()?;
    let mut request = Request::new(UpstreamBody::Held(None));
    *request.uri_mut() = format!("{}/v1/models", instance.url.base_path)
        .parse()
        .ok()?;
    *request.headers_mut() = headers::for_upstream(parts.headers.clone(), &link.credentials);
    request.headers_mut().remove(http::header::ACCEPT_ENCODING);
    request.headers_mut().remove(http::header::CONTENT_LENGTH);
    request.headers_mut().insert(
        http::header::HOST,
        HeaderValue::from_str(&instance.url.authority).ok()?,
    );
    let (head, mut body) = connection
        .send(request, config.timeouts.headers)
        .await
        .ok()?;
    let body = body
        .collect(LIST_BYTES_MAX)
        .await
        .filter(|_| head.status.is_success())?;
    let list: Value = serde_json::from_slice(&body).ok()?;
    list["data"].as_array().cloned()
}
