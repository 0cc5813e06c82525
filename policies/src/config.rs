//! A policy's typed table in the configuration, and its check.

use serde::{Deserialize, Serialize};

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct ConfigError {
    /// path of the key inside the policy's table, as `lanes[0].reserve`
    pub key: String,
    /// what is wrong and what would be right
    pub message: String,
}

/// How an instance is chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum PolicyConfig {
    /// any instance, by weight
    Random {},
    /// each instance in turn, by weight
    RoundRobin {},
    /// the fewest open requests
    LeastRequests {},
    /// the fewest outstanding tokens
    LeastOutstandingTokens {},
    /// classes of requests by length, each with its share of the pool
    Lanes(LanesConfig),
}

/// A policy that lanes may use to choose among the instances they allow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum InnerPolicy {
    /// any instance, by weight
    Random,
    /// each instance in turn, by weight
    RoundRobin,
    /// the fewest open requests
    LeastRequests,
    /// the fewest outstanding tokens
    #[default]
    LeastOutstandingTokens,
}

/// Settings of the policy `lanes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LanesConfig {
    /// chooses among the instances that a lane may use
    #[serde(default)]
    pub inner: InnerPolicy,
    /// requests an instance may have open; without it lanes only steer and nothing is refused
    #[serde(default)]
    pub slots_per_instance: Option<u32>,
    /// lanes from the shortest requests to the longest
    pub lanes: Vec<LaneConfig>,
    /// bounds of the queue; only with `slots_per_instance`
    #[serde(default)]
    pub queue: Option<QueueConfig>,
}

/// One class of requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LaneConfig {
    /// name
    pub name: String,
    /// largest uncached prompt + predicted output, in tokens; the last lane has none
    #[serde(default)]
    pub max_tokens: Option<u32>,
    /// share of slots, and of instances free of longer prompts, kept for this lane; 0 to 1
    #[serde(default)]
    pub reserve: f64,
}

/// Bounds of the queue, over all lanes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct QueueConfig {
    /// requests that may wait
    pub max_requests: u32,
    /// body bytes of the requests that wait
    pub max_bytes: u64,
    /// longest wait in seconds
    pub max_wait_s: f64,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            max_requests: 1024,
            max_bytes: 256 << 20,
            max_wait_s: 30.0,
        }
    }
}

impl PolicyConfig {
    /// The policy's name, as in the file.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Random {} => "random",
            Self::RoundRobin {} => "round_robin",
            Self::LeastRequests {} => "least_requests",
            Self::LeastOutstandingTokens {} => "least_outstanding_tokens",
            Self::Lanes(_) => "lanes",
        }
    }

    /// Checks what types alone cannot.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::Lanes(lanes) => lanes.validate(),
            _ => Ok(()),
        }
    }
}

fn wrong<T>(key: impl Into<String>, message: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError {
        key: key.into(),
        message: message.into(),
    })
}

impl LanesConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        if self.lanes.len() < 2 {
            return wrong(
                "lanes",
                "lists fewer than two lanes; give a short lane with `max_tokens` and a last one without",
            );
        }
        for index in 0..self.lanes.len() {
            self.validate_lane(index)?;
        }
        let reserved: f64 = self.lanes.iter().map(|lane| lane.reserve).sum();
        if reserved >= 1.0 {
            return wrong(
                "lanes",
                format!("reserves add up to {reserved}; keep their sum below 1"),
            );
        }
        self.validate_queue()
    }

    fn validate_lane(&self, index: usize) -> Result<(), ConfigError> {
        let lane = &self.lanes[index];
        let key = |name: &str| format!("lanes[{index}].{name}");
        if lane.name.is_empty() {
            return wrong(
                key("name"),
                "is empty; give the lane a name such as \"short\"",
            );
        }
        if self.lanes[..index]
            .iter()
            .any(|other| other.name == lane.name)
        {
            return wrong(
                key("name"),
                format!(
                    "\"{}\" is taken by an earlier lane; choose another",
                    lane.name
                ),
            );
        }
        if !(0.0..1.0).contains(&lane.reserve) {
            return wrong(
                key("reserve"),
                format!(
                    "is {}; give a share from 0 to below 1, as 0.25",
                    lane.reserve
                ),
            );
        }
        let last = index + 1 == self.lanes.len();
        let below = self.lanes[..index]
            .iter()
            .filter_map(|other| other.max_tokens)
            .max()
            .unwrap_or(0);
        match lane.max_tokens {
            None if !last => wrong(
                key("max_tokens"),
                "is missing; only the last lane takes requests of any length",
            ),
            Some(_) if last => wrong(
                key("max_tokens"),
                "is set on the last lane; leave it out, longer requests need a lane",
            ),
            Some(limit) if limit <= below => wrong(
                key("max_tokens"),
                format!(
                    "is {limit}; make it more than {below}, so that lanes go from short to long"
                ),
            ),
            _ => Ok(()),
        }
    }

    fn validate_queue(&self) -> Result<(), ConfigError> {
        if self.slots_per_instance == Some(0) {
            return wrong(
                "slots_per_instance",
                "is 0; give at least 1, or leave it out to have no queue",
            );
        }
        let Some(queue) = &self.queue else {
            return Ok(());
        };
        if self.slots_per_instance.is_none() {
            return wrong(
                "queue",
                "needs `slots_per_instance`; set it to what an engine runs at once, as 64, or remove the queue",
            );
        }
        if !(queue.max_wait_s > 0.0 && queue.max_wait_s <= 86_400.0) {
            return wrong(
                "queue.max_wait_s",
                format!(
                    "is {}; give seconds above 0 and up to 86400",
                    queue.max_wait_s
                ),
            );
        }
        Ok(())
    }
}
