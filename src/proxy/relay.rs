//! The answer on its way: each upstream read is written on at once and unchanged; the meter looks on.
//!
//! hyper's server polls this body, so it runs on the client connection's task: dropping it, which
//! is what a client's leaving does, drops the upstream body and thereby closes the upstream.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::arrival::Arrival;
use super::finish::OpenExchange;
use super::response_ids::IdSniffer;
use super::upstream::{AnswerBody, ConnectionPool};
use crate::config::checked::Timeouts;
use crate::measure::clock::{Ns, now_ns};
use crate::measure::withhold::UsageFilter;

/// Ends the client's connection without a proper end: what it got is not whole.
#[derive(Debug, thiserror::Error)]
#[error("the instance's answer broke off")]
pub struct BrokenOff;

/// What a relay needs besides the answer itself.
pub struct Source {
    /// the answer's body, on its connection
    pub body: AnswerBody,
    /// where that connection goes afterwards
    pub pool: Arc<ConnectionPool>,
    /// withholds the usage event we asked for
    pub filter: Option<UsageFilter>,
    /// looks for the id of a stored response
    pub ids: Option<IdSniffer>,
    /// the client speaks HTTP/1.1, so an abort must wait until what came is flushed
    pub limits: Timeouts,
}

/// The body handed to hyper's server.
pub struct Relay {
    open: Option<OpenExchange>,
    source: Option<Source>,
    quiet: Quiet,
    /// frames were handed over that the client's socket had not taken when we last looked
    untaken: bool,
    /// the answer broke off; told to hyper once everything before it is out
    broken: bool,
    /// bytes that a filter gave back at the end
    tail: Option<Bytes>,
    size: SizeHint,
}

impl Relay {
    /// Begins to relay. The head has been read.
    pub fn new(open: OpenExchange, source: Source) -> Self {
        let size = if source.filter.is_some() {
            SizeHint::default()
        } else {
            source.body.size_hint()
        };
        let quiet = Quiet::new(source.limits.first_event, source.limits.silence);
        if let Some(client) = open.client() {
            // the head, which an answer that breaks off at once must not take along
            client.frame_handed();
        }
        let bodiless = source.body.is_done();
        let mut relay = Self {
            open: Some(open),
            source: Some(source),
            quiet,
            untaken: false,
            broken: false,
            tail: None,
            size,
        };
        if bodiless {
            // hyper never polls an empty body
            relay.end(true);
        }
        relay
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        self.note_taken();
        if let Some(tail) = self.tail.take() {
            return Poll::Ready(Some(Ok(Frame::data(tail))));
        }
        while let Some(source) = &mut self.source {
            match source.body.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => {
                    if let Some(data) = self.pass(data) {
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, "answer broke off");
                    self.end(false);
                }
                Poll::Ready(None) => {
                    self.end(true);
                    if let Some(tail) = self.tail.take() {
                        return Poll::Ready(Some(Ok(Frame::data(tail))));
                    }
                }
                Poll::Pending => {
                    let Some(cause) = self
                        .quiet
                        .too_long(cx, source.body.connection().newest_read().read_ns)
                    else {
                        return Poll::Pending;
                    };
                    self.time_out(cause);
                }
            }
        }
        self.poll_end(cx)
    }

    /// The source is gone: ends the body, or breaks it off once all before it was written.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if !self.broken {
            return Poll::Ready(None);
        }
        let client = self.open.as_ref().and_then(OpenExchange::client);
        if let Some(client) = client.filter(|client| client.all_taken_ns().is_none()) {
            // a blocked write wakes this task by itself
            if !client.is_blocked() {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        self.note_taken();
        self.broken = false;
        drop(self.open.take());
        Poll::Ready(Some(Err(BrokenOff)))
    }

    /// Lets the meter look at a piece; gives what goes to the client.
    fn pass(&mut self, data: Bytes) -> Option<Bytes> {
        let (Some(source), Some(open)) = (&mut self.source, &mut self.open) else {
            return None;
        };
        let read = source.body.connection().newest_read();
        self.quiet.heard(read.read_ns);
        observe(open, &data, read);
        if let Some(ids) = &mut source.ids
            && ids.look(&data)
        {
            source.ids = None;
        }
        let data = match &mut source.filter {
            Some(filter) => filter.push(data),
            None => data,
        };
        let ended = source.body.is_done();
        self.hand_over(&data);
        if ended {
            self.end(true);
        }
        (!data.is_empty()).then_some(data)
    }

    fn hand_over(&mut self, data: &Bytes) {
        let Some(open) = &mut self.open else { return };
        if data.is_empty() {
            return;
        }
        open.response_bytes += data.len() as u64;
        match open.client() {
            Some(client) => {
                client.frame_handed();
                self.untaken = true;
            }
            None => taken(open, now_ns()),
        }
    }

    /// Stamps what the client's socket has taken since we last looked.
    fn note_taken(&mut self) {
        let (true, Some(open)) = (self.untaken, &mut self.open) else {
            return;
        };
        let Some(at_ns) = open.client().and_then(|client| client.all_taken_ns()) else {
            return;
        };
        self.untaken = false;
        self.quiet.heard(at_ns);
        taken(open, at_ns);
    }

    fn end(&mut self, clean: bool) {
        let (Some(mut source), Some(open)) = (self.source.take(), &mut self.open) else {
            return;
        };
        open.body_ended(clean, source.body.connection().newest_read().at_ns);
        if let Some(filter) = &mut source.filter {
            self.tail = Some(filter.finish()).filter(|tail| !tail.is_empty());
        }
        if let Some(tail) = self.tail.clone() {
            self.hand_over(&tail);
        }
        self.broken = !clean;
        if !clean {
            return;
        }
        if let Some(connection) = source.body.into_reusable() {
            source.pool.give(connection);
        }
        self.park();
    }

    /// Everything is handed over: the exchange ends when the client's socket has taken it.
    fn park(&mut self) {
        let Some(open) = self.open.take() else { return };
        if let Some(client) = open.client().cloned() {
            client.end_at_flush(Some(open));
        }
    }

    fn time_out(&mut self, cause: &'static str) {
        self.source = None;
        self.broken = true;
        if let Some(open) = &mut self.open {
            open.timed_out(cause);
        }
    }
}

/// Lets meter, scheduler and health know of a read.
fn observe(open: &mut OpenExchange, data: &[u8], read: Arrival) {
    measure(open, data, read);
    // last: health may know of it from the scheduler's turn at the pool's lock
    if let Some(lease) = &mut open.lease {
        lease.heard(read.read_ns);
    }
}

fn measure(open: &mut OpenExchange, data: &[u8], read: Arrival) {
    let Some(meter) = &mut open.meter else { return };
    let progress = meter.read(data, read.at_ns);
    if progress.first_output && read.by_kernel {
        open.record.stamps.first_output_read_ns = Some(read.read_ns);
    }
    let Some(lease) = &mut open.lease else { return };
    if progress.first_output {
        lease.first_output();
    }
    if progress.output_chunks > 0 {
        lease.progress(meter.output_chunks(), read.read_ns, |chunks| {
            meter.output_tokens_known().unwrap_or(chunks)
        });
    }
}

/// The client's socket has taken all chunks handed over so far.
fn taken(open: &mut OpenExchange, at_ns: Ns) {
    let Some(meter) = &mut open.meter else { return };
    meter.handed(at_ns);
    if !open.client_has_output && meter.output_chunks() > 0 {
        open.client_has_output = true;
        open.record.stamps.client_first_output_ns = Some(at_ns);
        open.record.stamps.client_blocked_first_ns = open.blocked_ns();
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        self.get_mut().poll(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_none() && self.tail.is_none() && !self.broken
    }

    fn size_hint(&self) -> SizeHint {
        self.size
    }
}

/// The limits on silence, with one timer a stream that is re-armed only when it fires.
struct Quiet {
    first_event: Duration,
    silence: Duration,
    since_ns: Ns,
    anything: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Quiet {
    fn new(first_event: Duration, silence: Duration) -> Self {
        Self {
            first_event,
            silence,
            since_ns: now_ns(),
            anything: false,
            timer: None,
        }
    }

    fn heard(&mut self, at_ns: Ns) {
        self.since_ns = self.since_ns.max(at_ns);
        self.anything = true;
    }

    fn limit(&self) -> (Duration, &'static str) {
        if self.anything {
            (self.silence, "silence_timeout")
        } else {
            (self.first_event, "first_event_timeout")
        }
    }

    /// The cause, once nothing came for longer than the limit that applies.
    fn too_long(&mut self, cx: &mut Context<'_>, last_read_ns: Ns) -> Option<&'static str> {
        let armed = self.timer.as_ref().is_some_and(|timer| !timer.is_elapsed());
        if armed {
            return None;
        }
        let (limit, cause) = self.limit();
        let since_ns = if self.anything {
            self.since_ns.max(last_read_ns)
        } else {
            self.since_ns
        };
        let quiet = Duration::from_nanos(now_ns().saturating_sub(since_ns));
        if self.timer.is_some() && quiet >= limit {
            return Some(cause);
        }
        let deadline = Instant::now() + limit.saturating_sub(quiet);
        let timer = match &mut self.timer {
            Some(timer) => {
                timer.as_mut().reset(deadline);
                timer
            }
            none => none.insert(Box::pin(tokio::time::sleep_until(deadline))),
        };
        // registers this task's waker
        timer.as_mut().poll(cx).is_ready().then_some(cause)
    }
}
