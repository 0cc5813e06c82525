//! The figures of a demo, from the proxy's records; written as `summary.json`. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use super::arm::{ArmRun, instance_names};
use super::compare::{Comparison, compare};
use super::quantiles::Quantiles;
use super::records::Joined;
use super::speed::speeds;
use crate::load::workload::Workload;
use crate::measure::record::Record;

/// Index of the short requests among the workload's classes.
pub const SHORT: u16 = 0;
/// Index of the long ones.
pub const LONG: u16 = 1;

/// What a demo was run with.
#[derive(Debug, Clone, Serialize)]
pub struct Settings {
    /// seeds, one run of every policy each
    pub seeds: Vec<u64>,
    /// seconds of load a policy and seed
    pub seconds: f64,
    /// seconds dropped at the begin of each, by planned time
    pub warm_up_s: f64,
    /// arrivals and classes
    pub workload: Workload,
    /// the engines' hardware profile
    pub profile: String,
    /// how many times as long each instance's steps last
    pub slow_factors: Vec<f64>,
}

/// A demo's results.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// form of this file
    pub schema: u32,
    /// version of the program
    pub version: &'static str,
    /// what it was run with
    pub settings: Settings,
    /// one a policy, in the order they ran
    pub policies: Vec<PolicySummary>,
    /// every further policy against the first
    pub comparisons: Vec<Comparison>,
    /// the instance that the records of all runs together show as the slowest
    pub slowest: Option<Slowest>,
}

/// An instance that is slower than the others at equal load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Slowest {
    /// its name
    pub instance: String,
    /// its decode step over the other instances' at equal running batch and length
    pub speed_vs_fleet: f64,
    /// how slow it was set to be
    pub true_factor: f64,
}

/// Quantiles of one class of requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cut {
    /// requests
    pub requests: u64,
    /// of these, without a whole answer
    pub failed: u64,
    /// client TTFT
    pub client_ttft_ms: Quantiles,
    /// server TTFT
    pub server_ttft_ms: Quantiles,
    /// time per output token
    pub tpot_ms: Quantiles,
    /// first byte of the request → last byte of the answer
    pub e2e_ms: Quantiles,
}

/// One policy.
#[derive(Debug, Clone, Serialize)]
pub struct PolicySummary {
    /// name
    pub policy: String,
    /// all requests after the warm-up
    #[serde(flatten)]
    pub all: Cut,
    /// failed requests by outcome as recorded; `no_record` where the proxy has none
    pub failures: BTreeMap<String, u64>,
    /// short requests
    pub short: Cut,
    /// long requests
    pub long: Cut,
    /// output tokens of the answers that ended between the warm-up's end and the last send, over that time
    pub output_tokens_per_s: Option<f64>,
    /// the same of requests
    pub requests_per_s: Option<f64>,
    /// greatest over mean of the instances' time-averaged outstanding tokens; 1 is even
    pub load_skew: Option<f64>,
    /// one an instance
    pub instances: Vec<InstanceSummary>,
    /// whether the machine kept up
    pub timing: Timing,
}

/// One instance under one policy.
#[derive(Debug, Clone, Serialize)]
pub struct InstanceSummary {
    /// name
    pub name: String,
    /// how slow it was set to be
    pub true_factor: f64,
    /// requests it answered
    pub requests: u64,
    /// of all requests, 0 to 1
    pub share_requests: Option<f64>,
    /// of all prompt and output tokens, 0 to 1
    pub share_tokens: Option<f64>,
    /// server TTFT of its requests
    pub server_ttft_ms: Quantiles,
    /// time per output token of its requests
    pub tpot_ms: Quantiles,
    /// its decode step over the others' at equal running batch and length ([`super::speed`]); absent
    /// under 100 requests of common load
    pub speed_vs_fleet: Option<f64>,
}

/// Lateness of everything that runs in one process here, and the two views of client TTFT beside each other.
#[derive(Debug, Clone, Serialize)]
pub struct Timing {
    /// engine steps that ended late, worst of the runs: 99th percentile
    pub engine_step_lag_p99_ms: Option<f64>,
    /// the greatest
    pub engine_step_lag_max_ms: Option<f64>,
    /// engine steps so late that the delay was not made up for
    pub engine_steps_rebased: u64,
    /// requests sent late, worst of the runs: 99th percentile
    pub send_lag_p99_ms: Option<f64>,
    /// the greatest
    pub send_lag_max_ms: Option<f64>,
    /// sends that waited because too many requests were unanswered
    pub sends_held_back: u64,
    /// the proxy's own part of client TTFT
    pub proxy_own_ms: Quantiles,
    /// client TTFT by the load client's own stamps, less that of the record
    pub client_less_record_ms: Quantiles,
    /// requests without a record
    pub without_record: u64,
    /// records that the proxy's writer dropped
    pub records_dropped: u64,
}

impl Summary {
    /// Of all runs of a demo.
    pub fn of(settings: Settings, runs: &[ArmRun]) -> Summary {
        let mut names: Vec<&str> = Vec::new();
        for run in runs {
            if !names.contains(&run.policy.as_str()) {
                names.push(&run.policy);
            }
        }
        let of_policy = |name: &str| {
            runs.iter()
                .filter(|run| run.policy == name)
                .collect::<Vec<_>>()
        };
        let policies = names
            .iter()
            .map(|name| PolicySummary::of(name, &of_policy(name), &settings))
            .collect();
        let control = names
            .first()
            .map(|name| of_policy(name))
            .unwrap_or_default();
        let comparisons = names
            .iter()
            .skip(1)
            .map(|name| compare(&of_policy(name), &control, settings.warm_up_ns()))
            .collect();
        Summary {
            schema: 1,
            version: env!("CARGO_PKG_VERSION"),
            policies,
            comparisons,
            slowest: slowest(runs, &settings),
            settings,
        }
    }
}

impl Settings {
    /// Requests planned before this are dropped.
    pub fn warm_up_ns(&self) -> u64 {
        (self.warm_up_s * 1e9) as u64
    }

    fn names(&self) -> Vec<String> {
        instance_names(self.slow_factors.len()).collect()
    }
}

/// A run's requests after the warm-up.
pub fn measured(run: &ArmRun, warm_up_ns: u64) -> impl Iterator<Item = &Joined> {
    run.requests
        .iter()
        .filter(move |request| request.planned.at_ns >= warm_up_ns)
}

impl Cut {
    fn of(requests: &[&Joined]) -> Cut {
        let quantiles = |of: fn(&Record) -> Option<f64>| {
            Quantiles::of(requests.iter().filter_map(|r| r.figure(of)))
        };
        Cut {
            requests: requests.len() as u64,
            failed: requests
                .iter()
                .filter(|request| request.is_failed())
                .count() as u64,
            client_ttft_ms: quantiles(|record| record.client_ttft_ms),
            server_ttft_ms: quantiles(|record| record.server_ttft_ms),
            tpot_ms: quantiles(|record| record.tpot_ms),
            e2e_ms: quantiles(|record| record.e2e_ms),
        }
    }

    fn of_class(requests: &[&Joined], class: u16) -> Cut {
        let of_class: Vec<&Joined> = requests
            .iter()
            .copied()
            .filter(|r| r.planned.class == class)
            .collect();
        Cut::of(&of_class)
    }
}

impl PolicySummary {
    fn of(policy: &str, runs: &[&ArmRun], settings: &Settings) -> PolicySummary {
        let requests: Vec<&Joined> = runs
            .iter()
            .flat_map(|run| measured(run, settings.warm_up_ns()))
            .collect();
        let ended: Vec<&Joined> = runs
            .iter()
            .flat_map(|run| ended_in_time(run, settings))
            .collect();
        let span_s = (settings.seconds - settings.warm_up_s) * runs.len() as f64;
        let per_s = |amount: u64| (span_s > 0.0).then(|| amount as f64 / span_s);
        PolicySummary {
            policy: policy.to_owned(),
            all: Cut::of(&requests),
            failures: failures(&requests),
            short: Cut::of_class(&requests, SHORT),
            long: Cut::of_class(&requests, LONG),
            output_tokens_per_s: per_s(
                ended
                    .iter()
                    .filter_map(|r| r.record.as_ref()?.output_tokens)
                    .sum(),
            ),
            requests_per_s: per_s(ended.len() as u64),
            load_skew: load_skew(&requests, &settings.names()),
            instances: instances(runs, &requests, settings),
            timing: Timing::of(runs, &requests),
        }
    }
}

/// Whole answers that ended between the end of the warm-up and the end of sending, whenever they began.
fn ended_in_time<'a>(run: &'a ArmRun, settings: &Settings) -> impl Iterator<Item = &'a Joined> {
    let began_ns = run
        .requests
        .first()
        .map_or(0, |first| first.sample.planned_ns - first.planned.at_ns);
    let from_ns = began_ns + settings.warm_up_ns();
    let to_ns = began_ns + (settings.seconds * 1e9) as u64;
    run.requests.iter().filter(move |request| {
        !request.is_failed() && (from_ns..to_ns).contains(&request.sample.end_ns)
    })
}

fn failures(requests: &[&Joined]) -> BTreeMap<String, u64> {
    let mut failures = BTreeMap::new();
    for request in requests.iter().filter(|request| request.is_failed()) {
        let name = match (&request.record, request.sample.failure) {
            (Some(record), None) => record.outcome.0.name().to_owned(),
            (Some(record), Some(_)) if !record.complete.unwrap_or(false) => {
                record.outcome.0.name().to_owned()
            }
            (Some(_), Some(failure)) => format!("client_{}", failure.name()),
            (None, _) => "no_record".to_owned(),
        };
        *failures.entry(name).or_insert(0) += 1;
    }
    failures
}

fn of_instance<'a>(requests: &[&'a Joined], name: &str) -> Vec<&'a Record> {
    let records = requests
        .iter()
        .filter_map(|request| request.record.as_ref());
    records
        .filter(|record| record.instance.as_deref() == Some(name))
        .collect()
}

fn tokens(record: &Record) -> u64 {
    record.prompt_tokens.unwrap_or(0) + record.output_tokens.unwrap_or(0)
}

fn instances(runs: &[&ArmRun], requests: &[&Joined], settings: &Settings) -> Vec<InstanceSummary> {
    let by_instance: Vec<Vec<&Record>> = settings
        .names()
        .iter()
        .map(|name| of_instance(requests, name))
        .collect();
    let all_requests: usize = by_instance.iter().map(Vec::len).sum();
    let all_tokens: u64 = by_instance
        .iter()
        .flatten()
        .map(|record| tokens(record))
        .sum();
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let speeds = speeds(&all_by_instance(runs, settings));
    let one = |(index, name): (usize, String)| {
        let records = &by_instance[index];
        InstanceSummary {
            name,
            true_factor: settings.slow_factors[index],
            requests: records.len() as u64,
            share_requests: share(records.len() as u64, all_requests as u64),
            share_tokens: share(
                records.iter().map(|record| tokens(record)).sum(),
                all_tokens,
            ),
            server_ttft_ms: Quantiles::of(
                records.iter().filter_map(|record| record.server_ttft_ms),
            ),
            tpot_ms: Quantiles::of(records.iter().filter_map(|record| record.tpot_ms)),
            speed_vs_fleet: speeds[index],
        }
    };
    settings.names().into_iter().enumerate().map(one).collect()
}

/// Every record of each instance, warm-up included: a slow instance is slow then too.
fn all_by_instance<'a>(runs: &[&'a ArmRun], settings: &Settings) -> Vec<Vec<&'a Record>> {
    let requests: Vec<&Joined> = runs.iter().flat_map(|run| run.requests.iter()).collect();
    settings
        .names()
        .iter()
        .map(|name| of_instance(&requests, name))
        .collect()
}

fn slowest(runs: &[ArmRun], settings: &Settings) -> Option<Slowest> {
    let by_instance = all_by_instance(&runs.iter().collect::<Vec<_>>(), settings);
    let found = speeds(&by_instance)
        .into_iter()
        .enumerate()
        .filter_map(|(index, speed)| Some((index, speed?)));
    let (index, speed_vs_fleet) = found.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let instance = settings.names().swap_remove(index);
    Some(Slowest {
        instance,
        speed_vs_fleet,
        true_factor: settings.slow_factors[index],
    })
}

/// Greatest over mean of the instances' time-averaged outstanding tokens. A request weighs its prompt
/// until its first output chunk, and what is left of its output, taken to shrink evenly, until its last.
fn load_skew(requests: &[&Joined], names: &[String]) -> Option<f64> {
    let weight = |record: &Record| {
        let (ttft_ms, last_ms) = (record.server_ttft_ms?, record.last_output_ms?);
        let output = record.output_tokens? as f64;
        Some(
            record.prompt_tokens? as f64 * ttft_ms + output * (ttft_ms + (last_ms - ttft_ms) / 2.0),
        )
    };
    let load = |name: &String| {
        of_instance(requests, name)
            .into_iter()
            .filter_map(weight)
            .sum::<f64>()
    };
    let loads: Vec<f64> = names.iter().map(load).collect();
    let mean = loads.iter().sum::<f64>() / loads.len().max(1) as f64;
    (mean > 0.0).then(|| loads.iter().fold(0.0_f64, |most, load| most.max(*load)) / mean)
}

impl Timing {
    fn of(runs: &[&ArmRun], requests: &[&Joined]) -> Timing {
        let worst =
            |of: fn(&ArmRun) -> Option<f64>| runs.iter().filter_map(|run| of(run)).reduce(f64::max);
        let difference = |request: &&Joined| {
            Some(request.sample.ttft_ms()? - request.record.as_ref()?.client_ttft_ms?)
        };
        Timing {
            engine_step_lag_p99_ms: worst(|run| run.engine_lag.p99_ms),
            engine_step_lag_max_ms: worst(|run| run.engine_lag.max_ms),
            engine_steps_rebased: runs.iter().map(|run| run.engine_lag.rebased).sum(),
            send_lag_p99_ms: worst(|run| run.send_lag.map(|lag| lag.p99_ms)),
            send_lag_max_ms: worst(|run| run.send_lag.map(|lag| lag.max_ms)),
            sends_held_back: runs
                .iter()
                .filter_map(|run| run.send_lag)
                .map(|lag| lag.held_back)
                .sum(),
            proxy_own_ms: Quantiles::of(
                requests
                    .iter()
                    .filter_map(|r| r.figure(|record| record.proxy_own_ms)),
            ),
            client_less_record_ms: Quantiles::of(requests.iter().filter_map(difference)),
            without_record: requests
                .iter()
                .filter(|request| request.record.is_none())
                .count() as u64,
            records_dropped: runs.iter().map(|run| run.records_dropped).sum(),
        }
    }
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
