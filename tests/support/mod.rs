//! What the end-to-end tests stand on: a scripted upstream, raw clients, and the proxy in between.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

pub mod child;
pub mod client;
pub mod client_h2;
pub mod fault;
pub mod fault_pipe;
pub mod fault_proxy;
pub mod frames;
pub mod http1;
pub mod proxy;
pub mod reply;
pub mod tls;
pub mod upstream;

use std::time::Duration;

/// Longest wait for something that is bound to come; past it the test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for `future`, and fails the test by name if it does not come.
pub async fn within<T>(what: &str, limit: Duration, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {limit:?} in vain for {what}"),
    }
}
