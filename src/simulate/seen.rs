//! A simulated run as its client and its balancer would have written it down. Pure.

use super::job::Job;
use super::looks::instance_name;
use crate::load::runner::{GeneratorUse, RunResult, send_lag};
use crate::load::sample::{Failure, Sample};
use crate::measure::outcome::Outcome;
use crate::measure::record::{OutcomeName, RECORD_VERSION, Record, Stages};

/// When runs start on the clock of samples, on which 0 is no stamp.
const START_NS: u64 = 1;

/// The requests of one flow as their client saw them.
pub(super) fn run_result(jobs: Vec<Job>, generator: GeneratorUse) -> RunResult {
    let mut samples: Vec<Sample> = jobs.into_iter().map(|job| started(job.client)).collect();
    samples.sort_unstable_by_key(|sample| sample.index);
    RunResult {
        started_ns: START_NS,
        lag: send_lag(&samples),
        unfinished: 0,
        generator,
        samples,
    }
}

fn started(mut sample: Sample) -> Sample {
    sample.planned_ns += START_NS;
    sample.end_ns += START_NS;
    let stamps = [
        &mut sample.issued_ns,
        &mut sample.sent_ns,
        &mut sample.head_ns,
        &mut sample.first_output_ns,
        &mut sample.last_output_ns,
    ];
    for stamp in stamps.into_iter().flatten() {
        *stamp += START_NS;
    }
    sample
}

/// The balancer's record of every request, in the order of issue; its wall clock began with the run.
pub(super) fn records(jobs: &[Job], policy: &str, id_prefix: &str) -> Vec<Record> {
    let record = |job: &Job| {
        let batch = if job.sender.flow == 0 { "" } else { "batch-" };
        let id = format!("{id_prefix}{batch}{}", job.client.index);
        record(job, policy, id)
    };
    jobs.iter().map(record).collect()
}

fn record(job: &Job, policy: &str, request_id: String) -> Record {
    let (fleet, client) = (&job.fleet, &job.client);
    let ms = |from: Option<u64>, to: Option<u64>| Some(to?.saturating_sub(from?) as f64 / 1e6);
    let outcome = match client.failure {
        None => Outcome::Ok,
        Some(Failure::Refused) => Outcome::Shed,
        Some(_) => Outcome::ClientError,
    };
    let arrived_ns = Some(fleet.arrived_ns);
    let queue_ms = ms(arrived_ns, fleet.sent_ns);
    let answered = outcome == Outcome::Ok;
    Record {
        schema: RECORD_VERSION,
        request_id,
        outcome: OutcomeName(outcome),
        start_s: fleet.arrived_ns as f64 / 1e9,
        path: "/v1/chat/completions".into(),
        api: "chat".into(),
        stamp: "socket".into(),
        attempts: u32::from(fleet.sent_ns.is_some()),
        pool: Some("simulated".into()),
        instance: fleet.instance.map(instance_name),
        policy: Some(policy.to_owned()),
        status: client.status,
        streamed: answered.then_some(true),
        complete: answered.then_some(true),
        prompt_tokens: client.prompt_tokens,
        output_tokens: client.output_tokens,
        output_chunks: answered.then_some(client.output_chunks),
        client_ttft_ms: fleet.client_ttft_ms(),
        server_ttft_ms: fleet.server_ttft_ms(),
        last_output_ms: ms(fleet.sent_ns, fleet.last_ns),
        end_ms: ms(fleet.sent_ns, fleet.last_ns),
        e2e_ms: ms(arrived_ns, fleet.last_ns),
        tpot_ms: fleet.tpot_ms(),
        outside_engine_ms: queue_ms.filter(|_| fleet.first_ns.is_some()),
        stages: queue_ms
            .filter(|_| fleet.first_ns.is_some())
            .map(|queue_ms| Stages {
                queue_ms,
                ..Stages::default()
            }),
        queue_ms,
        outstanding_requests: fleet.outstanding_requests,
        prompt_tokens_est: Some(fleet.prompt_tokens),
        ..Record::default()
    }
}
