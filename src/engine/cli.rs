//! `evenkeel engine`: simulated instances until interrupted.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;

use super::EngineError;
use super::profile::{Batching, Profile};
use super::server::{self, EngineOptions};

/// What an instance shows beside vLLM's paths.
const PATHS: &str = "\
Each instance shows, beside vLLM's paths:
  /metrics       vLLM's names, and process_cpu_seconds_total of the CPU that is simulated
  /dcgm/metrics  its GPUs, with the names and labels of NVIDIA's DCGM exporter; shares are those of the last second
  /node/metrics  the cores of the profile's [cpu] table, if it has one, with node-exporter's names
  /admin/fault   faults on demand";

/// Serve simulated engines that speak vLLM's wire shape.
#[derive(Debug, clap::Args)]
#[command(after_help = PATHS)]
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
    /// GPUs of each instance, which share every layer; KV blocks grow with them
    #[arg(long, alias = "tensor-parallel-size")]
    pub gpus: Option<u32>,
    /// Most sequences in a batch [default: the profile's]
    #[arg(long)]
    pub max_num_seqs: Option<u32>,
    /// Most tokens computed in a step [default: the profile's]
    #[arg(long)]
    pub max_num_batched_tokens: Option<u32>,
    /// Most tokens of a sequence [default: the profile's]
    #[arg(long)]
    pub max_model_len: Option<u32>,
    /// KV blocks of each instance, over all its GPUs [default: the profile's]
    #[arg(long, alias = "num-gpu-blocks-override")]
    pub kv_blocks: Option<u32>,
    /// Whether a request joins the running batch, or waits until that has ended
    #[arg(long)]
    pub batching: Option<Batching>,
    /// Another key of the profile, such as cpu.cores=1 or link.gb_per_s=8; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
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

/// The keys of the profile that options set otherwise.
fn settings(args: &EngineArgs) -> Result<BTreeMap<String, toml::Value>, EngineError> {
    let mut settings = BTreeMap::new();
    for given in &args.set {
        let (key, value) = setting(given)?;
        settings.insert(key, value);
    }
    let numbers = [
        ("gpus", args.gpus),
        ("max_num_seqs", args.max_num_seqs),
        ("max_num_batched_tokens", args.max_num_batched_tokens),
        ("max_model_len_tokens", args.max_model_len),
        ("kv_blocks", args.kv_blocks),
    ];
    for (key, value) in numbers {
        if let Some(value) = value {
            settings.insert(key.to_owned(), i64::from(value).into());
        }
    }
    if let Some(batching) = args.batching {
        settings.insert("batching".to_owned(), batching.name().into());
    }
    Ok(settings)
}

/// `KEY=VALUE`, the value as TOML has it; a word needs no quotes.
fn setting(given: &str) -> Result<(String, toml::Value), EngineError> {
    let Some((key, value)) = given
        .split_once('=')
        .filter(|(key, _)| !key.trim().is_empty())
    else {
        let text = format!("--set `{given}` is no KEY=VALUE: write it as cpu.cores=1");
        return Err(EngineError::Options(text));
    };
    let document = format!("value = {value}").parse::<toml::Table>();
    let value = document.ok().and_then(|mut table| table.remove("value"));
    let value = value.unwrap_or_else(|| given[key.len() + 1..].trim().into());
    Ok((key.trim().to_owned(), value))
}

/// Runs until SIGINT or SIGTERM.
pub fn run(args: EngineArgs) -> anyhow::Result<()> {
    let profile = Profile::load(&args.profile)?.with(&settings(&args)?)?;
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        engine: EngineArgs,
    }

    fn profile(options: &str) -> Result<Profile, EngineError> {
        let words = std::iter::once("engine").chain(options.split_whitespace());
        let args = Cli::try_parse_from(words).unwrap().engine;
        Profile::load(&args.profile)?.with(&settings(&args)?)
    }

    #[test]
    fn options_set_keys_of_the_profile() {
        assert_eq!(profile("").unwrap(), Profile::load("demo-small").unwrap());
        let profile = profile(
            "--gpus 2 --max-num-seqs 4 --max-model-len 4096 --kv-blocks 700 --batching static \
             --set link.gb_per_s=8 --set description=mine",
        )
        .unwrap();
        assert_eq!(
            (profile.gpus, profile.max_num_seqs, profile.kv_blocks),
            (2, 4, 700)
        );
        assert_eq!(
            (profile.batching, profile.max_model_len_tokens),
            (Batching::Static, 4096)
        );
        assert_eq!(profile.link.unwrap().gb_per_s, 8.0);
        assert_eq!(profile.description, "mine");
    }

    #[test]
    fn what_cannot_be_set_says_why() {
        let error = |options: &str| profile(options).unwrap_err().to_string();
        assert!(error("--set colour=1").contains("colour"));
        assert!(error("--set cores").contains("KEY=VALUE"));
        assert!(error("--gpus 0").contains("gpus"));
        assert!(error("--set name.x=1").contains("no table"));
        assert!(
            error("--set cpu.cores=1").contains("request_us"),
            "a table must be whole"
        );
    }
}
