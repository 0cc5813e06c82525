//! Throughput in equal parts of the measured time: how much it swings, from which intervals are made. Pure.

use serde::Serialize;

use super::throughput::chunks;
use super::window::Window;
use crate::load::sample::Sample;

/// Parts that the window is cut into.
pub const SLICES: usize = 10;

/// A part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Slice {
    /// its length
    pub seconds: f64,
    /// complete answers that ended in it
    pub completed: u64,
    /// output tokens whose chunks came in it
    pub output_tokens: f64,
}

impl Slice {
    /// Output tokens a second.
    pub fn output_tokens_per_s(&self) -> f64 {
        self.output_tokens / self.seconds
    }
}

/// The parts of a window, in order; none if it has no length.
pub fn of(samples: &[&Sample], window: &Window) -> Vec<Slice> {
    let length_ns = window.until_ns.saturating_sub(window.from_ns);
    if length_ns == 0 {
        return Vec::new();
    }
    let mut slices = vec![
        Slice {
            seconds: length_ns as f64 / 1e9 / SLICES as f64,
            ..Slice::default()
        };
        SLICES
    ];
    let place = |at_ns: u64| {
        let after_ns = at_ns.checked_sub(window.from_ns)?;
        let at = (after_ns as f64 / length_ns as f64 * SLICES as f64) as usize;
        (at_ns <= window.until_ns).then(|| at.min(SLICES - 1))
    };
    for sample in samples.iter().filter(|sample| sample.failure.is_none()) {
        if let Some(at) = place(sample.end_ns) {
            slices[at].completed += 1;
        }
        for (at_ns, tokens) in chunks(sample) {
            if let Some(at) = place(at_ns) {
                slices[at].output_tokens += tokens;
            }
        }
    }
    slices
}
