//! What a sweep shows of itself: a bar on a terminal, and a line for each finished point everywhere.

use std::io::IsTerminal;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::plan::Point;
use crate::load::progress::RunProgress;

/// The sweep as it is seen.
pub struct Shown {
    bar: Option<ProgressBar>,
    points: usize,
}

impl Shown {
    /// Begins with `done` of `points` finished before.
    pub fn begin(points: usize, done: usize) -> Shown {
        let bar = std::io::stderr().is_terminal().then(|| bar(points, done));
        Shown { bar, points }
    }

    /// A point is begun.
    pub fn point(&self, point: &Point) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(point.id.clone());
            bar.set_message("");
        }
    }

    /// How far its load is.
    pub fn show(&self, progress: &RunProgress) {
        if let Some(bar) = &self.bar {
            let (started, ended) = (progress.started.load(Relaxed), progress.ended.load(Relaxed));
            bar.set_message(format!(
                "{started} sent, {} in flight, {} failed",
                started.saturating_sub(ended),
                progress.failed.load(Relaxed)
            ));
        }
    }

    /// A point is finished; `words` say what came of it.
    pub fn finished(&self, point: &Point, words: &str) {
        let width = self.points.to_string().len();
        let line = format!(
            "[{:>width$}/{}] {}  {words}",
            point.order + 1,
            self.points,
            point.id
        );
        match &self.bar {
            Some(bar) => {
                bar.suspend(|| println!("{line}"));
                bar.inc(1);
            }
            None => println!("{line}"),
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(points: usize, done: usize) -> ProgressBar {
    let bar = ProgressBar::new(points as u64).with_position(done as u64);
    let template = "{bar:24} {pos}/{len} points, {elapsed} gone  {prefix}: {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
