//! One line on a terminal while a run goes on; nothing where there is no terminal.

use std::io::IsTerminal;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::load::progress::RunProgress;

/// What a run shows of itself.
pub struct Shown {
    line: Option<ProgressBar>,
}

impl Shown {
    /// Begins to show a run.
    pub fn begin() -> Shown {
        let line = std::io::stderr().is_terminal().then(line);
        Shown { line }
    }

    /// Shows how far it is.
    pub fn show(&self, progress: &RunProgress) {
        if let Some(line) = &self.line {
            let (started, ended) = (progress.started.load(Relaxed), progress.ended.load(Relaxed));
            line.set_message(format!(
                "{started} sent, {ended} answered, {} in flight, {} failed",
                started.saturating_sub(ended),
                progress.failed.load(Relaxed)
            ));
        }
    }

    /// Takes the line away.
    pub fn end(self) {
        if let Some(line) = self.line {
            line.finish_and_clear();
        }
    }
}

fn line() -> ProgressBar {
    let line = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed}  {msg}") {
        line.set_style(style);
    }
    line.enable_steady_tick(Duration::from_millis(200));
    line
}
