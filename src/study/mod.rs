//! A study: what a sweep ran, point by point, as it is kept in files. What reports are made from.
//!
//! ```text
//! OUT/
//!   plan.toml             the plan, as it was given
//!   study.json            [`StudyFile`]: version, machine, seed, the plan's name
//!   points/ID/            one a point; ID is [`Setting::id`]
//!     result.json         as `evenkeel bench --save-result --save-detailed` writes it
//!     requests.jsonl      as `evenkeel bench --requests-jsonl` writes it: every request, warm-up and failed ones too
//!     batch_result.json, batch_requests.jsonl    the same of the batch beside a mixed load; its ids have `batch-` before the number
//!     hooks.log           what hooks wrote, where any ran
//!     monitor.jsonl       [`monitor::Reading`]: a line a source and look
//!     records.jsonl       the proxy's records of this point, joined on the request's id
//!     point.json          [`PointFile`]; written last, so a point without it was not finished
//! ```

pub mod files;
pub mod monitor;
pub mod point;
pub mod problem;
pub mod read;
mod request_line;
pub mod setting;

use serde::{Deserialize, Serialize};

pub use setting::{Load, Scaling, Scenario, Setting};

/// Version of the files of a study; readers refuse a later one.
pub const STUDY_VERSION: u32 = 1;

/// `study.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyFile {
    /// [`STUDY_VERSION`]
    pub schema: u32,
    /// what the plan calls itself
    pub name: String,
    /// engine models on a virtual clock, in place of servers
    pub simulated: bool,
    /// of arrivals, lengths and texts
    pub seed: u64,
    /// version of Evenkeel
    pub version: String,
    /// wall time when the sweep was first begun, nanoseconds after 1970
    pub started_unix_ns: u64,
    /// the machine that sent the load
    pub machine: Machine,
    /// SHA-256 of the plan: a sweep resumes only the plan it began
    pub plan_sha256: String,
    /// service level that the plan names, in the words of `--goodput`, such as `ttft:500`
    pub objectives: Vec<String>,
    /// share of requests that must meet it, 0 to 1
    pub attainment: f64,
    /// price of a GPU for an hour, where the plan names one
    pub gpu_hour_price: Option<Price>,
}

/// The machine that sent the load.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// operating system and architecture
    pub system: String,
    /// cores that may be used
    pub cores: u32,
    /// what the processor calls itself
    pub processor: Option<String>,
    /// memory, bytes
    pub memory_bytes: Option<u64>,
}

/// An amount of money.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// how much
    pub amount: f64,
    /// of what, such as USD
    pub currency: String,
}

/// `point.json`: what was set for one point, and how it went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PointFile {
    /// [`STUDY_VERSION`]
    pub schema: u32,
    /// name of the point, and of its folder
    pub id: String,
    /// place in the order of the sweep, from 0
    pub order: u32,
    /// all that was set
    pub setting: Setting,
    /// wall time of the load's start, from which `at_s` of the monitor counts; nanoseconds after 1970
    pub started_unix_ns: u64,
    /// length of the run, seconds; virtual ones where it was simulated
    pub seconds: f64,
    /// what hooks said or a source did not tell, for people to read
    #[serde(default)]
    pub notes: Vec<String>,
}
