//! What is shown while the demo runs: a bar on a terminal, plain lines elsewhere. On standard error.

use std::io::IsTerminal;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::load::progress::RunProgress;

/// Plain lines come this often, in shares of a run.
const LINES_A_RUN: u64 = 4;

/// Shows one policy's turn.
pub struct TurnProgress {
    title: String,
    planned: u64,
    bar: Option<ProgressBar>,
    lines: u64,
}

impl TurnProgress {
    /// Begins to show a turn of `planned` requests.
    pub fn begin(title: String, planned: u64) -> TurnProgress {
        let bar = std::io::stderr()
            .is_terminal()
            .then(|| bar(&title, planned));
        if bar.is_none() {
            eprintln!("{title}: {planned} requests to send");
        }
        TurnProgress {
            title,
            planned,
            bar,
            lines: 0,
        }
    }

    /// Shows how far the turn is.
    pub fn show(&mut self, progress: &RunProgress) {
        let (started, ended) = (progress.started.load(Relaxed), progress.ended.load(Relaxed));
        let failed = progress.failed.load(Relaxed);
        if let Some(bar) = &self.bar {
            bar.set_position(ended);
            bar.set_message(format!(
                "{} in flight, {failed} failed",
                started - ended.min(started)
            ));
            return;
        }
        let reached = ended * LINES_A_RUN / self.planned.max(1);
        if reached > self.lines {
            self.lines = reached;
            eprintln!(
                "{}: {ended} of {} answered, {failed} failed",
                self.title, self.planned
            );
        }
    }

    /// Ends the turn's display.
    pub fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish();
        }
    }
}

fn bar(title: &str, planned: u64) -> ProgressBar {
    let bar = ProgressBar::new(planned);
    if let Ok(style) =
        ProgressStyle::with_template("{prefix:<42} {bar:30} {pos:>5}/{len} answered, {msg}")
    {
        bar.set_style(style);
    }
    bar.set_prefix(title.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
