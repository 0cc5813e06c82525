//! `evenkeel engine`: simulated instances until interrupted.

use std::io::Write;
use std::net::SocketAddr;

use super::profile::Profile;
use super::server::{self, EngineOptions};

/// Serve simulated engines that speak vLLM's wire shape.
#[derive(Debug, clap::Args)]
pub struct EngineArgs {
    /// How many instances to run
    #[arg(long, default_value_t = 1)]
    pub instances: usize,
    /// Address of the first; ports count up from it, port 0 takes any free ones
    #[arg(long, default_value = "127.0.0.1:9000")]
    pub listen: SocketAddr,
    /// Hardware profile: a built-in name or a TOML file
    #[arg(long, default_value = "demo-small")]
    pub profile: String,
    /// How many times slower each instance is, e.g. 1,1,1.6,1
    #[arg(long, value_delimiter = ',')]
    pub speed: Vec<f64>,
    /// Name of the model served [default: the profile's name]
    #[arg(long)]
    pub model: Option<String>,
    /// Seeds output lengths and texts
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// Runs until SIGINT or SIGTERM.
pub fn run(args: EngineArgs) -> anyhow::Result<()> {
    let profile = Profile::load(&args.profile)?;
    let mut options = EngineOptions::new(profile, args.instances);
    options.listen = args.listen;
    options.speed_factors = args.speed;
    options.seed = args.seed;
    if let Some(model) = args.model {
        options.model_name = model;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let engines = server::start(options).await?;
        let mut out = std::io::stdout().lock();
        for (at, addr) in engines.addrs().iter().enumerate() {
            writeln!(out, "engine {at} listening http://{addr}")?;
        }
        out.flush()?;
        drop(out);
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted?,
            _ = terminate.recv() => {}
        }
        let lag = engines.lag();
        engines.shutdown().await;
        if let (Some(p50_ms), Some(p99_ms)) = (lag.p50_ms, lag.p99_ms) {
            let steps = lag.steps;
            writeln!(
                std::io::stderr(),
                "{steps} steps, late by p50 {p50_ms:.2} ms, p99 {p99_ms:.2} ms"
            )?;
        }
        Ok(())
    })
}
