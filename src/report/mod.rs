//! What is drawn from runs for people to read.

pub mod both_sides;
pub mod capacity;
pub mod command;
pub mod curves;
pub mod distribution;
pub mod document;
pub mod figures;
#[cfg(test)]
pub(crate) mod fixture;
pub mod generator;
pub mod goodput;
pub mod instances;
pub mod isolation;
pub mod latency;
pub mod load_summary;
pub mod page;
pub mod point;
pub mod quantiles;
pub mod scaling;
pub mod slices;
pub mod statistics;
pub mod steadiness;
pub mod summary;
pub mod terminal;
pub mod throughput;
pub mod verdict;
pub mod watched;
pub mod window;

/// A request issued at `issued_ms` as planned, its first output after `ttft_ms`, further chunks after
/// `gaps_ms`, its end `tail_ms` behind the last; the engine's token count is that of the chunks.
#[cfg(test)]
pub(crate) fn sample_of(
    index: u32,
    issued_ms: u64,
    ttft_ms: u64,
    gaps_ms: &[u32],
    tail_ms: u64,
) -> crate::load::sample::Sample {
    let request = crate::load::workload::PlannedRequest {
        index,
        at_ns: 0,
        class: 0,
        prompt_tokens: 100,
        output_tokens: gaps_ms.len() as u32 + 1,
        text_seed: 0,
        prefix: None,
    };
    let mut sample = crate::load::sample::Sample::planned(&request, issued_ms * 1_000_000);
    let first_ms = issued_ms + ttft_ms;
    let last_ms = first_ms + u64::from(gaps_ms.iter().sum::<u32>());
    sample.issued_ns = Some(sample.planned_ns);
    sample.sent_ns = Some(sample.planned_ns);
    sample.first_output_ns = Some(first_ms * 1_000_000);
    sample.last_output_ns = Some(last_ms * 1_000_000);
    sample.end_ns = (last_ms + tail_ms) * 1_000_000;
    sample.status = Some(200);
    sample.prompt_tokens = Some(100);
    sample.output_chunks = gaps_ms.len() as u64 + 1;
    sample.output_tokens = Some(sample.output_chunks);
    sample.gaps_us = gaps_ms.iter().map(|gap_ms| gap_ms * 1000).collect();
    sample
}
