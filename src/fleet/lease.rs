//! The load one request puts on its instance: taken when it is chosen, released once, by `Drop`.

use std::sync::Arc;

use evenkeel_policies::scheduler::{Grant, LeaseId, Observation};

use super::health::Verdict;
use super::pool::{Instance, Pool, lane_name};
use crate::measure::clock::Ns;
use crate::measure::outcome::Outcome;
use crate::measure::speed::LoadIntegral;
use crate::measure::summary::Exchange;

/// Output chunks between two reports of progress.
const PROGRESS_CHUNKS: u64 = 16;
/// Time between two reports of progress.
const PROGRESS_NS: u64 = 100_000_000;

/// A counted place on an instance.
pub struct Lease {
    pool: Arc<Pool>,
    id: LeaseId,
    instance: Arc<Instance>,
    /// lane the request went through
    pub lane: Option<Arc<str>>,
    /// outstanding requests on the instance before this one
    pub outstanding_requests: u32,
    /// outstanding tokens on the instance before this one
    pub outstanding_tokens: u64,
    /// time it waited in a queue
    pub waited_ns: u64,
    observation: Observation,
    batch_at_start: f64,
    /// this lease's own part of the instance's outstanding tokens
    own_tokens: LoadIntegral,
    predicted_output_tokens: u64,
    /// as the scheduler counts it: never grows
    decode_tokens: u64,
    /// 0 from the first output on
    prefill_tokens: u64,
    granted_ns: Ns,
    /// it shows whether an instance that was out answers again
    probe: bool,
    verdict: Verdict,
    reported_chunks: u64,
    reported_ns: Ns,
}

impl Lease {
    pub(super) fn new(pool: &Arc<Pool>, grant: &Grant) -> Self {
        let instance = pool.instances[grant.instance.0 as usize].clone();
        let now = crate::measure::clock::now_ns();
        let batch_at_start = instance.batch.lock().value_at(now);
        let prefill_tokens = u64::from(grant.predicted_prefill_tokens);
        let output_tokens = u64::from(grant.predicted_output_tokens);
        let mut own_tokens = LoadIntegral::new(now);
        own_tokens.advance(now, (prefill_tokens + output_tokens) as f64);
        Self {
            id: grant.lease,
            lane: lane_name(pool, grant),
            outstanding_requests: grant.outstanding_requests,
            outstanding_tokens: grant.outstanding_tokens,
            waited_ns: grant.waited_ns,
            observation: Observation::default(),
            batch_at_start,
            own_tokens,
            predicted_output_tokens: output_tokens,
            decode_tokens: output_tokens,
            prefill_tokens,
            granted_ns: now,
            probe: grant.probe,
            verdict: Verdict::Neutral,
            reported_chunks: 0,
            reported_ns: now,
            instance,
            pool: pool.clone(),
        }
    }

    /// The instance chosen.
    pub fn instance(&self) -> &Arc<Instance> {
        &self.instance
    }

    /// The pool it belongs to.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The first output chunk came: the prompt's tokens are off the instance.
    pub fn first_output(&mut self) {
        let (pool, id, instance) = (self.pool.clone(), self.id, self.instance.id);
        let now = pool.with(|inner, now| {
            inner.scheduler.first_output(now, id);
            inner.health.heard(instance, now);
            pool.count_tokens(inner, instance, now);
            now
        });
        self.prefill_tokens = 0;
        self.count_own(now);
    }

    /// Reports progress, at most every 16 chunks or 100 ms. `tokens` turns chunks into tokens.
    pub fn progress(&mut self, chunks: u64, at_ns: Ns, tokens: impl FnOnce(u64) -> u64) {
        let soon = chunks < self.reported_chunks + PROGRESS_CHUNKS
            && at_ns < self.reported_ns + PROGRESS_NS;
        if soon {
            return;
        }
        self.reported_chunks = chunks;
        self.reported_ns = at_ns;
        let (pool, id, instance) = (self.pool.clone(), self.id, self.instance.id);
        let tokens = tokens(chunks);
        let now = pool.with(|inner, now| {
            inner.scheduler.progress(now, id, tokens);
            inner.health.heard(instance, now);
            pool.count_tokens(inner, instance, now);
            now
        });
        let left = self.predicted_output_tokens.saturating_sub(tokens);
        self.decode_tokens = self.decode_tokens.min(left);
        self.count_own(now);
    }

    fn count_own(&mut self, now: Ns) {
        let tokens = self.prefill_tokens + self.decode_tokens;
        self.own_tokens.advance(now, tokens as f64);
    }

    /// Mean number of requests outstanding on the instance since this lease was granted.
    pub fn mean_batch(&self, now: Ns) -> Option<f64> {
        let duration_ns = now.checked_sub(self.granted_ns).filter(|ns| *ns > 0)?;
        let sum = self.instance.batch.lock().value_at(now) - self.batch_at_start;
        Some(sum / duration_ns as f64)
    }
}

impl Lease {
    /// What policy and health are told when this lease ends.
    pub fn observe(&mut self, exchange: &Exchange, outcome: Outcome) {
        let answer = exchange.answer.as_ref();
        self.verdict = Verdict::of(exchange.status, outcome, exchange.retry_after);
        let since_sent = |at: Option<Ns>| Some(at?.saturating_sub(exchange.stamps.sent_ns?));
        self.observation = Observation {
            ok: outcome == Outcome::Ok,
            prompt_tokens: answer.and_then(|answer| answer.usage.prompt_tokens),
            output_tokens: answer.and_then(|answer| answer.usage.output_tokens),
            server_ttft_ns: since_sent(answer.and_then(|answer| answer.first_output_ns)),
            end_ns: since_sent(answer.and_then(|answer| answer.last_output_ns)),
        };
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let instance = self.instance.id;
        self.pool.with(|inner, now| {
            inner.health.ended(instance, self.verdict, self.probe, now);
            inner.finish(now, self.id, &self.observation);
            inner.judge(now);
            let outstanding = inner.outstanding_requests(instance);
            self.pool.count_batch(instance, now, outstanding);
            self.pool.count_tokens(inner, instance, now);
            inner.token_seconds.add(self.own_tokens.value_at(now) / 1e9);
        });
    }
}
