//! `--trace`: requests of a trace in place of drawn ones, at its own times or at those of `--request-rate`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::BenchError;
use super::options::BenchArgs;
use super::plan::{self, Extent, Mode};
use crate::load::LoadError;
use crate::load::agreement::{Bounds, Difference};
use crate::load::replay::{Replay, Replayed};
use crate::load::runner::Requests;
use crate::load::ticks::Ticks;
use crate::load::traces::{self, Trace};
use crate::report::terminal::{count, number};

/// The requests of a trace, as they will be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Replaying {
    /// name of the file
    pub name: String,
    /// rows that are not used, and lengths that are not known for certain, in words
    pub notes: Vec<String>,
    /// the plan beside the trace
    pub replayed: Replayed,
    /// requests planned and not sent, for the run is over before
    pub left_over: u64,
    at_own_times: bool,
}

impl Replaying {
    /// Reads and plans the trace that was asked for, if one was.
    pub fn of(args: &BenchArgs, mode: Mode) -> Result<Option<Replaying>, BenchError> {
        let Some(path) = &args.trace else {
            return Ok(None);
        };
        let mut trace = traces::open(path)?.into_requests()?;
        let (rows, notes) = (trace.requests.len(), trace.notes());
        let mut replay = Replay {
            time_scale: args.time_scale.unwrap_or(1.0),
            from_s: args.trace_from_s.unwrap_or(0.0),
            until_s: args.trace_until_s,
            ticks: if args.keep_ticks {
                Ticks::Keep
            } else {
                Ticks::Known
            },
            longest_tokens: args.longest_tokens,
        };
        let extent = Extent::asked(args);
        let replayed = match mode {
            Mode::Open(arrivals) => {
                let all = Extent::Requests(u32::try_from(rows).unwrap_or(u32::MAX));
                let warm_up_ns = (args.warmup_s * 1e9) as u64;
                let extent = extent.unwrap_or(all);
                let times_ns = plan::schedule(arrivals, extent, args.seed, warm_up_ns)?;
                replay.plan_at(&trace, &times_ns, args.seed)
            }
            _ => {
                cut(&mut trace, &mut replay, extent, args.warmup_s);
                replay.plan(&trace, args.seed)
            }
        };
        Ok(Some(Replaying {
            name: trace.name.clone(),
            notes,
            left_over: (rows - trace.requests.len()) as u64,
            replayed: replayed.map_err(without_times)?,
            at_own_times: mode == Mode::Replay,
        }))
    }

    /// What is sent, and when.
    pub fn requests(self: &Arc<Self>) -> Requests {
        let plan = Arc::clone(self);
        let all = 0..plan.replayed.requests.len();
        Box::new(all.map(move |at| plan.replayed.requests[at].clone()))
    }

    /// What is sent and how far it is like the trace, a line each.
    pub fn words(&self) -> Vec<String> {
        let replayed = &self.replayed;
        let (plan, hits) = (&replayed.realised, replayed.realised.block_hits);
        let mut lines = vec![
            format!(
                "requests: {} of the trace {}, {} req/s, CV of the gaps {}",
                count(plan.requests as i64),
                self.name,
                number(plan.rate_per_s),
                number(plan.gap_cv),
            ),
            format!(
                "  prompt P50 {}, P99 {} tokens; output P50 {}, P99 {} tokens",
                count(i64::from(plan.prompt.p50)),
                count(i64::from(plan.prompt.p99)),
                count(i64::from(plan.output.p50)),
                count(i64::from(plan.output.p99)),
            ),
        ];
        lines.extend(hits.map(|hits| {
            let percent = number(Some(hits * 100.0));
            format!("  {percent} % of the prompts' blocks came in an earlier one")
        }));
        lines.extend(replayed.tick_ns.map(|tick_ns| {
            let seconds = number(Some(tick_ns as f64 / 1e9));
            format!(
                "  its clock ticks every {seconds} s: spread over the tick (--keep-ticks does not)"
            )
        }));
        let left_out = [
            (replayed.outside, "outside the part asked for"),
            (self.left_over, "after the last that was asked for"),
            (replayed.too_long, "longer than --longest-tokens"),
        ];
        let left_out = left_out.iter().filter(|(requests, _)| *requests > 0);
        lines.extend(
            left_out
                .map(|(requests, why)| format!("  left out: {} {why}", count(*requests as i64))),
        );
        let unlike = self.differences().into_iter();
        lines.extend(unlike.map(|difference| format!("  unlike the trace: {difference}")));
        lines.extend(self.notes.iter().map(|note| format!("  {note}")));
        lines
    }

    /// The same for files.
    pub fn json(&self) -> Value {
        let replayed = &self.replayed;
        json!({
            "name": self.name,
            "time_scale": replayed.time_scale,
            "tick_s": replayed.tick_ns.map(|tick_ns| tick_ns as f64 / 1e9),
            "source": replayed.source,
            "planned": replayed.realised,
            "outside": replayed.outside,
            "left_over": self.left_over,
            "too_long": replayed.too_long,
            "notes": self.notes,
            "differences": self.differences().iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }

    /// Where the plan is not like the trace.
    pub fn differences(&self) -> Vec<Difference> {
        let (source, plan) = (&self.replayed.source, &self.replayed.realised);
        let bounds = match self.at_own_times {
            true => Bounds::replayed(source, self.replayed.tick_ns),
            false => Bounds::drawn(plan.requests),
        };
        bounds.differences(source, plan, self.replayed.time_scale)
    }
}

/// Leaves of the trace what is to be sent: so many requests, or so many seconds, after the warm-up.
fn cut(trace: &mut Trace, replay: &mut Replay, extent: Option<Extent>, warm_up_s: f64) {
    let after_s = |sent_s: f64| replay.from_s + sent_s / replay.time_scale;
    match extent {
        Some(Extent::Requests(requests)) => {
            let warm_s = after_s(warm_up_s);
            let warm = trace.requests.partition_point(|row| {
                row.at_ns.is_some_and(|at_ns| (at_ns as f64) < warm_s * 1e9)
            });
            trace.requests.truncate(warm + requests as usize);
        }
        Some(Extent::Seconds(seconds)) => {
            let end_s = after_s(warm_up_s + seconds);
            replay.until_s = Some(replay.until_s.map_or(end_s, |until_s| until_s.min(end_s)));
        }
        None => {}
    }
}

/// What the option is called that helps.
fn without_times(error: LoadError) -> BenchError {
    match error {
        LoadError::NoTimes(name) => BenchError::Options(format!(
            "the trace {name} has no times of its own: give --request-rate"
        )),
        error => error.into(),
    }
}
