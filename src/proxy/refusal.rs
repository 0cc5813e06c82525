//! Answers that Evenkeel makes itself, in OpenAI's error shape, each with a stable code.

use std::time::Duration;

use bytes::Bytes;
use evenkeel_policies::shape::Api;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};

use crate::measure::outcome::Outcome;

/// Why a request was not answered by an instance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Refusal {
    #[error(
        "{method} {path} is not served here; paths beyond the inference API pass only if server.passthrough lists them"
    )]
    UnknownPath { method: String, path: String },
    #[error("{method} is not allowed on {path}; use {allowed}")]
    WrongMethod {
        method: String,
        path: String,
        allowed: &'static str,
    },
    #[error("An API key is needed: send it as `Authorization: Bearer KEY` or as `x-api-key: KEY`.")]
    KeyMissing,
    #[error("The API key is not known here.")]
    KeyUnknown,
    #[error("The key `{key}` is used more often than its rate allows; try again later.")]
    KeyRate { key: String, retry_after_s: u32 },
    #[error(
        "The key `{key}` has {most} requests open already, as many as it may; try again later."
    )]
    KeyBusy { key: String, most: usize },
    #[error("Upgrade is not supported; use plain HTTP requests")]
    Upgrade,
    #[error("The request is not well-formed HTTP: {0}.")]
    Malformed(&'static str),
    #[error(
        "The request's head is larger than the limit of {limit_bytes} bytes (limits.head_bytes) or 100 fields."
    )]
    HeadTooLarge { limit_bytes: usize },
    #[error(
        "The request's target is too long; the whole head may have {limit_bytes} bytes (limits.head_bytes)."
    )]
    TargetTooLong { limit_bytes: usize },
    #[error("This version of HTTP is not spoken here; use HTTP/1.1.")]
    HttpVersion,
    #[error(
        "The transfer coding is not supported; send `transfer-encoding: chunked` or a content-length."
    )]
    TransferCoding,
    #[error("CONNECT is not supported; this is no tunnel.")]
    Tunnel,
    #[error("The expectation cannot be met; only `expect: 100-continue` is known.")]
    Expectation,
    #[error("The model `{0}` does not exist.")]
    UnknownModel(String),
    #[error("The request names no model; say which one in the field `model`.")]
    NoModel,
    #[error(
        "The response `{0}` is not known here; it may have been forgotten, or made before a restart."
    )]
    UnknownResponse(String),
    #[error(
        "The request body is larger than the limit of {limit_bytes} bytes (limits.body_bytes)."
    )]
    BodyTooLarge { limit_bytes: u64 },
    #[error("The request body came too slowly (timeouts.client_body_s).")]
    BodyTooSlow,
    #[error("The request's head did not come in time (timeouts.client_header_s).")]
    HeadTooSlow,
    #[error("The client left before it had sent the request body.")]
    ClientLeft,
    #[error("The request body could not be read: {0}")]
    BadBody(String),
    #[error(
        "Too many request bytes are held at the moment (limits.buffered_bytes); try again later."
    )]
    NoMemory,
    #[error("Too many connections are open (limits.max_connections); try again later.")]
    TooManyConnections,
    #[error("This server has no sockets left at the moment; try again later.")]
    NoSocket,
    #[error("{reason}; try again later.")]
    Shed {
        reason: &'static str,
        code: &'static str,
        retry_after_s: u32,
    },
    #[error("No instance of pool `{pool}` can take the request.")]
    NoInstance { pool: String },
    #[error("Instance `{instance}` could not be reached: {error}")]
    Connect { instance: String, error: String },
    #[error("Instance `{instance}` closed the connection before it answered: {error}")]
    NoAnswer { instance: String, error: String },
    #[error("Instance `{instance}` sent no response head within {limit:?} (timeouts.headers_s).")]
    HeadTimeout { instance: String, limit: Duration },
    #[error("No instance answered with its list of models.")]
    NoModels,
    #[error("This server is shutting down; try another one.")]
    Draining,
}

impl Refusal {
    /// Status sent to the client.
    pub fn status(&self) -> StatusCode {
        match self {
            Refusal::UnknownPath { .. }
            | Refusal::UnknownModel(_)
            | Refusal::UnknownResponse(_) => StatusCode::NOT_FOUND,
            Refusal::WrongMethod { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::Upgrade | Refusal::TransferCoding | Refusal::Tunnel => {
                StatusCode::NOT_IMPLEMENTED
            }
            Refusal::HttpVersion => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Refusal::HeadTooLarge { .. } => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Refusal::TargetTooLong { .. } => StatusCode::URI_TOO_LONG,
            Refusal::Expectation => StatusCode::EXPECTATION_FAILED,
            Refusal::Malformed(_)
            | Refusal::NoModel
            | Refusal::BadBody(_)
            | Refusal::ClientLeft => StatusCode::BAD_REQUEST,
            Refusal::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::BodyTooSlow | Refusal::HeadTooSlow => StatusCode::REQUEST_TIMEOUT,
            Refusal::KeyMissing | Refusal::KeyUnknown => StatusCode::UNAUTHORIZED,
            Refusal::Shed { .. } | Refusal::KeyRate { .. } | Refusal::KeyBusy { .. } => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Refusal::NoMemory
            | Refusal::NoSocket
            | Refusal::TooManyConnections
            | Refusal::NoInstance { .. }
            | Refusal::Draining => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Connect { .. } | Refusal::NoAnswer { .. } | Refusal::NoModels => {
                StatusCode::BAD_GATEWAY
            }
            Refusal::HeadTimeout { .. } => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// Stable code: `error.code` in the body, `cause` in the record.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::UnknownPath { .. } => "path_not_served",
            Refusal::WrongMethod { .. } => "method_not_allowed",
            Refusal::KeyMissing => "api_key_missing",
            Refusal::KeyUnknown => "invalid_api_key",
            Refusal::KeyRate { .. } => "rate_limit_exceeded",
            Refusal::KeyBusy { .. } => "concurrency_limit_exceeded",
            Refusal::Upgrade => "upgrade_not_supported",
            Refusal::Malformed(_) => "request_malformed",
            Refusal::HeadTooLarge { .. } => "head_too_large",
            Refusal::TargetTooLong { .. } => "target_too_long",
            Refusal::HttpVersion => "http_version_not_supported",
            Refusal::TransferCoding => "transfer_coding_not_supported",
            Refusal::Tunnel => "connect_not_supported",
            Refusal::Expectation => "expectation_failed",
            Refusal::UnknownModel(_) => "model_not_found",
            Refusal::NoModel => "model_missing",
            Refusal::UnknownResponse(_) => "response_not_found",
            Refusal::BodyTooLarge { .. } => "body_too_large",
            Refusal::BodyTooSlow => "client_body_timeout",
            Refusal::HeadTooSlow => "client_header_timeout",
            Refusal::ClientLeft => "client_left",
            Refusal::BadBody(_) => "body_unreadable",
            Refusal::NoMemory => "buffers_full",
            Refusal::NoSocket => "sockets_exhausted",
            Refusal::TooManyConnections => "too_many_connections",
            Refusal::Shed { code, .. } => code,
            Refusal::NoInstance { .. } => "no_instance",
            Refusal::Connect { .. } => "connect_failed",
            Refusal::NoAnswer { .. } => "upstream_closed",
            Refusal::HeadTimeout { .. } => "headers_timeout",
            Refusal::NoModels => "models_unavailable",
            Refusal::Draining => "draining",
        }
    }

    /// How the request is recorded.
    pub fn outcome(&self) -> Outcome {
        match self {
            Refusal::Shed { .. }
            | Refusal::NoInstance { .. }
            | Refusal::NoMemory
            | Refusal::NoSocket
            | Refusal::TooManyConnections
            | Refusal::Draining => Outcome::Shed,
            Refusal::Connect { .. } | Refusal::NoAnswer { .. } | Refusal::NoModels => {
                Outcome::EngineError
            }
            Refusal::HeadTimeout { .. } => Outcome::Timeout,
            Refusal::ClientLeft => Outcome::ClientCancelled,
            _ => Outcome::Rejected,
        }
    }

    fn retry_after_s(&self) -> Option<u32> {
        match self {
            Refusal::Shed { retry_after_s, .. } | Refusal::KeyRate { retry_after_s, .. } => {
                Some(*retry_after_s)
            }
            Refusal::KeyBusy { .. }
            | Refusal::NoMemory
            | Refusal::NoSocket
            | Refusal::TooManyConnections
            | Refusal::NoInstance { .. }
            | Refusal::Draining => Some(1),
            _ => None,
        }
    }

    /// `error.type` as Anthropic's clients know it.
    fn messages_kind(&self) -> &'static str {
        match self.status() {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
            status if status.is_server_error() => "api_error",
            _ => "invalid_request_error",
        }
    }

    /// `error.type` as OpenAI's clients know it.
    fn kind(&self) -> &'static str {
        match self.status() {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// The answer's body, in the shape of the API that was asked: OpenAI's, or Anthropic's with the code added.
    fn body(&self, api: Api) -> serde_json::Value {
        let (message, code) = (self.to_string(), self.code());
        if api == Api::Messages {
            return serde_json::json!({"type": "error", "error": {
                "type": self.messages_kind(), "message": message, "code": code,
            }});
        }
        let param = matches!(self, Refusal::UnknownModel(_) | Refusal::NoModel).then_some("model");
        serde_json::json!({"error": {
            "message": message, "type": self.kind(), "param": param, "code": code,
        }})
    }

    /// The answer as HTTP/1.1 bytes that end the connection, for where no server is there to write it.
    pub fn last_words(&self) -> Bytes {
        let response = self.response(Api::Chat);
        let mut bytes = format!(
            "HTTP/1.1 {}\r\nconnection: close\r\ncontent-length: {}\r\n",
            response.status(),
            response.body().len()
        )
        .into_bytes();
        for (name, value) in response.headers() {
            for piece in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                bytes.extend_from_slice(piece);
            }
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(response.body());
        bytes.into()
    }

    /// The answer.
    pub fn response(&self, api: Api) -> Response<Bytes> {
        let body = self.body(api);
        let mut response = Response::new(Bytes::from(body.to_string()));
        *response.status_mut() = self.status();
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Refusal::WrongMethod { allowed, .. } = self {
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static(allowed));
        }
        if self.status() == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after_s() {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
