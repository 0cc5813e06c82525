//! `--trace`: requests of a trace in place of drawn ones, at its own times or at those of `--request-rate`.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::BenchError;
use super::options::BenchArgs;
use super::plan::{self, Extent, Mode};
use crate::load::LoadError;
use crate::load::agreement::{Bounds, Difference};
use crate::load::replay::{Replay, Replayed, WINDOW_NS};
use crate::load::runner::Requests;
use crate::load::sample::Sample;
use crate::load::ticks::Ticks;
use crate::load::traces::servegen::{Draw, RateWindows};
use crate::load::traces::{self, Trace, TraceFile, UnusedRows};
use crate::load::traffic::{Point, Traffic};
use crate::report::terminal::{count, number};

/// Rows of the files that were read.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Rows {
    /// rows with data: usable, malformed and left out
    pub rows: u64,
    /// rows that could not be read
    pub malformed: UnusedRows,
    /// rows that were read and stand for nothing that can be sent
    pub left_out: UnusedRows,
}

/// The requests of a trace, as they will be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Replaying {
    /// name of the file
    pub name: String,
    /// rows that are not used, and lengths that are not known for certain, in words
    pub notes: Vec<String>,
    /// how many rows were read, and which of them are not used
    pub rows: Rows,
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
        let Read {
            mut trace,
            notes,
            rows: read_rows,
            from_s,
            until_s,
        } = read(args, path)?;
        let rows = trace.requests.len();
        let mut replay = Replay {
            time_scale: args.time_scale.unwrap_or(1.0),
            from_s,
            until_s,
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
            rows: read_rows,
            left_over: (rows - trace.requests.len()) as u64,
            replayed: replayed.map_err(without_times)?,
            at_own_times: mode == Mode::AtOnce,
        }))
    }

    /// What is sent, and when.
    pub fn requests(self: &Arc<Self>) -> Requests {
        let plan = Arc::clone(self);
        let all = 0..plan.replayed.requests.len();
        Box::new(all.map(move |at| plan.replayed.requests[at].clone()))
    }

    /// What is sent and how far it is like the trace, a line each.
    pub fn words(&self, ignore_eos: bool) -> Vec<String> {
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
        let ends = match ignore_eos {
            true => "answers go on to their lengths in the trace (--ignore-eos)",
            false => "answers may end before their lengths: --ignore-eos has them go on",
        };
        lines.push(format!("  {ends}"));
        lines.extend(unlike(&self.differences()));
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
            "rows": self.rows.rows,
            "malformed": self.rows.malformed,
            "rows_left_out": self.rows.left_out,
            "notes": self.notes,
            "differences": for_files(&self.differences()),
        })
    }

    /// Where the plan is not like the trace.
    pub fn differences(&self) -> Vec<Difference> {
        let (source, plan) = (&self.replayed.source, &self.replayed.realised);
        self.bounds(plan)
            .differences(source, plan, self.replayed.time_scale)
    }

    /// What was sent, held against the trace; `None` if nothing was.
    pub fn sent(&self, samples: &[Sample]) -> Option<Sent> {
        let mut issued: Vec<&Sample> = samples
            .iter()
            .filter(|one| one.issued_ns.is_some())
            .collect();
        issued.sort_by_key(|sample| sample.issued_ns);
        let point = |sample: &&Sample| Point {
            at_ns: sample.issued_ns,
            prompt_tokens: sample.planned_prompt_tokens,
            output_tokens: sample.planned_output_tokens,
            blocks: &[],
        };
        let window_ns = (WINDOW_NS as f64 * self.replayed.time_scale) as u64;
        let traffic = Traffic::of(issued.iter().map(point), window_ns)?;
        let (source, time_scale) = (&self.replayed.source, self.replayed.time_scale);
        let bounds = self.bounds(&traffic).sent();
        Some(Sent {
            differences: bounds.differences(source, &traffic, time_scale),
            traffic,
        })
    }

    fn bounds(&self, made: &Traffic) -> Bounds {
        match self.at_own_times {
            true => Bounds::replayed(&self.replayed.source, self.replayed.tick_ns),
            false => Bounds::drawn(made.requests),
        }
    }
}

/// The traffic of a run beside its trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Sent {
    /// by the times at which requests were issued, and the lengths they asked for
    pub traffic: Traffic,
    /// where it is not like the trace
    pub differences: Vec<Difference>,
}

impl Sent {
    /// A line of what was sent, and one for each difference.
    pub fn words(&self) -> Vec<String> {
        let sent = &self.traffic;
        let head = format!(
            "sent of the trace: {} requests, {} req/s, CV of the gaps {}{}",
            count(sent.requests as i64),
            number(sent.rate_per_s),
            number(sent.gap_cv),
            match self.differences.is_empty() {
                true => ": like the trace",
                false => "",
            }
        );
        std::iter::once(head)
            .chain(unlike(&self.differences))
            .collect()
    }

    /// The same for files.
    pub fn json(&self) -> Value {
        json!({
            "traffic": self.traffic,
            "differences": for_files(&self.differences),
        })
    }
}

fn unlike(differences: &[Difference]) -> impl Iterator<Item = String> {
    let differences = differences.iter();
    differences.map(|difference| format!("  unlike the trace: {difference}"))
}

fn for_files(differences: &[Difference]) -> Vec<String> {
    differences.iter().map(ToString::to_string).collect()
}

/// A trace, and which part of it is still to be taken.
struct Read {
    trace: Trace,
    notes: Vec<String>,
    rows: Rows,
    from_s: f64,
    until_s: Option<f64>,
}

/// Reads the requests, or draws them from rates and lengths.
fn read(args: &BenchArgs, path: &Path) -> Result<Read, BenchError> {
    let from_s = args.trace_from_s.unwrap_or(0.0);
    match (traces::open(path)?, &args.trace_lengths) {
        (TraceFile::Rates(rates), Some(lengths)) => draw(args, &rates, lengths, from_s),
        (TraceFile::Rates(rates), None) => Err(BenchError::Options(format!(
            "the trace {} has rates and no lengths: give --trace-lengths, the same client's -dataset.json",
            rates.name
        ))),
        (TraceFile::Requests(trace), Some(_)) => Err(BenchError::Options(format!(
            "--trace-lengths goes with ServeGen's rates (-trace.csv), and the trace {} has requests with lengths of their own",
            trace.name
        ))),
        (file, _) => {
            let trace = file.into_requests()?;
            Ok(Read {
                notes: trace.notes(),
                rows: Rows {
                    rows: trace.rows,
                    malformed: trace.malformed.clone(),
                    left_out: trace.left_out.clone(),
                },
                trace,
                from_s,
                until_s: args.trace_until_s,
            })
        }
    }
}

/// Draws the part that was asked for, which then is all there is.
fn draw(
    args: &BenchArgs,
    rates: &RateWindows,
    lengths: &Path,
    from_s: f64,
) -> Result<Read, BenchError> {
    let TraceFile::Lengths(lengths) = traces::open(lengths)? else {
        return Err(BenchError::Options(format!(
            "--trace-lengths {} has no lengths as ServeGen writes them: give the client's -dataset.json",
            lengths.display()
        )));
    };
    let until_s = args.trace_until_s;
    let draw = Draw {
        from_ns: (from_s * 1e9) as u64,
        until_ns: until_s.map_or(rates.end_ns, |until_s| (until_s * 1e9) as u64),
        rate_scale: args.trace_rate_scale.unwrap_or(1.0),
        seed: args.seed,
    };
    let unused = rates
        .malformed
        .notes(&rates.name, rates.rows, "cannot be read");
    let notes = unused
        .into_iter()
        .chain(
            lengths
                .malformed
                .notes(&lengths.name, lengths.rows, "cannot be read"),
        )
        .collect();
    Ok(Read {
        trace: draw.trace(rates, &lengths)?,
        notes,
        rows: Rows {
            rows: rates.rows + lengths.rows,
            malformed: rates.malformed.clone().and(&lengths.malformed),
            left_out: UnusedRows::default(),
        },
        from_s: 0.0,
        until_s: None,
    })
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
