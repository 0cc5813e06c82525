//! What a server got done in a stretch of time. Pure.
//!
//! Work is counted where it was done, whoever asked for it: an answer in the second it ended, tokens in
//! the seconds their chunks came. Requests issued before the window that end inside it count, those that
//! end after it do not, so neither ramp nor drain enters.

use std::borrow::Borrow;

use serde::Serialize;

use super::latency::output_tokens;
use super::window::{Window, entered_ns};
use crate::load::sample::Sample;

/// Work done in a window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Throughput {
    /// length of the window
    pub seconds: f64,
    /// complete answers that ended in it
    pub completed: u64,
    /// prompt tokens of answers whose first output came in it, as `usage` or else the plan has them
    pub input_tokens: u64,
    /// output tokens whose chunks came in it
    pub output_tokens: f64,
    /// output tokens of the window's best second; `None` in a window under a second
    pub peak_output_tokens_per_s: Option<f64>,
    /// most requests open at once in it
    pub max_concurrent: u64,
}

impl Throughput {
    /// Work of a whole run that falls into the window; `None` if the window has no length.
    pub fn of<S: Borrow<Sample>>(samples: &[S], window: &Window) -> Option<Throughput> {
        let seconds = window.length_s();
        if seconds <= 0.0 {
            return None;
        }
        let inside = |at_ns: u64| (window.from_ns..=window.until_ns).contains(&at_ns);
        let all = || samples.iter().map(Borrow::borrow);
        let complete = || all().filter(|sample: &&Sample| sample.failure.is_none());
        let begun = complete().filter(|sample| sample.first_output_ns.is_some_and(inside));
        let mut output = OutputTokens::new(window);
        complete().for_each(|sample| output.add(sample));
        Some(Throughput {
            seconds,
            completed: complete().filter(|sample| inside(sample.end_ns)).count() as u64,
            input_tokens: begun.map(prompt_tokens).sum(),
            output_tokens: output.sum,
            peak_output_tokens_per_s: output.peak(),
            max_concurrent: max_concurrent(all(), window),
        })
    }

    /// Complete answers a second.
    pub fn requests_per_s(&self) -> f64 {
        self.completed as f64 / self.seconds
    }

    /// Output tokens a second.
    pub fn output_tokens_per_s(&self) -> f64 {
        self.output_tokens / self.seconds
    }

    /// Prompt and output tokens a second.
    pub fn tokens_per_s(&self) -> f64 {
        (self.input_tokens as f64 + self.output_tokens) / self.seconds
    }
}

fn prompt_tokens(sample: &Sample) -> u64 {
    sample
        .prompt_tokens
        .unwrap_or(u64::from(sample.planned_prompt_tokens))
}

/// When each output chunk came, and its tokens: an equal share of the answer's.
pub fn chunks(sample: &Sample) -> impl Iterator<Item = (u64, f64)> {
    let ends = sample.first_output_ns.zip(sample.last_output_ns);
    let known = output_tokens(sample).zip(ends);
    known.into_iter().flat_map(|(tokens, (first_ns, last_ns))| {
        let share = tokens as f64 / (sample.gaps_us.len() + 1) as f64;
        let later = sample.gaps_us.iter().scan(first_ns, move |at_ns, gap_us| {
            *at_ns += u64::from(*gap_us) * 1000;
            // Gaps are in whole µs: the sum may pass the last stamp by less than one.
            Some((*at_ns).min(last_ns))
        });
        let all = std::iter::once(first_ns).chain(later);
        all.map(move |at_ns| (at_ns, share))
    })
}

/// Tokens by the second they came in.
struct OutputTokens<'a> {
    window: &'a Window,
    sum: f64,
    by_second: Vec<f64>,
}

impl<'a> OutputTokens<'a> {
    fn new(window: &'a Window) -> OutputTokens<'a> {
        OutputTokens {
            window,
            sum: 0.0,
            by_second: Vec::new(),
        }
    }

    fn add(&mut self, sample: &Sample) {
        for (at_ns, tokens) in chunks(sample) {
            self.add_chunk(at_ns, tokens);
        }
    }

    fn add_chunk(&mut self, at_ns: u64, tokens: f64) {
        if !(self.window.from_ns..=self.window.until_ns).contains(&at_ns) {
            return;
        }
        self.sum += tokens;
        let second = ((at_ns - self.window.from_ns) / 1_000_000_000) as usize;
        if self.by_second.len() <= second {
            self.by_second.resize(second + 1, 0.0);
        }
        self.by_second[second] += tokens;
    }

    fn peak(&self) -> Option<f64> {
        let whole_seconds = self.window.length_s() as usize;
        let seconds = self.by_second.iter().take(whole_seconds).copied();
        seconds.reduce(f64::max)
    }
}

fn max_concurrent<'a>(samples: impl Iterator<Item = &'a Sample>, window: &Window) -> u64 {
    let mut turns = Vec::new();
    for sample in samples {
        let (from_ns, to_ns) = (entered_ns(sample), sample.end_ns);
        if from_ns <= window.until_ns && to_ns >= window.from_ns {
            turns.push((from_ns.max(window.from_ns), 1_i64));
            turns.push((to_ns, -1));
        }
    }
    // At the same time, ends come first: a place that is handed on is one place.
    turns.sort_unstable();
    let (mut open, mut most) = (0_i64, 0_i64);
    for (_, turn) in turns {
        open += turn;
        most = most.max(open);
    }
    most.unsigned_abs()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::load::sample::Failure;
    use crate::report::sample_of;

    fn window(from_ms: u64, until_ms: u64) -> Window {
        Window {
            from_ns: from_ms * 1_000_000,
            to_ns: until_ms * 1_000_000,
            until_ns: until_ms * 1_000_000,
            trim_s: 0.0,
            issued_over_s: 0.0,
        }
    }

    #[test]
    fn work_counts_where_it_was_done() {
        // Three chunks each, at 500, 1000 and 1500 ms after issue.
        let before = sample_of(0, 500, 500, &[500, 500], 0);
        let inside = sample_of(1, 1_600, 500, &[500, 500], 0);
        let after = sample_of(2, 2_800, 500, &[500, 500], 0);
        let mut failed = sample_of(3, 1_600, 500, &[500, 500], 0);
        failed.failure = Some(Failure::Cut);
        let samples = [before, inside, after, failed];
        let done = Throughput::of(&samples, &window(1_500, 3_500)).unwrap();
        assert_eq!((done.seconds, done.completed), (2.0, 2));
        assert_eq!((done.input_tokens, done.output_tokens), (200, 6.0));
        assert_eq!(done.peak_output_tokens_per_s, Some(3.0));
        assert_eq!(done.max_concurrent, 3);
        assert_eq!((done.requests_per_s(), done.tokens_per_s()), (1.0, 103.0));
    }

    #[test]
    fn a_window_without_length_has_no_throughput() {
        assert_eq!(Throughput::of::<Sample>(&[], &window(1_000, 1_000)), None);
    }

    #[test]
    fn tokens_of_fewer_chunks_are_spread_over_them() {
        let mut sample = sample_of(0, 1_000, 500, &[1_000], 0);
        sample.output_tokens = Some(10);
        let done = Throughput::of(&[sample], &window(0, 2_000)).unwrap();
        assert_eq!(done.output_tokens, 5.0);
    }
}
