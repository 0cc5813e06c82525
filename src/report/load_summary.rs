//! A load run in figures: what counted, what failed, how long it took, what got done. Pure.

use std::collections::BTreeMap;

use super::distribution::Distribution;
use super::generator::Generator;
use super::goodput::{Goodput, Objective};
use super::latency::{BUCKETS, Bucket, FIGURES, Figure};
use super::steadiness::Steadiness;
use super::throughput::Throughput;
use super::window::{Counts, Window, WindowRule};
use crate::load::runner::RunResult;
use crate::load::sample::{Failure, Sample};

/// How a run is to be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// what counts
    pub rule: WindowRule,
    /// what a good request is
    pub objectives: Vec<Objective>,
    /// requests had times to keep
    pub scheduled: bool,
}

/// The figures of a set of requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Latencies {
    figures: Vec<(Figure, Option<Distribution>)>,
}

impl Latencies {
    /// Those of the complete ones among these.
    pub fn of(samples: &[&Sample]) -> Latencies {
        Latencies {
            figures: FIGURES
                .iter()
                .map(|figure| (*figure, figure.over(samples)))
                .collect(),
        }
    }

    /// One figure; `None` if no request has it.
    pub fn get(&self, wanted: Figure) -> Option<&Distribution> {
        let (_, found) = self.figures.iter().find(|(figure, _)| *figure == wanted)?;
        found.as_ref()
    }
}

/// The requests of one length.
#[derive(Debug, Clone, PartialEq)]
pub struct BucketSummary {
    /// which
    pub bucket: Bucket,
    /// requests that count
    pub sent: u64,
    /// of these, complete
    pub completed: u64,
    /// figures of the complete ones
    pub latencies: Latencies,
}

/// Where token counts come from, over the complete requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct TokenSources {
    /// `usage` gave them
    pub usage: u64,
    /// chunks were counted in their place
    pub chunks: u64,
    /// neither: no output came
    pub none: u64,
}

/// A load run in figures.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadSummary {
    /// the part of the run that counts; `None` if nothing was issued after the warm-up
    pub window: Option<Window>,
    /// what is in and out
    pub counts: Counts,
    /// requests under way when the run was interrupted: in no figure
    pub unfinished: u64,
    /// complete requests among those that count
    pub completed: u64,
    /// failures among those that count, by kind
    pub failures: BTreeMap<String, u64>,
    /// failed requests among those left out
    pub failed_left_out: u64,
    /// good requests, where objectives were given
    pub goodput: Option<Goodput>,
    /// latencies of the complete requests
    pub latencies: Latencies,
    /// the same by prompt length, for lengths that occur
    pub buckets: Vec<BucketSummary>,
    /// work done in the window
    pub throughput: Option<Throughput>,
    /// where token counts come from
    pub tokens: TokenSources,
    /// output tokens a chunk; absent where usage does not tell
    pub tokens_per_chunk: Option<f64>,
    /// prompt tokens that usage told for each that was planned; absent where usage does not tell
    pub prompt_tokens_per_planned: Option<f64>,
    /// whether the window was steady
    pub steadiness: Steadiness,
    /// what the generator cost and how it kept up
    pub generator: Generator,
}

impl LoadSummary {
    /// Reads a run.
    pub fn of(run: &RunResult, reading: &Reading) -> LoadSummary {
        let samples = &run.samples;
        let window = Window::of(samples, run.started_ns, reading.rule);
        let keeps = |sample: &&Sample| window.is_some_and(|window| window.keeps(sample));
        let (kept, left_out): (Vec<&Sample>, Vec<&Sample>) = samples.iter().partition(keeps);
        let all_warm_up = Counts {
            warm_up: samples.len() as u64,
            ..Counts::default()
        };
        LoadSummary {
            counts: window.map_or(all_warm_up, |window| {
                window.counts(samples, run.started_ns, reading.rule)
            }),
            unfinished: run.unfinished,
            completed: completed(&kept),
            failures: failures(&kept),
            failed_left_out: failed(&left_out),
            goodput: Goodput::of(&reading.objectives, &kept),
            latencies: Latencies::of(&kept),
            buckets: buckets(&kept),
            throughput: window.and_then(|window| Throughput::of(samples, &window)),
            tokens: token_sources(&kept),
            tokens_per_chunk: tokens_per_chunk(&kept),
            prompt_tokens_per_planned: prompt_tokens_per_planned(&kept),
            steadiness: window.map_or(Steadiness::TooFew, |window| {
                Steadiness::of(samples, &window)
            }),
            generator: Generator::of(run.generator, run.lag, reading.scheduled),
            window,
        }
    }

    /// Failed requests among those that count.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Share of complete requests among those that count; absent if none does.
    pub fn success_share(&self) -> Option<f64> {
        (self.counts.kept > 0).then(|| self.completed as f64 / self.counts.kept as f64)
    }
}

fn completed(samples: &[&Sample]) -> u64 {
    samples.len() as u64 - failed(samples)
}

fn failed(samples: &[&Sample]) -> u64 {
    samples
        .iter()
        .filter(|sample| sample.failure.is_some())
        .count() as u64
}

fn failures(samples: &[&Sample]) -> BTreeMap<String, u64> {
    let mut failures = BTreeMap::new();
    for sample in samples {
        if let Some(failure) = sample.failure {
            *failures
                .entry(failure_name(failure, sample.status))
                .or_default() += 1;
        }
    }
    failures
}

/// The failure's name, with the status where that tells them apart.
pub fn failure_name(failure: Failure, status: Option<u16>) -> String {
    match (failure, status) {
        (Failure::Status | Failure::Refused, Some(status)) => {
            format!("{}_{status}", failure.name())
        }
        _ => failure.name().to_owned(),
    }
}

fn buckets(samples: &[&Sample]) -> Vec<BucketSummary> {
    let summary = |bucket: &Bucket| {
        let its: Vec<&Sample> = samples
            .iter()
            .copied()
            .filter(|sample| Bucket::of(sample.planned_prompt_tokens) == *bucket)
            .collect();
        (!its.is_empty()).then(|| BucketSummary {
            bucket: *bucket,
            sent: its.len() as u64,
            completed: completed(&its),
            latencies: Latencies::of(&its),
        })
    };
    BUCKETS.iter().filter_map(summary).collect()
}

fn token_sources(samples: &[&Sample]) -> TokenSources {
    let mut sources = TokenSources::default();
    for sample in samples.iter().filter(|sample| sample.failure.is_none()) {
        let source = match (sample.output_tokens, sample.output_chunks) {
            (Some(_), _) => &mut sources.usage,
            (None, 0) => &mut sources.none,
            (None, _) => &mut sources.chunks,
        };
        *source += 1;
    }
    sources
}

fn tokens_per_chunk(samples: &[&Sample]) -> Option<f64> {
    let told = samples
        .iter()
        .filter(|sample| sample.failure.is_none() && sample.output_chunks > 0)
        .filter_map(|sample| Some((sample.output_tokens?, sample.output_chunks)));
    ratio_of_sums(told)
}

fn prompt_tokens_per_planned(samples: &[&Sample]) -> Option<f64> {
    let told = samples.iter().filter_map(|sample| {
        Some((
            sample.prompt_tokens?,
            u64::from(sample.planned_prompt_tokens),
        ))
    });
    ratio_of_sums(told)
}

fn ratio_of_sums(pairs: impl Iterator<Item = (u64, u64)>) -> Option<f64> {
    let (over, under) = pairs.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (under > 0).then(|| over as f64 / under as f64)
}

#[cfg(test)]
#[path = "load_summary_tests.rs"]
mod tests;
