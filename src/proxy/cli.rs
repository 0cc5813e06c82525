//! `evenkeel serve`.

use std::path::PathBuf;

use anyhow::Context as _;

use super::server::Server;

/// Put Evenkeel in front of a fleet.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// Configuration file (TOML); `evenkeel check FILE` says what is wrong with one
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Serves until SIGTERM or SIGINT, then drains.
pub fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let config = crate::config::load(&args.config)?;
    crate::log::set_level(&config.log.level);
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    raise_descriptor_limit();
    let running = Server::start(config)?;
    running
        .print_addresses()
        .context("cannot print the addresses to standard output")?;
    wait_for_signal()?;
    tracing::info!("stopping: open requests may end within timeouts.drain_s");
    running.shutdown();
    Ok(())
}

/// Each live stream takes two descriptors.
fn raise_descriptor_limit() {
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(limit) => tracing::info!(limit, "file descriptors"),
        Err(error) => tracing::warn!(%error, "could not raise the limit of file descriptors"),
    }
}

fn wait_for_signal() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        anyhow::Ok(())
    })
}
