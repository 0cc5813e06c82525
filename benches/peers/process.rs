//! A proxy under measurement: its process and those below it, their CPU time and their memory.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use crate::client;

/// A running proxy; dropping it ends its processes.
pub struct Proxy {
    /// where it listens
    pub addr: SocketAddr,
    child: Child,
}

impl Proxy {
    /// Starts `command` by `start` and waits until `addr` answers a request. What it says goes to `log`.
    pub fn start(
        mut command: Command,
        addr: SocketAddr,
        log: &Path,
        start: impl FnOnce(&mut Command) -> anyhow::Result<std::io::Result<Child>>,
    ) -> anyhow::Result<Self> {
        let out = fs::File::create(log)?;
        command.stdin(Stdio::null());
        command.stdout(out.try_clone()?).stderr(out);
        let child = start(&mut command)?
            .with_context(|| format!("{} does not start", command.get_program().display()))?;
        let mut proxy = Self { addr, child };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !client::answers(addr) {
            let ended = proxy.child.try_wait()?;
            if ended.is_some() || Instant::now() > deadline {
                let said = fs::read_to_string(log).unwrap_or_default();
                let lines: Vec<&str> = said.lines().rev().take(5).collect();
                let state = ended.map_or("does not answer".to_owned(), |status| {
                    format!("ended with {status}")
                });
                let last: Vec<&str> = lines.into_iter().rev().collect();
                bail!("it {state}; it said last:\n{}", last.join("\n"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(proxy)
    }

    /// Its process and all below it.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids = vec![self.child.id()];
        let mut next = 0;
        while let Some(pid) = pids.get(next) {
            let tasks = fs::read_dir(format!("/proc/{pid}/task"));
            let children = |task: fs::DirEntry| fs::read_to_string(task.path().join("children"));
            let found: Vec<u32> = tasks
                .into_iter()
                .flatten()
                .flatten()
                .filter_map(|task| children(task).ok())
                .flat_map(|line| {
                    let ids = line.split_whitespace().map(str::parse);
                    ids.flatten().collect::<Vec<u32>>()
                })
                .collect();
            pids.extend(found);
            next += 1;
        }
        pids
    }

    /// CPU time so far in microseconds, as the scheduler counts it, threads that ended included.
    pub fn cpu_us(&self) -> f64 {
        let pids = self.pids().into_iter();
        pids.filter_map(|pid| {
            let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid).ok()?)).ok()?;
            Some(Duration::from(clock.now().ok()?).as_secs_f64() * 1e6)
        })
        .sum()
    }

    /// The sum of a line of `/proc/PID/status` in kilobytes, such as `VmHWM` (peak) or `VmRSS` (now).
    pub fn status_kb(&self, key: &str) -> f64 {
        let pids = self.pids().into_iter();
        pids.filter_map(|pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
            line.trim().trim_end_matches(" kB").parse::<f64>().ok()
        })
        .sum()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // the first of them first, so that it starts no other
        for pid in self.pids() {
            if let Ok(pid) = i32::try_from(pid) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        let _ = self.child.wait();
    }
}
