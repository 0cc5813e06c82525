//! How a request can end: one enum for records, metrics, logs and health.

use serde::{Deserialize, Serialize};

/// How a request ended; the first that fits, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// by us, before routing: auth, limits, bad request, unknown model
    Rejected,
    /// by us: queue full or no capacity
    Shed,
    /// complete, even where the transport ended unclean or the client left afterwards
    Ok,
    /// the client went away first
    ClientCancelled,
    /// one of our timeouts ended it
    Timeout,
    /// upstream said 4xx, but 408 and 429
    ClientError,
    /// in-band error, 408, 429, 5xx, finish `abort`, connect failure
    EngineError,
    /// the body ended unfinished
    Cut,
}

impl Outcome {
    /// All outcomes, in order of precedence.
    pub const ALL: [Outcome; 8] = [
        Outcome::Rejected,
        Outcome::Shed,
        Outcome::Ok,
        Outcome::ClientCancelled,
        Outcome::Timeout,
        Outcome::ClientError,
        Outcome::EngineError,
        Outcome::Cut,
    ];

    /// The stable name used in records, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Rejected => "rejected",
            Outcome::Shed => "shed",
            Outcome::Ok => "ok",
            Outcome::ClientCancelled => "client_cancelled",
            Outcome::Timeout => "timeout",
            Outcome::ClientError => "client_error",
            Outcome::EngineError => "engine_error",
            Outcome::Cut => "cut",
        }
    }

    /// The sidecars' `failed`.
    pub fn is_failed(self) -> bool {
        matches!(
            self,
            Outcome::ClientError | Outcome::EngineError | Outcome::Cut | Outcome::Timeout
        )
    }
}
