//! The figures of one answer: pure functions on what the meter kept.

use crate::measure::chunk_log::ChunkLog;
use crate::measure::clock::{Ns, ms_between};
use crate::measure::outcome::Outcome;
use crate::measure::summary::Answer;

/// Share by which client-side and upstream-side gaps may differ before it is reported.
const RELAY_SHARE: f64 = 0.2;

impl Answer {
    /// Time from `from` to the first output chunk, ms.
    pub fn ttft_ms(&self, from: Ns) -> Option<f64> {
        self.first_output_ns.map(|first| ms_between(from, first))
    }

    /// Time from `from` to the first output chunk that is not reasoning, ms.
    pub fn ttft_answer_ms(&self, from: Ns) -> Option<f64> {
        self.first_answer_ns.map(|first| ms_between(from, first))
    }

    /// (last output - first output) / (output tokens - 1), ms; one choice, two tokens or more.
    pub fn tpot_ms(&self) -> Option<f64> {
        let tokens = self.usage.output_tokens.filter(|&tokens| tokens >= 2)?;
        if self.choices.iter().filter(|choice| choice.seen).count() != 1 {
            return None;
        }
        let span_ms = ms_between(self.first_output_ns?, self.last_output_ns?);
        Some(span_ms / (tokens - 1) as f64)
    }

    /// True where the tokens of every output chunk are known: gaps may be given as ITL.
    pub fn itl_known(&self) -> bool {
        self.counted_chunks > 0 && self.uncounted_chunks == 0
    }

    /// Mean tokens per output chunk, one choice, by `usage`.
    pub fn tokens_per_chunk(&self) -> Option<f64> {
        let tokens = self.usage.output_tokens?;
        (self.content_chunks > 0).then(|| tokens as f64 / self.content_chunks as f64)
    }

    /// Mean output chunks a read that carried any: over 1 if chunks arrive in bunches.
    pub fn chunks_per_read(&self) -> Option<f64> {
        (self.output_reads > 0).then(|| self.content_chunks as f64 / self.output_reads as f64)
    }

    /// Client-side median gap over the upstream-side one, less 1, if they differ by over 20 %.
    /// Means would hide it: a buffering hop keeps the sum of the gaps and changes their shape.
    pub fn gap_shift(&self) -> Option<f64> {
        let upstream = self.gaps.quantile_ms(0.5)?;
        let client = self.client_gaps.quantile_ms(0.5)?;
        if upstream <= 0.0 {
            return None;
        }
        let shift = client / upstream - 1.0;
        (shift.abs() > RELAY_SHARE).then_some(shift)
    }

    /// How the answer ended, as far as the engine's side tells (section 1 of the design).
    /// Cancels, timeouts and what the proxy refused itself go before it.
    pub fn outcome(&self) -> Outcome {
        let status = self.status.unwrap_or(200);
        if (400..500).contains(&status) && !matches!(status, 408 | 429) {
            return Outcome::ClientError;
        }
        if status >= 400 || self.error.is_some() || self.aborted {
            return Outcome::EngineError;
        }
        if self.complete || (self.unmeasured && self.transport_clean) {
            return Outcome::Ok;
        }
        Outcome::Cut
    }
}

/// Gaps between output chunks of one choice, ms, from the log.
pub fn chunk_gaps_ms(log: &ChunkLog, choice: u32) -> Vec<f64> {
    gaps(log, choice, |chunk| Some(chunk.arrival_ns))
}

/// Gaps as the client's socket took them, ms; chunks without a hand-over are left out.
pub fn client_gaps_ms(log: &ChunkLog, choice: u32) -> Vec<f64> {
    gaps(log, choice, |chunk| chunk.handed_ns)
}

fn gaps(
    log: &ChunkLog,
    choice: u32,
    stamp: impl Fn(&crate::measure::chunk_log::Chunk) -> Option<Ns>,
) -> Vec<f64> {
    let mut last = None;
    let mut gaps = Vec::new();
    for chunk in log.iter().filter(|chunk| chunk.choice == choice) {
        let Some(at) = stamp(&chunk) else { continue };
        gaps.extend(last.replace(at).map(|last| ms_between(last, at)));
    }
    gaps
}

/// Inter-token latencies, ms: each gap divided by the later chunk's tokens, that many samples.
/// `None` unless the tokens of every chunk are known and there is one choice.
pub fn itl_ms(log: &ChunkLog) -> Option<Vec<f64>> {
    let mut last: Option<Ns> = None;
    let mut samples = Vec::new();
    if log.is_empty() {
        return None;
    }
    for chunk in log.iter() {
        let tokens = chunk.tokens.filter(|_| chunk.choice == 0)?;
        if let Some(last) = last {
            let each = ms_between(last, chunk.arrival_ns) / f64::from(tokens.max(1));
            samples.extend(std::iter::repeat_n(each, tokens as usize));
        }
        last = Some(chunk.arrival_ns);
    }
    Some(samples)
}
