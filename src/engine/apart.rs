//! Engines on a runtime of their own, so that whoever asks them does not delay their steps.

use std::net::SocketAddr;

use tokio::runtime::{Builder, Runtime};

use super::EngineError;
use super::server::{self, EngineOptions, LagSummary, RunningEngines};

/// Instances that serve until [`EnginesApart::stop`] or drop.
pub struct EnginesApart {
    runtime: Runtime,
    running: RunningEngines,
}

impl EnginesApart {
    /// Opens all listeners and serves.
    pub fn start(options: EngineOptions) -> Result<EnginesApart, EngineError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("engines")
            .enable_all()
            .build()
            .map_err(EngineError::Start)?;
        let running = runtime.block_on(server::start(options))?;
        Ok(EnginesApart { runtime, running })
    }

    /// Where they listen, in their order.
    pub fn addrs(&self) -> &[SocketAddr] {
        self.running.addrs()
    }

    /// Ends them; how late their steps were.
    pub fn stop(self) -> LagSummary {
        let lag = self.running.lag();
        self.runtime.block_on(self.running.shutdown());
        lag
    }
}
