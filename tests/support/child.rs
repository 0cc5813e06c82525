//! `evenkeel serve` as a process of its own, for what only a process shows: memory, output, signals.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use super::proxy::{Dir, Setup};
use super::{PATIENCE, within};

/// The program.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_evenkeel");

/// A process that serves; it is killed when dropped.
pub struct Child {
    /// where clients go
    pub addr: SocketAddr,
    /// where operators go
    pub admin: SocketAddr,
    /// the first line it wrote
    pub line: String,
    process: std::process::Child,
    dir: Dir,
}

impl Child {
    /// Starts it and reads where it listens.
    pub fn serve(setup: &Setup) -> Child {
        Child::serve_with(setup, |_, _| {})
    }

    /// The same, with changes to the command; they are told the folder of its files.
    pub fn serve_with(setup: &Setup, change: impl FnOnce(&mut Command, &Path)) -> Child {
        let dir = Dir::new();
        let file = dir.file();
        std::fs::write(&file, setup.text(&dir.0)).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--config"]).arg(&file);
        change(&mut command, &dir.0);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(process.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let addr = |key: &str| {
            let word = line.split_whitespace().find_map(|w| w.strip_prefix(key));
            let word = word.unwrap_or_else(|| panic!("no {key} in {line:?}"));
            word.parse().unwrap()
        };
        Child {
            addr: addr("server="),
            admin: addr("admin="),
            line: line.clone(),
            process,
            dir,
        }
    }

    /// The folder of its files.
    pub fn dir(&self) -> &Path {
        &self.dir.0
    }

    /// Puts another configuration in the place of the first; nobody is told.
    pub fn rewrite(&self, text: &str) {
        self.dir.rewrite(text);
    }

    /// Its records so far.
    pub fn records(&self) -> Vec<serde_json::Value> {
        super::proxy::records_in(&self.dir.0)
    }

    /// Lines of its chunk files so far.
    pub fn chunk_lines(&self) -> Vec<serde_json::Value> {
        super::proxy::chunk_lines_in(&self.dir.0)
    }

    /// A line of /proc/PID/status that is given in kB.
    pub fn memory_kb(&self, key: &str) -> u64 {
        let path = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let figure = line.unwrap().trim_start_matches(':').trim();
        figure.trim_end_matches("kB").trim().parse().unwrap()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Memory in use now.
    pub fn resident_kb(&self) -> u64 {
        self.memory_kb("VmRSS")
    }

    /// The most memory that was in use since the last [`Child::forget_peak`].
    pub fn peak_kb(&self) -> u64 {
        self.memory_kb("VmHWM")
    }

    /// The peak begins anew.
    pub fn forget_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.process.id()), "5").unwrap();
    }

    /// CPU time used so far, user and system.
    pub fn cpu(&self) -> Duration {
        let path = format!("/proc/{}/stat", self.process.id());
        let stat = std::fs::read_to_string(path).unwrap();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10)
    }

    /// Sends it a signal by name.
    pub fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// Stops it; returns when none of its threads runs any more. `CONT` lets it go on.
    pub async fn stop(&self) {
        self.signal("STOP");
        let stopped = async {
            while !self.is_stopped() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within("all threads to stop", PATIENCE, stopped).await;
    }

    fn is_stopped(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        tasks.flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with('T'))
        })
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs the program to its end: exit status, standard output, standard error.
pub fn run(args: &[&str]) -> (ExitStatus, String, String) {
    run_with(args, "")
}

/// The same, with something on its standard input.
pub fn run_with(args: &[&str], input: &str) -> (ExitStatus, String, String) {
    let mut process = Command::new(PROGRAM)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let (mut out, mut err) = (String::new(), String::new());
    process
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut out)
        .unwrap();
    process
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut err)
        .unwrap();
    (process.wait().unwrap(), out, err)
}
