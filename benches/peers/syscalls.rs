//! System calls an event, counted by the kernel's tracepoints in a short run, apart from the timed rounds.
//!
//! strace would stop the proxy twice a call: it falls behind, and events that came one by one are read together.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
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

/// Calls that read a socket, and those that write one.
const READS: [&str; 4] = ["read", "readv", "recvfrom", "recvmsg"];
const WRITES: [&str; 5] = ["write", "writev", "sendto", "sendmsg", "splice"];
/// How long perf may take to begin.
const BEGIN_WITHIN_MS: u16 = 20_000;

/// Counts them in a shortened run of the cell.
pub fn count(
    (shape, name): (Shape, &str),
    cell: &Cell,
    proxy: &Proxy,
    dir: &Path,
) -> anyhow::Result<Calls> {
    let out = dir.join("perf.csv");
    let counter = Counter::begin(&proxy.pids(), &out, dir)?;
    let loaded = client::run(proxy.addr, &cell.shortened(), || 0.0)?;
    counter.end()?;
    ensure!(
        loaded.failed == 0,
        "streams failed while calls were counted"
    );
    let counted = fs::read_to_string(&out)?;
    let an_event = |wanted: &str| of(&counted, wanted).map(|calls| calls / loaded.events as f64);
    let sum = |names: &[&str]| -> anyhow::Result<f64> {
        names.iter().map(|name| an_event(&exit_of(name))).sum()
    };
    Ok(Calls {
        shape,
        cell: cell.name.clone(),
        proxy: name.to_owned(),
        all: an_event("raw_syscalls:sys_enter")?,
        reads: sum(&READS)?,
        writes: sum(&WRITES)?,
    })
}

/// The tracepoint at the end of a call.
fn exit_of(name: &str) -> String {
    format!("syscalls:sys_exit_{name}")
}

/// A `perf stat` that counts.
struct Counter {
    perf: Child,
}

impl Counter {
    /// Returns once it counts.
    fn begin(pids: &[u32], out: &Path, dir: &Path) -> anyhow::Result<Counter> {
        let (control, acknowledged) = (dir.join("perf-control"), dir.join("perf-ack"));
        for path in [&control, &acknowledged] {
            let _ = fs::remove_file(path);
            nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU)?;
        }
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let mut command = Command::new("perf");
        command.args(["stat", "--delay=-1", "-x,", "-o"]).arg(out);
        command.arg(format!(
            "--control=fifo:{},{}",
            control.display(),
            acknowledged.display()
        ));
        command.args(["-p", &pids.join(","), "-e", "raw_syscalls:sys_enter"]);
        for name in READS.iter().chain(&WRITES) {
            command.args(["-e", &exit_of(name), "--filter", "ret > 0"]);
        }
        let perf = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("perf is missing; install it with: apt-get install linux-perf")?;
        let counter = Counter { perf };
        // Both ends, so that neither open waits for perf.
        let both = |path: &Path| File::options().read(true).write(true).open(path);
        let (mut say, hear) = (both(&control)?, both(&acknowledged)?);
        say.write_all(b"enable\n")?;
        let hear: OwnedFd = hear.into();
        let mut wait = [PollFd::new(hear.as_fd(), PollFlags::POLLIN)];
        ensure!(
            poll(&mut wait, PollTimeout::from(BEGIN_WITHIN_MS))? == 1,
            "perf cannot count the proxy's system calls: it needs root and the kernel's tracepoints"
        );
        BufReader::new(File::from(hear)).read_line(&mut String::new())?;
        Ok(counter)
    }

    fn end(mut self) -> anyhow::Result<()> {
        kill(
            Pid::from_raw(i32::try_from(self.perf.id())?),
            Signal::SIGINT,
        )?;
        self.perf.wait()?;
        Ok(())
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        // Already gone where it ended well.
        let _ = self.perf.kill();
        let _ = self.perf.wait();
    }
}

/// What was counted of one event; lines are `count,unit,event,...`.
fn of(counted: &str, event: &str) -> anyhow::Result<f64> {
    let line = counted
        .lines()
        .find(|line| line.split(',').nth(2) == Some(event))
        .with_context(|| format!("perf counted no {event}"))?;
    let count = line.split(',').next().unwrap_or_default();
    count
        .parse()
        .with_context(|| format!("perf could not count {event}: {count}"))
}
