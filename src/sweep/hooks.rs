//! Shell commands that start, restart and stop somebody's fleet.
//!
//! What a command writes goes into a file and not through a pipe: a server that it leaves running keeps the file open
//! and holds nobody up.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::SweepError;
use super::interrupt::Interrupt;
use crate::study::Setting;

/// What is shown of a failed command's output.
const SHOWN_BYTES: u64 = 2_000;

/// A command to run.
pub struct Hook<'a> {
    /// `start`, `restart` or `stop`
    pub which: &'static str,
    /// for the shell
    pub command: &'a str,
    /// what it finds in its environment
    pub environment: &'a [(String, String)],
    /// longest it may take
    pub limit: Duration,
    /// file that what it writes is added to
    pub log: &'a Path,
}

/// What a command is told of the point it is run for.
pub fn environment(id: &str, setting: &Setting) -> Vec<(String, String)> {
    let mut pairs = vec![
        ("EVENKEEL_POINT".to_owned(), id.to_owned()),
        (
            "EVENKEEL_INSTANCES".to_owned(),
            setting.instances.to_string(),
        ),
        (
            "EVENKEEL_GPUS".to_owned(),
            setting.gpus_per_instance.to_string(),
        ),
        ("EVENKEEL_POLICY".to_owned(), setting.policy.clone()),
        ("EVENKEEL_VARIANT".to_owned(), setting.variant.clone()),
    ];
    for (key, value) in &setting.engine {
        let fit = |c: char| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        };
        let name: String = key.chars().map(fit).collect();
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        pairs.push((format!("EVENKEEL_ENGINE_{name}"), text));
    }
    pairs
}

impl Hook<'_> {
    /// Runs it to its end, and tells how that went; `None` if it was interrupted.
    pub fn run(&self, interrupt: &Interrupt) -> Result<Option<String>, SweepError> {
        let known = interrupt.times();
        let mut log = self.open()?;
        let from = log
            .seek(SeekFrom::End(0))
            .map_err(SweepError::file(self.log))?;
        let begun = Instant::now();
        let mut child = self.spawn(&log)?;
        let ended = loop {
            if let Some(status) = child.try_wait().map_err(SweepError::Start)? {
                break Some(status);
            }
            if interrupt.is_above_after_a_look(known) {
                kill_group(&mut child);
                return Ok(None);
            }
            if begun.elapsed() > self.limit {
                kill_group(&mut child);
                break None;
            }
        };
        let seconds = begun.elapsed().as_secs_f64();
        match ended {
            Some(status) if status.success() => {
                Ok(Some(format!("hook {}: done in {seconds:.1} s", self.which)))
            }
            other => Err(self.failed(other, from)),
        }
    }

    fn open(&self) -> Result<File, SweepError> {
        let open = || {
            let mut log = File::options()
                .create(true)
                .append(true)
                .read(true)
                .open(self.log)?;
            writeln!(log, "== {}: {}", self.which, self.command)?;
            Ok(log)
        };
        open().map_err(SweepError::file(self.log))
    }

    fn spawn(&self, log: &File) -> Result<Child, SweepError> {
        let writes = || log.try_clone().map_err(SweepError::file(self.log));
        Command::new("sh")
            .args(["-c", self.command])
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(writes()?)
            .stderr(writes()?)
            // Ctrl-C at the terminal is for the sweep, which then stops the fleet in its own way.
            .process_group(0)
            .spawn()
            .map_err(SweepError::Start)
    }

    fn failed(&self, ended: Option<ExitStatus>, from: u64) -> SweepError {
        let why = match ended {
            None => format!("took longer than {} s", self.limit.as_secs_f64()),
            Some(status) => match status.code() {
                Some(code) => format!("failed with exit code {code}"),
                None => format!("was ended by a signal ({status})"),
            },
        };
        let output = match tail(self.log, from) {
            Ok(text) if !text.trim().is_empty() => format!("It wrote:\n{}", text.trim_end()),
            _ => "It wrote nothing.".to_owned(),
        };
        SweepError::Hook {
            which: self.which,
            command: self.command.to_owned(),
            why,
            output,
            log: self.log.to_owned(),
        }
    }
}

/// The end of what was written since.
fn tail(log: &Path, from: u64) -> std::io::Result<String> {
    let mut file = File::open(log)?;
    let end = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(from.max(end.saturating_sub(SHOWN_BYTES))))?;
    let mut bytes = Vec::new();
    file.take(SHOWN_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Ends the command with all that it began.
fn kill_group(child: &mut Child) {
    let group = format!("-{}", child.id());
    let _ = Command::new("kill")
        .args(["-s", "KILL", "--", &group])
        .stderr(Stdio::null())
        .status();
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn run(command: &str, limit: Duration) -> (Result<Option<String>, SweepError>, String) {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("hooks.log");
        let hook = Hook {
            which: "start",
            command,
            environment: &[("EVENKEEL_INSTANCES".into(), "3".into())],
            limit,
            log: &log,
        };
        let ended = hook.run(&Interrupt::default());
        (ended, std::fs::read_to_string(&log).unwrap())
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_command_finds_its_point_and_what_it_writes_is_kept() {
        let (ended, log) = run("echo $EVENKEEL_INSTANCES; echo oops >&2", LONG);
        assert!(ended.unwrap().unwrap().starts_with("hook start: done"));
        assert!(log.ends_with("\n3\noops\n"), "{log}");
    }

    #[test]
    fn a_failed_command_is_shown_with_its_output_and_what_to_do() {
        let (ended, _) = run("echo no GPU is free; exit 3", LONG);
        let said = ended.unwrap_err().to_string();
        for word in [
            "`start` failed with exit code 3",
            "echo no GPU",
            "no GPU is free\n",
            "run the same sweep again",
        ] {
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn a_command_that_does_not_end_is_ended_with_its_children() {
        let (ended, _) = run("sleep 1000 & wait", Duration::from_millis(60));
        let said = ended.unwrap_err().to_string();
        assert!(said.contains("took longer than 0.06 s"), "{said}");
    }

    #[test]
    fn a_server_left_running_holds_nobody_up() {
        let (ended, log) = run("sleep 1000 & echo pid $!", LONG);
        assert!(ended.unwrap().is_some());
        let pid = log
            .lines()
            .find_map(|line| line.strip_prefix("pid "))
            .unwrap();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
    }
}
