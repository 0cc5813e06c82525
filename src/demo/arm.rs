//! One policy's turn: fresh engines, the proxy before them, the plan sent through it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::DemoError;
use super::options::SHORT_MAX_TOKENS;
use super::records::{self, Joined};
use crate::engine::apart::EnginesApart;
use crate::engine::profile::Profile;
use crate::engine::server::{EngineOptions, LagSummary};
use crate::load::client::ClientOptions;
use crate::load::progress::RunProgress;
use crate::load::request::RequestForm;
use crate::load::runner::{self, Pace, Run, RunSpec, SendLag};
use crate::load::workload::PlannedRequest;
use crate::proxy::server::Server;

/// The engines' hardware profile.
pub const PROFILE: &str = "demo-small";
/// Requests the load client leaves unanswered at most; far above what the load needs.
const MAX_IN_FLIGHT: usize = 4096;
/// How often progress is shown.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// What one policy is run with.
#[derive(Debug, Clone)]
pub struct Arm {
    /// name of the policy
    pub policy: String,
    /// seed of the engines, the proxy and the plan
    pub seed: u64,
    /// the requests
    pub plan: Arc<[PlannedRequest]>,
    /// how many times as long each instance's steps last
    pub slow_factors: Vec<f64>,
    /// folder of its records
    pub dir: PathBuf,
}

/// What one policy's turn left.
#[derive(Debug)]
pub struct ArmRun {
    /// name of the policy
    pub policy: String,
    /// the seed
    pub seed: u64,
    /// every request of the plan that was sent
    pub requests: Vec<Joined>,
    /// how late the engines' steps were
    pub engine_lag: LagSummary,
    /// how late requests were sent
    pub send_lag: Option<SendLag>,
    /// records that the proxy's writer dropped
    pub records_dropped: u64,
}

/// Names of the instances, in order.
pub fn instance_names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|index| format!("sim-{index}"))
}

/// Runs the arm to its last answer. `show` is called while it goes on.
pub fn run(arm: &Arm, show: impl FnMut(&RunProgress)) -> Result<ArmRun, DemoError> {
    let engines = start_engines(arm)?;
    let text = config_text(arm, engines.addrs());
    let name = format!("the demo's configuration for {}", arm.policy);
    let proxy = Server::start(crate::config::parse(&text, &name)?)?;
    let id_prefix = format!("{}-{}-", arm.policy, arm.seed);
    let host = proxy.server_addr.to_string();
    let form = RequestForm::chat(host, PROFILE.to_owned(), id_prefix.clone());
    let load = Run::start(RunSpec {
        target: proxy.server_addr,
        requests: runner::planned(Arc::clone(&arm.plan)),
        render: Box::new(move |request| form.render(request)),
        pace: Pace::Schedule,
        max_in_flight: MAX_IN_FLIGHT,
        client: ClientOptions::default(),
    })?;
    watch(&load, show);
    let result = load.join()?;
    proxy.flush_records();
    let records_dropped = proxy
        .shared()
        .records
        .as_ref()
        .map_or(0, |records| records.dropped());
    proxy.shutdown();
    let engine_lag = engines.stop();
    Ok(ArmRun {
        policy: arm.policy.clone(),
        seed: arm.seed,
        requests: records::join(
            &arm.plan,
            result.samples,
            records::read_dir(&arm.dir)?,
            &id_prefix,
        ),
        engine_lag,
        send_lag: result.lag,
        records_dropped,
    })
}

fn watch(load: &Run, mut show: impl FnMut(&RunProgress)) {
    while !load.is_finished() {
        show(&load.progress);
        std::thread::sleep(PROGRESS_EVERY);
    }
    show(&load.progress);
}

/// Fresh engines for the arm.
fn start_engines(arm: &Arm) -> Result<EnginesApart, DemoError> {
    let mut options = EngineOptions::new(Profile::load(PROFILE)?, arm.slow_factors.len());
    options.speed_factors.clone_from(&arm.slow_factors);
    options.seed = arm.seed;
    Ok(EnginesApart::start(options)?)
}

/// The configuration of the arm's proxy, as a user would write it.
fn config_text(arm: &Arm, engines: &[SocketAddr]) -> String {
    let instances: String = instance_names(engines.len())
        .zip(engines)
        .map(|(name, addr)| {
            format!("\n[[pools.instances]]\nname = \"{name}\"\nurl = \"http://{addr}\"\n")
        })
        .collect();
    format!(
        "seed = {seed}\n\n[server]\nlisten = \"127.0.0.1:0\"\n\n[admin]\nlisten = \"127.0.0.1:0\"\n\n[records]\ndir = {dir}\nchunks = \"all\"\n\n[[pools]]\nname = \"demo\"\npolicy = {policy}\n{instances}",
        // TOML has no integers above 63 bits.
        seed = arm.seed & (i64::MAX as u64),
        dir = toml_string(&arm.dir),
        policy = policy_text(&arm.policy),
    )
}

fn policy_text(policy: &str) -> String {
    if policy == "lanes" {
        return format!(
            "{{ kind = \"lanes\", lanes = [{{ name = \"short\", max_tokens = {SHORT_MAX_TOKENS}, reserve = 0.25 }}, {{ name = \"long\" }}] }}"
        );
    }
    format!("{{ kind = \"{policy}\" }}")
}

fn toml_string(path: &Path) -> String {
    toml::Value::from(path.display().to_string()).to_string()
}
