//! System calls an event, by a short run under strace, apart from the timed rounds.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::args::Shape;
use crate::cells::Cell;
use crate::client;
use crate::process::Proxy;

/// What one event costs in system calls, its share of the request's own included.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Calls {
    pub shape: Shape,
    pub cell: String,
    pub proxy: String,
    /// all, failed ones too
    pub all: f64,
    /// reads that brought something
    pub reads: f64,
    /// writes that took something
    pub writes: f64,
}

/// Counts them in a shortened run of the cell.
pub fn count(
    (shape, name): (Shape, &str),
    cell: &Cell,
    proxy: &Proxy,
    dir: &Path,
) -> anyhow::Result<Calls> {
    let out = dir.join("strace.txt");
    let pids = proxy.pids();
    let mut command = Command::new("strace");
    command.args(["-c", "-f", "-o"]).arg(&out);
    for pid in &pids {
        command.args(["-p", &pid.to_string()]);
    }
    let mut strace = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("strace is missing; install it with: apt-get install strace")?;
    wait_until_traced(&mut strace, &pids)?;
    let loaded = client::run(proxy.addr, &cell.shortened(), || 0.0)?;
    kill(Pid::from_raw(i32::try_from(strace.id())?), Signal::SIGINT)?;
    strace.wait()?;
    ensure!(loaded.failed == 0, "streams failed under strace");
    let events = loaded.events as f64;
    let mut calls = Calls {
        shape,
        cell: cell.name.clone(),
        proxy: name.to_owned(),
        all: 0.0,
        reads: 0.0,
        writes: 0.0,
    };
    for line in fs::read_to_string(&out)?.lines() {
        let Some((name, made, failed)) = parse(line) else {
            continue;
        };
        calls.all += made / events;
        match name {
            "read" | "readv" | "recvfrom" | "recvmsg" => calls.reads += (made - failed) / events,
            "write" | "writev" | "sendto" | "sendmsg" => calls.writes += (made - failed) / events,
            _ => {}
        }
    }
    Ok(calls)
}

fn wait_until_traced(strace: &mut Child, pids: &[u32]) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(5);
    let traced = |pid: &u32| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        let mut status = tasks
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
        status.all(|status| !status.contains("TracerPid:\t0\n"))
    };
    while !pids.iter().all(traced) {
        ensure!(
            strace.try_wait()?.is_none() && Instant::now() < deadline,
            "strace may not look at the proxy"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Name, calls and failed calls of a line of strace's summary.
fn parse(line: &str) -> Option<(&str, f64, f64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let name = *words.last()?;
    words.first()?.parse::<f64>().ok()?;
    let failed = match words.len() {
        6 => words[4].parse().ok()?,
        5 => 0.0,
        _ => return None,
    };
    (name != "total").then_some((name, words[3].parse().ok()?, failed))
}
