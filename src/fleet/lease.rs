//! The load one request puts on its instance: taken when it is chosen, released once, by `Drop`.

use std::sync::Arc;

use evenkeel_policies::progress;
use evenkeel_policies::scheduler::{Grant, LeaseId, Observation};

use super::health::Verdict;
use super::instance::Instance;
use super::pool::Pool;
use crate::measure::clock::Ns;
use crate::measure::outcome::Outcome;
use crate::measure::speed::LoadIntegral;
use crate::measure::summary::Exchange;

/// A counted place on an instance. What every read touches comes first.
#[repr(C)]
pub struct Lease {
    instance: Arc<Instance>,
    reported_chunks: u64,
    reported_ns: Ns,
    pool: Arc<Pool>,
    id: LeaseId,
    /// policy that chose
    pub policy: Arc<str>,
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
}

impl Lease {
    pub(super) fn new(
        pool: &Arc<Pool>,
        instance: &Arc<Instance>,
        policy: Arc<str>,
        lane: Option<Arc<str>>,
        grant: &Grant,
    ) -> Self {
        let now = crate::measure::clock::now_ns();
        let batch_at_start = instance.batch.lock().value_at(now);
        let prefill_tokens = u64::from(grant.predicted_prefill_tokens);
        let output_tokens = u64::from(grant.predicted_output_tokens);
        let mut own_tokens = LoadIntegral::new(now);
        own_tokens.advance(now, (prefill_tokens + output_tokens) as f64);
        Self {
            id: grant.lease,
            policy,
            lane,
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
            instance: instance.clone(),
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

    /// A byte of the answer came.
    #[inline]
    pub fn heard(&self, at_ns: Ns) {
        self.instance.heard(at_ns);
    }

    /// The first output chunk came: the prompt's tokens are off the instance.
    pub fn first_output(&mut self) {
        let now = self.pool.with(|inner, now| {
            inner.scheduler.first_output(now, self.id);
            inner.count_tokens(&self.instance, now);
            now
        });
        self.prefill_tokens = 0;
        self.count_own(now);
    }

    /// Reports progress, where that is due. `tokens` turns chunks into tokens.
    #[inline]
    pub fn progress(&mut self, chunks: u64, at_ns: Ns, tokens: impl FnOnce(u64) -> u64) {
        let new_chunks = chunks.saturating_sub(self.reported_chunks);
        if progress::is_due(new_chunks, at_ns.saturating_sub(self.reported_ns)) {
            self.reported_chunks = chunks;
            self.reported_ns = at_ns;
            self.report(tokens(chunks));
        }
    }

    fn report(&mut self, tokens: u64) {
        let now = self.pool.with(|inner, now| {
            inner.scheduler.progress(now, self.id, tokens);
            inner.count_tokens(&self.instance, now);
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
        let (pool, instance) = (&self.pool, &self.instance);
        pool.with(|inner, now| {
            inner
                .health
                .ended(instance.id, self.verdict, self.probe, now);
            inner.finish(now, self.id, &self.observation);
            pool.judge(inner, now);
            let outstanding = inner.outstanding_requests(instance.id);
            let mut batch = instance.batch.lock();
            batch.advance(now, f64::from(outstanding));
            drop(batch);
            inner.count_tokens(instance, now);
            inner.token_seconds.add(self.own_tokens.value_at(now) / 1e9);
            if outstanding == 0 {
                pool.forget_if_left(inner, instance.id);
            }
        });
    }
}
