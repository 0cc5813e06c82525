//! From a trace to a plan: its own times, stretched or not, or times of another making. Pure.
//!
//! Lengths and shared prefixes are the trace's, each row's prompt with its own answer. What became
//! of rows that are not sent is counted, and what the plan looks like is held against the trace.

use std::sync::Arc;

use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use super::LoadError;
use super::arrivals::REQUESTS_MAX;
use super::prefix::SharedPrefix;
use super::ticks::{self, Ticks};
use super::traces::{Trace, TraceRequest};
use super::traffic::{Point, Traffic};
use super::workload::PlannedRequest;

/// A minute of the trace: the windows in which requests are counted.
pub const WINDOW_NS: u64 = 60_000_000_000;
/// Longer than all traces, and little enough to be added to a clock of nanoseconds in 64 bits.
const SPAN_MOST_S: f64 = 9.2e9;

/// How a trace is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// what times are multiplied by: 0.5 is twice as fast
    pub time_scale: f64,
    /// seconds of the trace to leave out at its begin
    pub from_s: f64,
    /// second of the trace to stop before
    pub until_s: Option<f64>,
    /// what to do about a coarse clock
    pub ticks: Ticks,
    /// requests of more tokens, prompt and answer together, are left out: they would not fit the model
    pub longest_tokens: Option<u32>,
}

impl Default for Replay {
    fn default() -> Replay {
        Replay {
            time_scale: 1.0,
            from_s: 0.0,
            until_s: None,
            ticks: Ticks::default(),
            longest_tokens: None,
        }
    }
}

/// The plan of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    /// what to send and when
    pub requests: Vec<PlannedRequest>,
    /// what times are multiplied by
    pub time_scale: f64,
    /// the tick over which requests were spread
    pub tick_ns: Option<u64>,
    /// requests before the begin or after the end asked for
    pub outside: u64,
    /// requests that are too long
    pub too_long: u64,
    /// the trace from the begin to the end asked for, those that are too long included
    pub source: Traffic,
    /// the plan
    pub realised: Traffic,
}

impl Replay {
    /// The trace at its own times.
    pub fn plan(&self, trace: &Trace, seed: u64) -> Result<Replayed, LoadError> {
        self.validate()?;
        if !trace.has_times() {
            return Err(LoadError::NoTimes(trace.name.clone()));
        }
        let inside = trace.requests.iter().filter_map(|row| self.inside(row));
        let (source, mut times_ns): (Vec<&TraceRequest>, Vec<u64>) = inside.unzip();
        let tick_ns = self.ticks.of(trace);
        if let Some(tick_ns) = tick_ns {
            ticks::spread(&mut times_ns, tick_ns, seed);
        }
        self.check_span(times_ns.last().copied())?;
        let mut texts = Texts::new(seed);
        let rows = source.iter().zip(&times_ns);
        let requests: Vec<PlannedRequest> = rows
            .filter(|(row, _)| self.fits(row))
            .map(|(row, at_ns)| texts.planned(row, self.scaled_ns(*at_ns), 0))
            .collect();
        Ok(Replayed {
            tick_ns,
            outside: (trace.requests.len() - source.len()) as u64,
            too_long: (source.len() - requests.len()) as u64,
            ..Replayed::of(trace, &source, requests, self.time_scale)?
        })
    }

    /// The trace's requests at other times, ascending, in nanoseconds after the start; for traces
    /// without times, or rates that no trace has. After the last row the first comes again, with
    /// other text. Rows of a trace without times come in an order of chance.
    ///
    /// The time scale, begin, end and ticks are about the trace's times, and so without meaning here.
    pub fn plan_at(
        &self,
        trace: &Trace,
        schedule_ns: &[u64],
        seed: u64,
    ) -> Result<Replayed, LoadError> {
        if schedule_ns.len() > REQUESTS_MAX {
            let asked = schedule_ns.len() as f64;
            return Err(LoadError::TooManyRequests(asked, REQUESTS_MAX));
        }
        let source: Vec<&TraceRequest> = trace.requests.iter().collect();
        let fitting = source.iter().copied().filter(|row| self.fits(row));
        let mut rows: Vec<&TraceRequest> = fitting.collect();
        if !trace.has_times() {
            rows.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed ^ ORDER_STREAM));
        }
        let mut texts = Texts::new(seed);
        // of no row there is no pass either
        let passes = 0..schedule_ns
            .len()
            .checked_div(rows.len())
            .map_or(0, |whole| whole as u64 + 1);
        let again = passes.flat_map(|pass| rows.iter().map(move |row| (*row, pass)));
        let requests = schedule_ns.iter().zip(again);
        let requests = requests.map(|(at_ns, (row, pass))| texts.planned(row, *at_ns, pass));
        Ok(Replayed {
            too_long: (source.len() - rows.len()) as u64,
            ..Replayed::of(trace, &source, requests.collect(), 1.0)?
        })
    }

    /// A row in the part asked for, with its time.
    fn inside<'a>(&self, row: &'a TraceRequest) -> Option<(&'a TraceRequest, u64)> {
        let at_ns = row.at_ns?;
        let at_s = at_ns as f64 / 1e9;
        let before_end = self.until_s.is_none_or(|until_s| at_s < until_s);
        (at_s >= self.from_s && before_end).then_some((row, at_ns))
    }

    fn fits(&self, request: &TraceRequest) -> bool {
        let tokens = request.prompt_tokens.saturating_add(request.output_tokens);
        self.longest_tokens.is_none_or(|longest| tokens <= longest)
    }

    fn scaled_ns(&self, at_ns: u64) -> u64 {
        ((at_ns as f64 - self.from_s * 1e9) * self.time_scale).max(0.0) as u64
    }

    /// Times after which the clock would run out are no plan.
    fn check_span(&self, last_ns: Option<u64>) -> Result<(), LoadError> {
        let last_s = last_ns.unwrap_or(0) as f64 / 1e9 * self.time_scale;
        if last_s < SPAN_MOST_S {
            return Ok(());
        }
        Err(LoadError::ReplayTime(last_s))
    }

    fn validate(&self) -> Result<(), LoadError> {
        if !(self.time_scale.is_finite() && self.time_scale > 0.0) {
            return Err(LoadError::TimeScale(self.time_scale));
        }
        let until_s = self.until_s.unwrap_or(f64::INFINITY);
        if !(self.from_s >= 0.0 && self.from_s < until_s) {
            return Err(LoadError::TraceWindow(self.from_s, until_s));
        }
        match self.ticks {
            Ticks::Spread(seconds) if !(seconds.is_finite() && seconds > 0.0) => {
                Err(LoadError::Tick(seconds))
            }
            _ => Ok(()),
        }
    }
}

impl Replayed {
    fn of(
        trace: &Trace,
        source: &[&TraceRequest],
        requests: Vec<PlannedRequest>,
        time_scale: f64,
    ) -> Result<Replayed, LoadError> {
        let nothing = || LoadError::NothingToReplay(trace.name.clone(), trace.requests.len());
        let scaled_ns = (WINDOW_NS as f64 * time_scale).max(1.0) as u64;
        let source = Traffic::of(source.iter().map(|row| of_row(row)), WINDOW_NS);
        let realised = Traffic::of(requests.iter().map(of_plan), scaled_ns);
        Ok(Replayed {
            source: source.ok_or_else(nothing)?,
            realised: realised.ok_or_else(nothing)?,
            requests,
            time_scale,
            tick_ns: None,
            outside: 0,
            too_long: 0,
        })
    }
}

const TEXTS_STREAM: u64 = 0x7465_7874_735f_5f5f;
const ORDER_STREAM: u64 = 0x6f72_6465_725f_5f5f;

/// Numbers the requests of a plan and gives each its text.
struct Texts {
    seed: u64,
    rng: Xoshiro256PlusPlus,
    index: u32,
}

impl Texts {
    fn new(seed: u64) -> Texts {
        Texts {
            seed,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed ^ TEXTS_STREAM),
            index: 0,
        }
    }

    /// In a second pass over a trace a prefix is other text, or every request would find its own in a cache.
    fn planned(&mut self, row: &TraceRequest, at_ns: u64, pass: u64) -> PlannedRequest {
        let run_seed = self.seed.wrapping_add(pass);
        let prefix = row.prefix.as_ref().map(|prefix| {
            Arc::new(SharedPrefix::of_ids(
                prefix.block_tokens,
                &prefix.ids,
                run_seed,
            ))
        });
        let index = self.index;
        self.index += 1;
        PlannedRequest {
            index,
            at_ns,
            class: 0,
            prompt_tokens: row.prompt_tokens,
            output_tokens: row.output_tokens,
            text_seed: self.rng.random(),
            prefix,
        }
    }
}

fn of_row(row: &TraceRequest) -> Point<'_> {
    Point {
        at_ns: row.at_ns,
        prompt_tokens: row.prompt_tokens,
        output_tokens: row.output_tokens,
        blocks: row.prefix.as_ref().map_or(&[], |prefix| &prefix.ids),
    }
}

fn of_plan(request: &PlannedRequest) -> Point<'_> {
    Point {
        at_ns: Some(request.at_ns),
        prompt_tokens: request.prompt_tokens,
        output_tokens: request.output_tokens,
        blocks: request
            .prefix
            .as_ref()
            .map_or(&[], |prefix| &prefix.block_seeds),
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
