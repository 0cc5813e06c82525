//! The admin listener: metrics, readiness, the state of the fleet as JSON, and what changes it.

pub mod access;
pub mod changes;
pub mod fleet;
pub mod metrics;
pub mod stats;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use crate::proxy::core::Shared;
use changes::Change;

/// Largest body of a request; an instance fits many times.
const BODY_BYTES_MAX: usize = 64 * 1024;
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves the admin listener until its runtime ends.
pub async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let shared = shared.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let shared = shared.clone();
                async move { Ok::<_, Infallible>(answer_apart(shared, request).await.map(Full::new)) }
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "admin connection ended");
            }
        });
    }
}

/// Merging a large fleet's figures takes milliseconds: not on the thread that accepts clients.
async fn answer_apart(shared: Arc<Shared>, request: Request<Incoming>) -> Response<Bytes> {
    let (parts, body) = request.into_parts();
    let access = &shared.generation().admin_access;
    if let Err(denied) = access.check(&parts.method, &parts.headers) {
        return reply(denied.status(), JSON, error(&denied.to_string()));
    }
    let Ok(body) = Limited::new(body, BODY_BYTES_MAX).collect().await else {
        let message = error("the body is too large, or did not come whole");
        return reply(StatusCode::BAD_REQUEST, JSON, message);
    };
    let body = body.to_bytes();
    let answered = tokio::task::spawn_blocking(move || {
        answer(&shared, &parts.method, parts.uri.path(), &body)
    });
    answered.await.unwrap_or_else(|panicked| {
        let message = error(&panicked.to_string());
        reply(StatusCode::INTERNAL_SERVER_ERROR, JSON, message)
    })
}

fn answer(shared: &Shared, method: &Method, path: &str, body: &[u8]) -> Response<Bytes> {
    let known = [
        "/live",
        "/livez",
        "/ready",
        "/readyz",
        "/metrics",
        "/api/fleet",
        "/api/stats",
    ];
    if let Some(change) = Change::parse(path) {
        return changed(shared, method, &change, body);
    }
    if !known.contains(&path) {
        let message = format!(
            "not found; this listener serves {} and, by POST, /api/reload, /api/pools/POOL/instances, and \
             /api/pools/POOL/instances/INSTANCE/drain, …/undrain or …/remove",
            known.join(", ")
        );
        return reply(StatusCode::NOT_FOUND, JSON, error(&message));
    }
    if method != Method::GET && method != Method::HEAD {
        return reply(
            StatusCode::METHOD_NOT_ALLOWED,
            JSON,
            error("only GET is served here"),
        );
    }
    match path {
        "/live" | "/livez" => reply(StatusCode::OK, JSON, r#"{"live":true}"#.into()),
        "/ready" | "/readyz" => ready(shared),
        "/metrics" => metrics(shared),
        "/api/fleet" => reply(StatusCode::OK, JSON, fleet::json(shared).to_string()),
        _ => reply(StatusCode::OK, JSON, stats::json(shared).to_string()),
    }
}

fn changed(shared: &Shared, method: &Method, change: &Change, body: &[u8]) -> Response<Bytes> {
    if method != Method::POST {
        let message = error("only POST changes something");
        return reply(StatusCode::METHOD_NOT_ALLOWED, JSON, message);
    }
    let (status, told) = change.apply(shared, body);
    reply(status, JSON, told.to_string())
}

fn metrics(shared: &Shared) -> Response<Bytes> {
    match metrics::text(shared) {
        Ok(text) => reply(StatusCode::OK, TEXT, text),
        Err(error) => {
            tracing::error!(%error, "the metrics cannot be written as text");
            reply(
                StatusCode::INTERNAL_SERVER_ERROR,
                JSON,
                self::error(&error.to_string()),
            )
        }
    }
}

/// Ready: not stopping, and every pool has an instance that takes requests.
fn ready(shared: &Shared) -> Response<Bytes> {
    let generation = shared.generation();
    let out: Vec<String> = generation
        .fleet
        .pools
        .iter()
        .map(|pool| pool.snapshot())
        .filter(|pool| {
            pool.instances
                .iter()
                .all(|instance| !instance.state.takes_requests())
        })
        .map(|pool| pool.name.to_string())
        .collect();
    let draining = shared.draining.load(Relaxed);
    let status = if draining || !out.is_empty() {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    let body = serde_json::json!({"ready": status == StatusCode::OK, "draining": draining, "pools_without_instance": out});
    reply(status, JSON, body.to_string())
}

fn error(message: &str) -> String {
    serde_json::json!({"error": {"message": message}}).to_string()
}

fn reply(status: StatusCode, content_type: &'static str, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests;
