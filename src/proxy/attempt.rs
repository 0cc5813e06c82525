//! Getting a response head: attempts over instances, sending again only where that is safe.
//!
//! Sent again: what was never written (always safe); what died on a reused connection before a
//! response byte, once, on a new one (the engine had closed its keep-alive); a refused connection, and
//! what an instance had no room for (429, 503), on another instance, within the retry budget. Never after
//! a byte of an answer has gone to the client, never a body that was not held whole.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use evenkeel_policies::scheduler::InstanceId;
use http::request::Parts;
use http::{HeaderValue, Request, Uri, header};

use super::body::{self, BodyError, UpstreamBody};
use super::core::Core;
use super::finish::OpenExchange;
use super::headers;
use super::receive::Received;
use super::refusal::Refusal;
use super::response_head::Head;
use super::route::{self, Route};
use super::upstream::{self, AnswerBody, AttemptError, ConnectionPool};
use crate::config::checked::Config;
use crate::fleet::credentials::Credentials;
use crate::fleet::health::retry_after;
use crate::fleet::instance::Instance;
use crate::fleet::retries::Retry;
use crate::measure::clock::now_ns;

/// A response head and where its body comes from.
pub struct Answered {
    /// head
    pub head: Head,
    /// body, on its connection
    pub body: AnswerBody,
    /// where that connection goes afterwards
    pub pool: Arc<ConnectionPool>,
}

/// Takes places and tries instances until one answers or none is left to try.
pub async fn answer(
    core: &Core,
    config: &Config,
    open: &mut OpenExchange,
    route: &Route,
    parts: &Parts,
    received: &mut Received,
) -> Result<Answered, Refusal> {
    let mut failed: Vec<InstanceId> = Vec::new();
    loop {
        route::admit(open, route, &failed).await?;
        let Some(instance) = open.lease.as_ref().map(|lease| lease.instance().clone()) else {
            return Err(Refusal::NoInstance {
                pool: route.pool.name.to_string(),
            });
        };
        let tried = on_instance(core, config, open, route, &instance, parts, received).await;
        let Some((cause, status)) = another_may_do(config, &tried) else {
            return tried;
        };
        failed.push(instance.id);
        let Some(budget) = second_try(config, route, received, &failed) else {
            return tried;
        };
        tracing::debug!(instance = %instance.name, cause, "trying another instance");
        open.attempt_failed(cause, status, budget);
    }
}

/// Why another instance may do better: this one did not take the request, or has no room for it.
fn another_may_do(
    config: &Config,
    tried: &Result<Answered, Refusal>,
) -> Option<(&'static str, Option<u16>)> {
    match tried {
        Err(refusal @ Refusal::Connect { .. }) => Some((refusal.code(), None)),
        Ok(answered) if config.retries.busy => {
            let status = answered.head.status.as_u16();
            matches!(status, 429 | 503).then_some(("busy", Some(status)))
        }
        _ => None,
    }
}

/// A place in the retry budget, if the request can go to another instance at all.
fn second_try(
    config: &Config,
    route: &Route,
    received: &Received,
    failed: &[InstanceId],
) -> Option<Retry> {
    let rules = &config.retries;
    let may = route.pinned.is_none() && received.is_held() && failed.len() < rules.instances_max;
    may.then(|| {
        route
            .pool
            .retry(failed, rules.budget_share, rules.budget_least)
    })?
}

async fn on_instance(
    core: &Core,
    config: &Config,
    open: &mut OpenExchange,
    route: &Route,
    instance: &Arc<Instance>,
    parts: &Parts,
    received: &mut Received,
) -> Result<Answered, Refusal> {
    // as it is now: the instance may have come after the request
    let link = route.pool.members().link.clone();
    let pool = core.connections_to(instance, &link);
    let mut fresh = false;
    loop {
        // a body that cannot be sent again goes over a connection that cannot be stale
        let idle = if fresh || !received.is_held() {
            None
        } else {
            pool.take(config.timeouts.upstream_idle)
        };
        let connection = match idle {
            Some(connection) => connection,
            None => upstream::connect(
                &instance.url,
                link.tls.as_deref(),
                config.timeouts.connect,
                config.limits.head_bytes,
                config.measure.arrival,
            )
            .await
            .map_err(|error| not_connected(instance, &error))?,
        };
        open.record.stamps.connected_ns = Some(now_ns());
        let reused = connection.reused;
        let request = upstream_request(instance, &link.credentials, parts, received)?;
        match connection.send(request, config.timeouts.headers).await {
            Ok((head, body)) => {
                open.record.retry_after = busy_for(&head);
                let stamps = &mut open.record.stamps;
                stamps.head_ns = Some(body.connection().newest_read().at_ns);
                stamps.sent_ns = body
                    .connection()
                    .last_write_ns
                    .filter(|_| body.request_sent());
                return Ok(Answered { head, body, pool });
            }
            Err(error) if may_send_again(config, &error, reused, received) && !fresh => {
                tracing::debug!(instance = %instance.name, %error, "sending again on a new connection");
                open.sent_again();
                fresh = true;
            }
            Err(error) => {
                return Err(no_answer(instance, &error));
            }
        }
    }
}

/// How long an instance that has no room asks to be left alone.
fn busy_for(head: &Head) -> Option<Duration> {
    let busy = matches!(head.status.as_u16(), 429 | 503);
    busy.then(|| retry_after(&head.headers, SystemTime::now()))
        .flatten()
}

fn may_send_again(
    config: &Config,
    error: &AttemptError,
    reused: bool,
    received: &Received,
) -> bool {
    received.is_held()
        && match error {
            AttemptError::NeverWritten => true,
            AttemptError::NoAnswer(_) => reused && config.retries.resend,
            _ => false,
        }
}

fn not_connected(instance: &Instance, error: &AttemptError) -> Refusal {
    match error {
        AttemptError::NoSocket(error) => {
            tracing::warn!(%error, "no socket for a connection to an instance");
            Refusal::NoSocket
        }
        _ => Refusal::Connect {
            instance: instance.name.to_string(),
            error: error.to_string(),
        },
    }
}

fn no_answer(instance: &Instance, error: &AttemptError) -> Refusal {
    match error {
        AttemptError::Body(BodyError::TooLarge(limit_bytes)) => Refusal::BodyTooLarge {
            limit_bytes: *limit_bytes,
        },
        AttemptError::Body(BodyError::TooSlow) => Refusal::BodyTooSlow,
        AttemptError::Body(BodyError::Client(error)) if body::client_left(error) => {
            Refusal::ClientLeft
        }
        AttemptError::HeadTimeout(limit) => Refusal::HeadTimeout {
            instance: instance.name.to_string(),
            limit: *limit,
        },
        _ => Refusal::NoAnswer {
            instance: instance.name.to_string(),
            error: error.to_string(),
        },
    }
}

fn upstream_request(
    instance: &Instance,
    credentials: &Credentials,
    parts: &Parts,
    received: &mut Received,
) -> Result<Request<UpstreamBody>, Refusal> {
    let gone = || Refusal::BadBody("it was streamed and cannot be sent again".into());
    let body = received.body().ok_or_else(gone)?;
    let mut request = Request::new(body);
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = upstream_uri(instance, &parts.uri)?;
    *request.headers_mut() = headers::for_upstream(parts.headers.clone(), credentials);
    let headers = request.headers_mut();
    if received.usage_withheld {
        // an event cannot be withheld from a compressed stream
        headers.remove(header::ACCEPT_ENCODING);
    }
    if !headers.contains_key(header::HOST) {
        let authority = parts
            .uri
            .authority()
            .map_or(instance.url.authority.as_str(), |authority| {
                authority.as_str()
            });
        let host = HeaderValue::from_str(authority)
            .map_err(|error| Refusal::BadBody(error.to_string()))?;
        headers.insert(header::HOST, host);
    }
    Ok(request)
}

/// Origin form: the instance's base path, then path and query as the client wrote them.
fn upstream_uri(instance: &Instance, uri: &Uri) -> Result<Uri, Refusal> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let target = if instance.url.base_path.is_empty() {
        path.parse()
    } else {
        format!("{}{path}", instance.url.base_path).parse()
    };
    target.map_err(|error: http::uri::InvalidUri| Refusal::BadBody(error.to_string()))
}
