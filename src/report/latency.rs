//! What one request's latencies are, and those of a set of requests. Pure.
//!
//! Failed requests have none. A figure that a request does not have (TPOT of a one-token answer) is
//! left out of that figure only, never taken as 0.

use serde::{Serialize, Serializer};

use super::distribution::Distribution;
use crate::load::sample::Sample;
use crate::measure::clock::ms_between;

/// A latency figure of a request, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Figure {
    /// issued → first output chunk
    Ttft,
    /// planned → first output chunk
    TtftFromPlanned,
    /// (last output − first output) / (N − 1)
    Tpot,
    /// (E2E − TTFT) / (N − 1)
    TpotOfE2e,
    /// mean time between output chunks
    MeanItl,
    /// every time between two output chunks, of all requests together
    Itl,
    /// issued → last byte
    E2el,
    /// planned → last byte
    E2elFromPlanned,
    /// planned → issued
    ClientQueueTime,
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.key())
    }
}

/// All figures, in the order they are told.
pub const FIGURES: [Figure; 9] = [
    Figure::Ttft,
    Figure::TtftFromPlanned,
    Figure::Tpot,
    Figure::TpotOfE2e,
    Figure::MeanItl,
    Figure::Itl,
    Figure::E2el,
    Figure::E2elFromPlanned,
    Figure::ClientQueueTime,
];

impl Figure {
    /// Key in files, as `vllm bench serve` names it where it has the figure: without `mean_` and `_ms`.
    pub fn key(self) -> &'static str {
        match self {
            Figure::Ttft => "ttft",
            Figure::TtftFromPlanned => "ttft_from_planned",
            Figure::Tpot => "tpot",
            Figure::TpotOfE2e => "tpot_of_e2e",
            Figure::MeanItl => "mean_itl_per_request",
            Figure::Itl => "itl",
            Figure::E2el => "e2el",
            Figure::E2elFromPlanned => "e2el_including_client_queue",
            Figure::ClientQueueTime => "client_queue_time",
        }
    }

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Figure::Ttft => "TTFT",
            Figure::TtftFromPlanned => "TTFT from planned",
            Figure::Tpot => "TPOT",
            Figure::TpotOfE2e => "TPOT of E2E",
            Figure::MeanItl => "ITL, mean of a request",
            Figure::Itl => "ITL",
            Figure::E2el => "E2E",
            Figure::E2elFromPlanned => "E2E from planned",
            Figure::ClientQueueTime => "schedule lag",
        }
    }

    /// What it is, in a line.
    pub fn definition(self) -> &'static str {
        match self {
            Figure::Ttft => {
                "issued → first chunk with output (text, reasoning, tool call); a role-only chunk is none"
            }
            Figure::TtftFromPlanned => {
                "the same from when the schedule wanted it sent: a stalled server's waiting is in it"
            }
            Figure::Tpot => {
                "(last output − first output) / (N − 1), N output tokens; absent where N < 2"
            }
            Figure::TpotOfE2e => "the variant (E2E − TTFT) / (N − 1)",
            Figure::MeanItl => "the variant by chunks: mean time between the chunks of one request",
            Figure::Itl => "time between two output chunks, those of all requests together",
            Figure::E2el => "issued → last byte of a complete answer",
            Figure::E2elFromPlanned => "the same from when the schedule wanted it sent",
            Figure::ClientQueueTime => {
                "planned → issued: waits for --max-concurrency, and our own lateness"
            }
        }
    }

    /// Whether it is about a schedule, which a closed loop does not have.
    pub fn is_from_planned(self) -> bool {
        matches!(
            self,
            Figure::TtftFromPlanned | Figure::E2elFromPlanned | Figure::ClientQueueTime
        )
    }

    /// The request's figure; `None` if it failed or has none. [`Figure::Itl`] is none of a single request.
    pub fn of(self, sample: &Sample) -> Option<f64> {
        if sample.failure.is_some() {
            return None;
        }
        let issued_ns = sample.issued_ns?;
        match self {
            Figure::Ttft => Some(ms_between(issued_ns, sample.first_output_ns?)),
            Figure::TtftFromPlanned => Some(ms_between(sample.planned_ns, sample.first_output_ns?)),
            Figure::Tpot => {
                let decode_ms = ms_between(sample.first_output_ns?, sample.last_output_ns?);
                Some(decode_ms / gaps_between_tokens(sample)?)
            }
            Figure::TpotOfE2e => {
                let decode_ms = ms_between(sample.first_output_ns?, sample.end_ns);
                Some(decode_ms / gaps_between_tokens(sample)?)
            }
            Figure::MeanItl => {
                let sum_us: f64 = sample.gaps_us.iter().map(|gap| f64::from(*gap)).sum();
                let count = sample.gaps_us.len();
                (count > 0).then(|| sum_us / count as f64 / 1000.0)
            }
            Figure::Itl => None,
            Figure::E2el => Some(ms_between(issued_ns, sample.end_ns)),
            Figure::E2elFromPlanned => Some(ms_between(sample.planned_ns, sample.end_ns)),
            Figure::ClientQueueTime => sample.lag_ms(),
        }
    }

    /// The figure over a set of requests.
    pub fn over(self, samples: &[&Sample]) -> Option<Distribution> {
        if self == Figure::Itl {
            let gaps = samples
                .iter()
                .filter(|sample| sample.failure.is_none())
                .flat_map(|sample| sample.gaps_us.iter());
            return Distribution::of(gaps.map(|gap_us| f64::from(*gap_us) / 1000.0));
        }
        Distribution::of(samples.iter().filter_map(|sample| self.of(sample)))
    }
}

/// Output tokens: the engine's count, or the chunks where it gave none.
pub fn output_tokens(sample: &Sample) -> Option<u64> {
    let counted = (sample.output_chunks > 0).then_some(sample.output_chunks);
    sample.output_tokens.or(counted)
}

fn gaps_between_tokens(sample: &Sample) -> Option<f64> {
    let gaps = output_tokens(sample)?.checked_sub(1)?;
    (gaps > 0).then_some(gaps as f64)
}

/// Prompt lengths by which latencies are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bucket {
    /// planned prompt of up to 511 tokens; planned, for a failed request has no other
    Short,
    /// up to 4,095
    Medium,
    /// longer
    Long,
}

/// All buckets, in order.
pub const BUCKETS: [Bucket; 3] = [Bucket::Short, Bucket::Medium, Bucket::Long];

impl Bucket {
    /// Longest prompt of a short request.
    pub const SHORT_MAX_TOKENS: u32 = 511;
    /// Longest prompt of a medium request.
    pub const MEDIUM_MAX_TOKENS: u32 = 4095;

    /// The bucket of a planned prompt length.
    pub fn of(prompt_tokens: u32) -> Bucket {
        if prompt_tokens <= Self::SHORT_MAX_TOKENS {
            Bucket::Short
        } else if prompt_tokens <= Self::MEDIUM_MAX_TOKENS {
            Bucket::Medium
        } else {
            Bucket::Long
        }
    }

    /// Name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Bucket::Short => "short",
            Bucket::Medium => "medium",
            Bucket::Long => "long",
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::load::sample::Failure;
    use crate::report::sample_of;

    #[test]
    fn figures_follow_their_formulas() {
        let sample = sample_of(0, 1_000, 100, &[10, 20, 30], 5);
        let of = |figure: Figure| figure.of(&sample).unwrap();
        assert_eq!(of(Figure::Ttft), 100.0);
        assert_eq!(of(Figure::Tpot), 20.0);
        assert_eq!(of(Figure::TpotOfE2e), 65.0 / 3.0);
        assert_eq!(of(Figure::MeanItl), 20.0);
        assert_eq!(of(Figure::E2el), 165.0);
        assert_eq!(Figure::Itl.of(&sample), None);
        assert_eq!(Figure::Itl.over(&[&sample]).unwrap().count(), 3);
    }

    #[test]
    fn what_a_request_does_not_have_is_absent_and_a_failed_one_has_nothing() {
        let mut sample = sample_of(0, 1_000, 100, &[], 0);
        assert_eq!(Figure::Tpot.of(&sample), None);
        assert_eq!(Figure::MeanItl.of(&sample), None);
        assert_eq!(Figure::Ttft.of(&sample), Some(100.0));
        sample.failure = Some(Failure::Cut);
        assert!(
            FIGURES
                .iter()
                .all(|figure| figure.over(&[&sample]).is_none())
        );
    }

    #[test]
    fn a_late_send_is_in_the_figures_from_the_plan_only() {
        let mut sample = sample_of(0, 1_000, 100, &[10], 0);
        sample.planned_ns -= 400_000_000;
        assert_eq!(Figure::Ttft.of(&sample), Some(100.0));
        assert_eq!(Figure::TtftFromPlanned.of(&sample), Some(500.0));
        assert_eq!(Figure::E2elFromPlanned.of(&sample), Some(510.0));
        assert_eq!(Figure::ClientQueueTime.of(&sample), Some(400.0));
    }

    #[test]
    fn tokens_are_the_engines_count_where_it_gave_one() {
        let mut sample = sample_of(0, 1_000, 100, &[10, 10], 0);
        sample.output_tokens = Some(5);
        assert_eq!(Figure::Tpot.of(&sample), Some(5.0));
        sample.output_tokens = None;
        assert_eq!(output_tokens(&sample), Some(3));
        assert_eq!(Figure::Tpot.of(&sample), Some(10.0));
    }
}
