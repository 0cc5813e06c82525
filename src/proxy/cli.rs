//! `evenkeel serve`.

use std::path::PathBuf;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::server::{Running, Server};

/// Put Evenkeel in front of a fleet.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// Configuration file (TOML); `evenkeel check FILE` says what is wrong with one
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Serves until SIGTERM or SIGINT, then drains. SIGHUP reads the configuration again.
pub fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let config = crate::config::load(&args.config)?;
    crate::log::set_level(&config.log.level);
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // before anybody can know that we are here
    let inside = runtime.enter();
    let mut signals = Signals::catch()?;
    drop(inside);
    let running = Server::start_from(config, Some(args.config.clone()))?;
    running
        .print_addresses()
        .context("cannot print the addresses to standard output")?;
    runtime.block_on(async {
        signals.reload_until_stop(&running).await;
        tracing::info!(
            "stopping: open requests may end within timeouts.drain_s; a second signal ends them now"
        );
        let stopping = tokio::task::spawn_blocking(move || running.shutdown());
        tokio::select! {
            _ = stopping => {}
            () = signals.stop() => {
                tracing::warn!("stopped by a second signal; open requests are cut");
                std::process::exit(1);
            }
        }
    });
    Ok(())
}

/// The signals that mean something to us.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn catch() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn reload_until_stop(&mut self, running: &Running) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                // what came of it is in the log
                _ = self.hang_up.recv() => drop(running.shared().reload("SIGHUP")),
            }
        }
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Each live stream takes two descriptors.
fn raise_descriptor_limit() {
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(limit) => tracing::info!(limit, "file descriptors"),
        Err(error) => tracing::warn!(%error, "could not raise the limit of file descriptors"),
    }
}
