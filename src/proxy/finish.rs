//! One request from its first byte to its one end: whatever happens, dropping it ends it, once.

use std::sync::Arc;

use evenkeel_policies::shape::{Api, PromptFacts, RequestShape};

use super::client_io::ClientSide;
use super::client_pace;
use super::core::Core;
use super::keys::KeyPlace;
use super::refusal::Refusal;
use super::response_ids::Place;
use super::stream_tasks;
use crate::fleet::estimates::Lesson;
use crate::fleet::lease::Lease;
use crate::fleet::retries::Retry;
use crate::measure::clock::{Ns, now_ns, wall_ns};
use crate::measure::figures::Figures;
use crate::measure::meter::{Meter, Waiting};
use crate::measure::outcome::Outcome;
use crate::measure::summary::{Answer, Exchange, FailedAttempt, Stamps};

/// Cause of an attempt on a kept connection that the instance had closed.
const STALE_CONNECTION: &str = "stale_connection";

/// How an exchange has ended so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// not yet: dropped like this, the client left
    Open,
    /// we answered ourselves
    Refused(Outcome),
    /// one of our limits ended the answer
    TimedOut,
    /// the answer's body ended, clean or not
    Body,
}

/// A request being served.
pub struct OpenExchange {
    core: Arc<Core>,
    /// what its record will say; what every chunk changes is kept beside it, near the relay
    pub record: Box<Exchange>,
    /// body bytes handed to the client
    pub response_bytes: u64,
    /// the client's socket has taken an output chunk
    pub client_has_output: bool,
    /// its place among the requests its key may have open
    pub key_place: Option<KeyPlace>,
    /// its place on an instance
    pub lease: Option<Lease>,
    /// reads the answer
    pub meter: Option<Meter>,
    /// chunks of the ended answer that the client's socket has not taken yet
    waiting: Option<Waiting>,
    client: Option<Arc<ClientSide>>,
    facts: PromptFacts,
    blocked_before_ns: u64,
    /// its place in the retry budget, until an instance answers
    retry: Option<Retry>,
    end: End,
}

impl OpenExchange {
    /// Begins at the request's head. `client` is absent on HTTP/2.
    pub fn begin(
        core: &Arc<Core>,
        client: Option<Arc<ClientSide>>,
        request_id: String,
        path: String,
        api: Api,
    ) -> Self {
        let now = now_ns();
        let first = client
            .as_ref()
            .and_then(|client| client.request_first_ns())
            .unwrap_or(now);
        let blocked_before_ns = client.as_ref().map_or(0, |client| client.blocked_ns());
        let record = Exchange {
            request_id,
            wall_ns: wall_ns().saturating_sub(now.saturating_sub(first)),
            path,
            api,
            stamp: if client.is_some() { "socket" } else { "stream" },
            stamps: Stamps {
                request_first_ns: Some(first),
                ..Stamps::default()
            },
            ..Exchange::default()
        };
        Self {
            core: core.clone(),
            record: Box::new(record),
            response_bytes: 0,
            client_has_output: false,
            key_place: None,
            lease: None,
            meter: None,
            waiting: None,
            client,
            facts: PromptFacts::default(),
            blocked_before_ns,
            retry: None,
            end: End::Open,
        }
    }

    /// The socket of an HTTP/1.1 client.
    pub fn client(&self) -> Option<&Arc<ClientSide>> {
        self.client.as_ref()
    }

    /// The request was read and its shape is known.
    pub fn shaped(&mut self, facts: PromptFacts, shape: RequestShape) {
        self.facts = facts;
        self.record.shape = Some(shape);
    }

    /// A lease was granted.
    pub fn leased(&mut self, lease: Lease) {
        let record = &mut self.record;
        record.pool = Some(lease.pool().name.clone());
        record.policy = Some(lease.policy.clone());
        record.instance = Some(lease.instance().name.clone());
        record.lane.clone_from(&lease.lane);
        record.outstanding_requests = Some(lease.outstanding_requests);
        record.outstanding_tokens = Some(lease.outstanding_tokens);
        record.attempts += 1;
        self.lease = Some(lease);
    }

    /// The attempt got no answer that goes to the client, and another one follows within `budget`.
    pub fn attempt_failed(&mut self, cause: &'static str, status: Option<u16>, budget: Retry) {
        let Some(mut lease) = self.lease.take() else {
            return;
        };
        self.record.status = status;
        lease.observe(&self.record, Outcome::EngineError);
        self.note_attempt(lease.instance().name.clone(), cause, status);
        (self.record.status, self.record.retry_after) = (None, None);
        self.retry = Some(budget);
    }

    /// The request goes out again, to the same instance on a new connection.
    pub fn sent_again(&mut self) {
        let Some(lease) = &self.lease else { return };
        self.note_attempt(lease.instance().name.clone(), STALE_CONNECTION, None);
        self.record.attempts += 1;
    }

    fn note_attempt(&mut self, instance: Arc<str>, cause: &'static str, status: Option<u16>) {
        self.record.failed_attempts.push(FailedAttempt {
            instance,
            cause,
            status,
            at_ns: now_ns(),
        });
    }

    /// An instance has answered with a head.
    pub fn answering(&mut self) {
        // the budget bounds attempts, not the answers that come of them
        self.retry = None;
    }

    /// Where the answer is made.
    pub fn place(&self) -> Option<Place> {
        let lease = self.lease.as_ref()?;
        Some(Place {
            pool: lease.pool().serial,
            instance: lease.instance().id,
        })
    }

    /// We answer ourselves.
    pub fn refused(&mut self, refusal: &Refusal) {
        self.record.cause = Some(refusal.code());
        self.record.status = Some(refusal.status().as_u16());
        self.end = End::Refused(refusal.outcome());
        self.release();
    }

    /// One of our limits ended the answer.
    pub fn timed_out(&mut self, cause: &'static str) {
        self.record.cause = Some(cause);
        self.end = End::TimedOut;
        self.answer_ended(false, now_ns());
    }

    /// The answer's body ended at `at_ns`.
    pub fn body_ended(&mut self, clean: bool, at_ns: Ns) {
        self.end = End::Body;
        self.answer_ended(clean, at_ns);
    }

    fn answer_ended(&mut self, clean: bool, at_ns: Ns) {
        self.record.stamps.end_ns = Some(at_ns);
        if let Some(meter) = &mut self.meter {
            meter.end(clean, at_ns);
        }
        self.close_meter();
        self.release();
    }

    /// The client's socket has taken everything.
    pub fn client_has_all(&mut self, at_ns: Option<Ns>) {
        let blocked_ns = self.blocked_ns();
        let stamps = &mut self.record.stamps;
        stamps.client_end_ns = at_ns;
        if let (Some(at_ns), Some(waiting), Some(answer)) =
            (at_ns, &mut self.waiting, &mut self.record.answer)
        {
            waiting.handed(&mut answer.client_gaps, at_ns);
        }
        let had_output = self
            .record
            .answer
            .as_ref()
            .is_some_and(|answer| answer.first_output_ns.is_some());
        if had_output && stamps.client_first_output_ns.is_none() {
            stamps.client_first_output_ns = at_ns;
            stamps.client_blocked_first_ns = blocked_ns;
        }
    }

    /// Time the client has kept writes of this exchange waiting.
    pub fn blocked_ns(&self) -> u64 {
        self.client.as_ref().map_or(0, |client| {
            client.blocked_ns().saturating_sub(self.blocked_before_ns)
        })
    }

    /// The client was cut because it took nothing.
    fn gave_up(&self) -> bool {
        match &self.client {
            Some(client) => client.gave_up(),
            None => stream_tasks::gave_up(),
        }
    }

    /// The client left before the body's end: what it has got may be a whole answer all the same.
    fn end_meter_early(&mut self) {
        let Some(meter) = &mut self.meter else { return };
        let now = now_ns();
        meter.end(false, now);
        if meter.answer().complete {
            self.record.stamps.end_ns = Some(now);
            self.record.stamps.client_end_ns = self
                .client
                .as_ref()
                .and_then(|client| client.all_taken_ns());
        }
    }

    fn close_meter(&mut self) {
        let Some(meter) = self.meter.take() else {
            return;
        };
        let (answer, waiting) = meter.finish_reading();
        self.learn(&answer);
        self.record.answer = Some(answer);
        self.waiting = Some(waiting);
    }

    fn learn(&mut self, answer: &Answer) {
        let Some(lease) = &self.lease else { return };
        let estimates = &lease.pool().estimates;
        let (model, api) = (
            self.record.model.as_deref().unwrap_or_default(),
            self.record.api,
        );
        estimates.learn(&Lesson {
            model,
            api,
            key: self.record.shape.and_then(|shape| shape.session),
            facts: &self.facts,
            prompt_tokens: answer.usage.prompt_tokens,
            output_tokens: answer.usage.output_tokens,
            output_chunks: answer.content_chunks,
            complete: answer.complete,
        });
        if answer.usage.output_tokens.is_none() && answer.streamed && answer.content_chunks > 0 {
            self.record.output_tokens_est =
                estimates.output_tokens(model, api, answer.content_chunks);
        }
    }

    /// Gives the places with its key and on the instance back.
    fn release(&mut self) {
        self.retry = None;
        self.key_place = None;
        let Some(mut lease) = self.lease.take() else {
            return;
        };
        self.record.mean_batch = lease.mean_batch(now_ns());
        lease.observe(&self.record, self.outcome());
    }

    fn outcome(&self) -> Outcome {
        let answer = self.record.answer.as_ref();
        let decided = answer
            .filter(|answer| answer.complete || answer.error.is_some())
            .map(Answer::outcome);
        match self.end {
            End::Refused(outcome) => outcome,
            End::TimedOut => decided.unwrap_or(Outcome::Timeout),
            End::Body => answer.map_or(Outcome::Cut, Answer::outcome),
            // an answer that was whole, or an error the client was told of, came before the client left
            End::Open => decided.unwrap_or(Outcome::ClientCancelled),
        }
    }
}

impl Drop for OpenExchange {
    /// The one place where a request ends.
    fn drop(&mut self) {
        self.end_meter_early();
        self.close_meter();
        self.release();
        self.record.chunks = self.waiting.take().and_then(Waiting::into_log);
        if self.end == End::Open && self.gave_up() {
            self.record.cause = Some(client_pace::WRITE_TIMEOUT);
        }
        self.record.outcome = self.outcome();
        self.record.response_bytes = self.response_bytes;
        self.record.stamps.client_blocked_ns = self.blocked_ns();
        let figures = Figures::of(&self.record);
        self.core.recorder.record(&self.record, &figures, now_ns());
        self.core.shared.submit(&mut self.record);
    }
}
