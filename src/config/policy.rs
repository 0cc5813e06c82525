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
