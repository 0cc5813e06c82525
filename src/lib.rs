//! Evenkeel: a streaming-aware reverse proxy and load balancer for LLM inference fleets that
//! measures what it routes. ARCHITECTURE.md has the map.

pub mod admin;
pub mod bench;
pub mod config;
pub mod demo;
pub mod engine;
pub mod fleet;
pub mod load;
pub mod log;
pub mod measure;
pub mod monitor;
pub mod proxy;
pub mod report;
pub mod simulate;
mod splitmix;
pub mod study;
pub mod sweep;
pub mod tls;
