//! From options to the requests of a run. Pure.

use super::BenchError;
use super::options::{BenchArgs, Dataset, MAX_SECONDS};
use crate::load::arrivals::{Arrivals, REQUESTS_MAX};
use crate::load::lengths::Lengths;
use crate::load::mixes;
use crate::load::runner::{ClosedEnd, Pace, Requests};
use crate::load::workload::{Class, PlannedRequest, Workload};

/// Requests where nothing says how long to go on.
const USUAL_REQUESTS: u32 = 1000;
/// Shares of short, medium and long requests where no lengths are given.
const USUAL_MIX: &str = "20:60:20";
/// Lengths of vLLM's random data set where they are not given.
const USUAL_INPUT_TOKENS: u32 = 1024;
const USUAL_OUTPUT_TOKENS: u32 = 128;
/// Requests drawn at a time where the end is not known.
const BLOCK: usize = 1024;

/// How long a run goes on after its warm-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Extent {
    /// so many requests
    Requests(u32),
    /// so many seconds
    Seconds(f64),
}

impl Extent {
    /// As the options say.
    pub fn of(args: &BenchArgs) -> Extent {
        Extent::asked(args).unwrap_or(Extent::Requests(USUAL_REQUESTS))
    }

    /// As the options say, if they say it.
    pub fn asked(args: &BenchArgs) -> Option<Extent> {
        let requests = || args.num_prompts.map(Extent::Requests);
        args.duration.map(Extent::Seconds).or_else(requests)
    }
}

/// What decides when requests are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    /// open loop, by arrivals
    Open(Arrivals),
    /// closed loop, so many at once
    Closed(u32),
    /// no rate and no limit: a trace's requests at its own times, all others at time 0
    AtOnce,
}

impl Mode {
    /// As the options say, by vLLM's rules.
    pub fn of(args: &BenchArgs) -> Result<Mode, BenchError> {
        if args.request_rate.is_finite() {
            return Ok(Mode::Open(Arrivals::of_burstiness(
                args.request_rate,
                args.burstiness,
            )));
        }
        if args.trace.is_some() {
            return Ok(Mode::AtOnce);
        }
        if let Some(places) = args.max_concurrency {
            return Ok(Mode::Closed(places));
        }
        if args.warmup_s > 0.0 || args.duration.is_some() {
            return Err(BenchError::Options(
                "without --request-rate and --max-concurrency everything is sent at once, so --duration and --warmup-s have no meaning: give a rate or a concurrency".into(),
            ));
        }
        Ok(Mode::AtOnce)
    }

    /// Whether requests have times to keep.
    pub fn is_scheduled(self) -> bool {
        !matches!(self, Mode::Closed(_))
    }
}

/// The classes of requests, and whether they are an assumption of ours.
pub fn classes(args: &BenchArgs) -> Result<(Vec<Class>, bool), BenchError> {
    if args.trace.is_some() {
        return Ok((Vec::new(), false));
    }
    let random = args.dataset_name == Some(Dataset::Random)
        || args.random_input_len.is_some()
        || args.random_output_len.is_some()
        || args.random_range_ratio.is_some();
    if !random {
        return Ok((mix(args.mix.as_deref().unwrap_or(USUAL_MIX))?, true));
    }
    let ratio = args.random_range_ratio.unwrap_or(0.0);
    let spread = |tokens: u32| {
        let end = |factor: f64| ((f64::from(tokens) * factor).round() as u32).max(1);
        Lengths::Uniform {
            min_tokens: end(1.0 - ratio),
            max_tokens: end(1.0 + ratio),
        }
    };
    let class = Class {
        name: "random".into(),
        share: 1.0,
        prompt: spread(args.random_input_len.unwrap_or(USUAL_INPUT_TOKENS)),
        output: spread(args.random_output_len.unwrap_or(USUAL_OUTPUT_TOKENS)),
    };
    Ok((vec![class], false))
}

fn mix(text: &str) -> Result<Vec<Class>, BenchError> {
    let wrong = || {
        BenchError::Options(format!(
            "--mix `{text}` is no mix: give the shares of short, medium and long requests, such as {USUAL_MIX}"
        ))
    };
    let shares: Option<Vec<f64>> = text.split(':').map(|share| share.parse().ok()).collect();
    let shares: [f64; 3] = shares
        .and_then(|shares| shares.try_into().ok())
        .ok_or_else(wrong)?;
    let usable = |share: &f64| share.is_finite() && *share >= 0.0;
    if !shares.iter().all(usable) || shares.iter().sum::<f64>() <= 0.0 {
        return Err(wrong());
    }
    Ok(mixes::mix(shares))
}

/// The requests of a run and its pace, drawn; a trace's are [`super::replay::Replaying::requests`].
pub fn requests(
    mode: Mode,
    extent: Extent,
    classes: Vec<Class>,
    seed: u64,
    warm_up_ns: u64,
) -> Result<(Requests, Pace), BenchError> {
    match mode {
        Mode::Open(arrivals) => {
            let times_ns = schedule(arrivals, extent, seed, warm_up_ns)?;
            let plan = Workload { arrivals, classes }.plan_at(&times_ns, seed)?;
            Ok((Box::new(plan.into_iter()), Pace::Schedule))
        }
        Mode::AtOnce => {
            let drawn = endless(classes, seed)?;
            let all = match extent {
                Extent::Requests(requests) => requests as usize,
                Extent::Seconds(_) => usize::MAX,
            };
            Ok((Box::new(drawn.take(all)), Pace::Schedule))
        }
        Mode::Closed(_) => {
            let end = match extent {
                Extent::Requests(requests) => ClosedEnd::Count {
                    warm_up_ns,
                    requests: u64::from(requests),
                },
                Extent::Seconds(seconds) => ClosedEnd::After {
                    run_ns: warm_up_ns + (seconds * 1e9) as u64,
                },
            };
            Ok((Box::new(endless(classes, seed)?), Pace::Closed(end)))
        }
    }
}

/// A schedule is held in memory and kept to: one that cannot be is a slip on the command line.
fn check_size(rate_per_s: f64, extent: Extent, warm_up_s: f64) -> Result<(), BenchError> {
    let (measured_s, measured) = match extent {
        Extent::Seconds(seconds) => (seconds, rate_per_s * seconds),
        Extent::Requests(requests) => (f64::from(requests) / rate_per_s, f64::from(requests)),
    };
    let requests = measured + rate_per_s * warm_up_s;
    if requests > REQUESTS_MAX as f64 {
        return Err(BenchError::Options(format!(
            "--request-rate {rate_per_s} makes a schedule of about {requests:.0} requests, and at most {REQUESTS_MAX} are held: give a lower rate or a shorter run"
        )));
    }
    if measured_s > MAX_SECONDS {
        return Err(BenchError::Options(format!(
            "{measured:.0} requests at --request-rate {rate_per_s} take longer than a year: give a higher rate or fewer --num-prompts"
        )));
    }
    Ok(())
}

/// An open loop's times, in nanoseconds after the start: the warm-up's arrivals, then the extent's.
pub fn schedule(
    arrivals: Arrivals,
    extent: Extent,
    seed: u64,
    warm_up_ns: u64,
) -> Result<Vec<u64>, BenchError> {
    check_size(arrivals.rate_per_s(), extent, warm_up_ns as f64 / 1e9)?;
    let wanted = match extent {
        Extent::Seconds(seconds) => {
            return Ok(arrivals.schedule_ns(seed, warm_up_ns + (seconds * 1e9) as u64)?);
        }
        Extent::Requests(requests) => requests as usize,
    };
    let expected_s = wanted as f64 / arrivals.rate_per_s();
    let mut span_ns = expected_s * 1e9 + 1e6;
    loop {
        let mut times_ns = arrivals.schedule_ns(seed, warm_up_ns + span_ns as u64)?;
        let warm_up = times_ns.partition_point(|at_ns| *at_ns < warm_up_ns);
        if times_ns.len() >= warm_up + wanted {
            times_ns.truncate(warm_up + wanted);
            return Ok(times_ns);
        }
        // A longer draw of the same seed begins with the shorter one.
        span_ns *= 1.5;
    }
}

/// Requests all at time 0 and without an end, drawn a block at a time.
fn endless(
    classes: Vec<Class>,
    seed: u64,
) -> Result<impl Iterator<Item = PlannedRequest> + Send, BenchError> {
    let workload = Workload {
        arrivals: Arrivals::Constant { rate_per_s: 1000.0 },
        classes,
    };
    let block = move |number: u64| {
        let seed = seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        workload.plan_at(&[0; BLOCK], seed)
    };
    let first = block(0)?;
    // Only a mix that cannot be drawn from fails, and the first block was drawn.
    let later = (1..).flat_map(move |number| block(number).unwrap_or_default());
    Ok(first
        .into_iter()
        .chain(later)
        .zip(0_u32..)
        .map(|(request, index)| PlannedRequest { index, ..request }))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
