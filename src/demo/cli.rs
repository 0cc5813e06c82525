//! `evenkeel demo` from its options to the last line.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::arm::{self, Arm, ArmRun, PROFILE};
use super::options::DemoArgs;
use super::progress::TurnProgress;
use super::summary::{Settings, Summary};
use super::{DemoError, words};

/// Runs the demo and prints what it found.
pub fn run(args: &DemoArgs) -> Result<(), DemoError> {
    let dir = folder(args)?;
    let settings = Settings {
        seeds: args.all_seeds(),
        seconds: args.seconds,
        warm_up_s: args.warm_up_s(),
        workload: args.workload(),
        profile: PROFILE.to_owned(),
        slow_factors: args.slow_factors(),
    };
    println!("{}\n", words::opening(&settings, &args.policies, &dir));
    let runs = run_all(args, &settings, &dir)?;
    let summary = Summary::of(settings, &runs);
    let path = dir.join("summary.json");
    std::fs::write(&path, serde_json::to_string_pretty(&summary)?)
        .map_err(|source| DemoError::File { path, source })?;
    println!("\n{}", words::closing(&summary, &dir));
    Ok(())
}

/// A new folder, or the one asked for if it is empty.
fn folder(args: &DemoArgs) -> Result<PathBuf, DemoError> {
    let dir = args.out.clone().unwrap_or_else(|| {
        let now_s = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        PathBuf::from(format!("evenkeel-demo-{now_s}"))
    });
    let failed = |source| DemoError::File {
        path: dir.clone(),
        source,
    };
    std::fs::create_dir_all(&dir).map_err(failed)?;
    if std::fs::read_dir(&dir).map_err(failed)?.next().is_some() {
        return Err(DemoError::NotEmpty(dir));
    }
    Ok(dir)
}

/// Every seed, and for each every policy. Later seeds begin with another policy, so that a drift of
/// the machine does not always meet the same one.
fn run_all(args: &DemoArgs, settings: &Settings, dir: &Path) -> Result<Vec<ArmRun>, DemoError> {
    let mut runs = Vec::new();
    for (turn, seed) in settings.seeds.iter().copied().enumerate() {
        let plan: Arc<[_]> = settings
            .workload
            .plan(seed, (settings.seconds * 1e9) as u64)?
            .into();
        for offset in 0..args.policies.len() {
            let policy = &args.policies[(turn + offset) % args.policies.len()];
            let arm = Arm {
                policy: policy.clone(),
                seed,
                plan: Arc::clone(&plan),
                slow_factors: settings.slow_factors.clone(),
                dir: arm_folder(settings, dir, seed, policy),
            };
            let title = format!("{policy} (seed {seed})");
            let mut shown = TurnProgress::begin(title, plan.len() as u64);
            runs.push(arm::run(&arm, |progress| shown.show(progress))?);
            shown.end();
        }
    }
    Ok(runs)
}

fn arm_folder(settings: &Settings, dir: &Path, seed: u64, policy: &str) -> PathBuf {
    if settings.seeds.len() == 1 {
        return dir.join(policy);
    }
    dir.join(format!("seed-{seed}")).join(policy)
}
