//! Who runs on which core: the proxy on core 0, engine and client on core 1.

use anyhow::{Context as _, ensure};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

const PROXY: usize = 0;
const LOAD: usize = 1;

/// Holds this thread, and all that it starts, to the core of engine and client.
pub fn hold_load() -> anyhow::Result<()> {
    let mine = sched_getaffinity(Pid::from_raw(0))?;
    ensure!(
        mine.is_set(PROXY)? && mine.is_set(LOAD)?,
        "cores 0 and 1 are needed; use --shape defaults where there is only one"
    );
    hold_to(LOAD)
}

/// Starts something on the proxy's core: a child has the core of the thread that made it.
pub fn as_proxy<T>(start: impl FnOnce() -> T) -> anyhow::Result<T> {
    hold_to(PROXY)?;
    let started = start();
    hold_to(LOAD)?;
    Ok(started)
}

/// Starts something on all cores, from a thread that is held to one.
pub fn unheld<T>(start: impl FnOnce() -> T) -> anyhow::Result<T> {
    let mine = sched_getaffinity(Pid::from_raw(0))?;
    let mut all = CpuSet::new();
    for core in 0..CpuSet::count() {
        all.set(core)?;
    }
    sched_setaffinity(Pid::from_raw(0), &all)?;
    let started = start();
    sched_setaffinity(Pid::from_raw(0), &mine)?;
    Ok(started)
}

fn hold_to(core: usize) -> anyhow::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core)?;
    sched_setaffinity(Pid::from_raw(0), &cores)
        .with_context(|| format!("cannot hold a thread to core {core}"))
}
