//! The admin listener: metrics, readiness, the state of the fleet as JSON, and draining an instance.

pub mod access;
pub mod drain;
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
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use crate::proxy::core::Shared;

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
    if let Err(denied) = shared
        .admin_access
        .check(request.method(), request.headers())
    {
        return reply(denied.status(), JSON, error(&denied.to_string()));
    }
    let answered = tokio::task::spawn_blocking(move || {
        answer(&shared, request.method(), request.uri().path())
    });
    answered.await.unwrap_or_else(|panicked| {
        let message = error(&panicked.to_string());
        reply(StatusCode::INTERNAL_SERVER_ERROR, JSON, message)
    })
}

fn answer(shared: &Shared, method: &Method, path: &str) -> Response<Bytes> {
    let known = [
        "/live",
        "/livez",
        "/ready",
        "/readyz",
        "/metrics",
        "/api/fleet",
        "/api/stats",
    ];
    if let Some(change) = drain::Change::parse(path) {
        return changed(shared, method, &change);
    }
    if !known.contains(&path) {
        let message = format!(
            "not found; this listener serves {} and POST /api/pools/POOL/instances/INSTANCE/drain or …/undrain",
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

fn changed(shared: &Shared, method: &Method, change: &drain::Change) -> Response<Bytes> {
    if method != Method::POST {
        let message = error("only POST changes an instance");
        return reply(StatusCode::METHOD_NOT_ALLOWED, JSON, message);
    }
    match change.apply(&shared.fleet) {
        Ok(state) => reply(StatusCode::OK, JSON, state.to_string()),
        Err(unknown) => reply(StatusCode::NOT_FOUND, JSON, error(&unknown)),
    }
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
    let out: Vec<String> = shared
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
