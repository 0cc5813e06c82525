//! The policy's own table.

use serde::Deserialize;

/// How an instance is chosen.
#[derive(Debug, Clone, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum PolicyConfig {
    /// each instance in turn
    RoundRobin,
    /// any instance
    Random,
    /// the fewest open requests
    LeastRequests,
    /// the fewest outstanding tokens
    LeastOutstandingTokens,
}

impl PolicyConfig {
    /// The policy's name, as in the file.
    pub fn kind(&self) -> &'static str {
        match self {
            PolicyConfig::RoundRobin => "round_robin",
            PolicyConfig::Random => "random",
            PolicyConfig::LeastRequests => "least_requests",
            PolicyConfig::LeastOutstandingTokens => "least_outstanding_tokens",
        }
    }
}
