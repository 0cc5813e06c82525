//! A proxy under measurement: its process, its CPU time and its memory.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running proxy; dropping it ends its process.
pub struct Proxy {
    /// name in the tables
    pub name: String,
    /// where it listens
    pub addr: SocketAddr,
    child: Child,
}

impl Proxy {
    /// Starts `command` and waits until `addr` takes connections.
    pub fn start(name: &str, mut command: Command, addr: SocketAddr) -> Result<Self, String> {
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn();
        let child = child.map_err(|error| format!("{name} did not start: {error}"))?;
        let proxy = Self {
            name: name.to_owned(),
            addr,
            child,
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(addr).is_err() {
            if Instant::now() > deadline {
                return Err(format!("{name} does not listen on {addr}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(proxy)
    }

    /// CPU time of all its threads so far, in microseconds, as the scheduler counts it.
    pub fn cpu_us(&self) -> f64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let on_cpu = |task: fs::DirEntry| {
            let schedstat = fs::read_to_string(task.path().join("schedstat")).ok()?;
            schedstat.split(' ').next()?.parse::<f64>().ok()
        };
        tasks
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(on_cpu)
            .sum::<f64>()
            / 1e3
    }

    /// A line of `/proc/PID/status` in kilobytes, such as `VmHWM` (peak) or `VmRSS` (now).
    pub fn status_kb(&self, key: &str) -> f64 {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
            .unwrap_or(f64::NAN)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
