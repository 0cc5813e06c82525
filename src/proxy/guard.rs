//! Stands between a client's socket and hyper on HTTP/1.1: hyper sees a request's head once it is whole and well-formed.
//!
//! A head that is not is answered here, in words, after all answers before it are out; then the connection ends.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use tokio::time::Instant;

use super::client_io::ClientSide;
use super::framing::Framing;
use super::refusal::Refusal;
use super::refused_heads::RefusedHeads;
use super::request_head::RequestHead;
use super::scratch;
use super::timer::Timer;

/// Read on from a refused client, so that its unread bytes do not reset the connection before it has read the answer.
const LINGER_BYTES_MAX: usize = 1 << 20;
const LINGER_TIME_MAX: Duration = Duration::from_secs(1);

/// An HTTP/1.1 client's socket whose requests are looked at before hyper sees them.
pub struct Guard<I> {
    io: I,
    side: Arc<ClientSide>,
    limits: Limits,
    refused: Arc<RefusedHeads>,
    /// when the wait for a request, or for the rest of its head, began; a timer for it
    waits_since: Option<Instant>,
    timer: Timer,
    /// read and not yet given to hyper
    held: BytesMut,
    /// of those, what hyper may have
    good: usize,
    place: Place,
    /// heads hyper was given
    heads: u64,
    /// hyper has yet to come back for more after the newest of those
    unserved: bool,
    /// the last of those whose answer's end wakes this task
    awaited: u64,
    last: Option<LastWords>,
}

/// What a head may be, and how long it may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// limits.head_bytes
    pub head_bytes: usize,
    /// timeouts.client_header_s
    pub head: Duration,
    /// timeouts.client_idle_s
    pub idle: Duration,
}

/// What comes next from the client.
enum Place {
    Head(RequestHead),
    Body(Framing),
    /// a chunked body broke; where the next request would begin is unknown
    Lost,
}

/// The end of a connection after a fault: what is still said, and how long it is listened to.
struct LastWords {
    bytes: Bytes,
    linger_bytes: usize,
    /// until when it is listened to, once the sending side has ended
    until: Option<Instant>,
    timer: Timer,
}

impl<I: Read + Write + Unpin> Guard<I> {
    /// Guards `io`, whose answers `side` counts; what is refused is counted in `refused`.
    pub fn new(io: I, side: Arc<ClientSide>, limits: Limits, refused: Arc<RefusedHeads>) -> Self {
        Self {
            io,
            side,
            limits,
            refused,
            waits_since: None,
            timer: Timer::default(),
            held: BytesMut::new(),
            good: 0,
            place: Place::Head(RequestHead::default()),
            heads: 0,
            unserved: false,
            awaited: 0,
            last: None,
        }
    }

    /// Reads as much as hyper has room for; 0 bytes are the connection's end.
    fn poll_more(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<io::Result<usize>> {
        scratch::with_block(|block| {
            let room = room.clamp(1, block.len());
            let mut buf = ReadBuf::new(&mut block[..room]);
            ready!(Pin::new(&mut self.io).poll_read(cx, buf.unfilled()))?;
            let n = buf.filled().len();
            self.held.extend_from_slice(buf.filled());
            Poll::Ready(Ok(n))
        })
    }

    /// Looks at what is held and was not looked at.
    fn look(&mut self) {
        while self.good < self.held.len() && self.last.is_none() {
            let rest = &self.held[self.good..];
            match &mut self.place {
                Place::Head(head) => match head.judge(rest, self.limits.head_bytes) {
                    Ok(Some((length, framing))) => {
                        self.good += length;
                        self.heads += 1;
                        self.unserved = true;
                        self.place = Place::Body(framing);
                    }
                    Ok(None) => return,
                    Err(refusal) => self.refuse(&refusal),
                },
                Place::Body(framing) => {
                    self.good += framing.skip(rest);
                    if framing.is_broken() {
                        self.place = Place::Lost;
                        self.last = Some(LastWords::new(Bytes::new()));
                    }
                }
                Place::Lost => return,
            }
            self.next_request();
        }
    }

    /// A body that has ended is followed by a head.
    fn next_request(&mut self) {
        if matches!(&self.place, Place::Body(framing) if framing.is_done()) {
            self.place = Place::Head(RequestHead::default());
        }
    }

    fn refuse(&mut self, refusal: &Refusal) {
        tracing::debug!(%refusal, "request refused before it was read");
        self.refused.count(refusal);
        self.last = Some(LastWords::new(refusal.last_words()));
    }

    /// Nothing came. Ready once that is too long: with true, if a head was begun.
    fn poll_too_late(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if !matches!(self.place, Place::Head(_)) || !self.is_quiet() {
            // a body has its own pace, and while an answer is on its way the client need say nothing
            self.waits_since = None;
            if self.awaited != self.heads {
                self.awaited = self.heads;
                self.side.wake_when_answered(cx.waker());
            }
            return Poll::Pending;
        }
        let since = *self.waits_since.get_or_insert_with(Instant::now);
        let has_begun = !self.held.is_empty();
        let limit = match has_begun {
            true => self.limits.head,
            false => self.limits.idle,
        };
        self.timer.poll(cx, since + limit).map(|()| has_begun)
    }

    /// Whether all answers to what hyper was given are out.
    fn is_quiet(&self) -> bool {
        self.side.answers_out() == self.heads
    }

    /// hyper gets no more; it is told of the end once it has answered all before, or the client has left.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.side.wake_when_answered(cx.waker());
        if self.is_quiet() || matches!(self.place, Place::Lost) {
            return Poll::Ready(Ok(()));
        }
        while ready!(self.poll_more(cx, scratch::READ_BYTES_MAX))? > 0 {
            self.held.clear();
        }
        Poll::Ready(Ok(()))
    }
}

impl LastWords {
    fn new(bytes: Bytes) -> Self {
        Self {
            bytes,
            linger_bytes: LINGER_BYTES_MAX,
            until: None,
            timer: Timer::default(),
        }
    }

    /// Says what is to be said, ends the sending side, and reads away what comes for a while.
    fn poll<I: Read + Write + Unpin>(
        &mut self,
        io: &mut I,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.bytes.is_empty() {
            let n = ready!(Pin::new(&mut *io).poll_write(cx, &self.bytes))?;
            self.bytes.advance(n);
        }
        let until = match self.until {
            Some(until) => until,
            None => {
                ready!(Pin::new(&mut *io).poll_shutdown(cx))?;
                *self.until.insert(Instant::now() + LINGER_TIME_MAX)
            }
        };
        scratch::with_block(|block| {
            while self.linger_bytes > 0 {
                let mut buf = ReadBuf::new(block);
                if Pin::new(&mut *io)
                    .poll_read(cx, buf.unfilled())?
                    .is_pending()
                {
                    return self.timer.poll(cx, until).map(Ok);
                }
                match buf.filled().len() {
                    0 => break,
                    n => self.linger_bytes = self.linger_bytes.saturating_sub(n),
                }
            }
            Poll::Ready(Ok(()))
        })
    }
}

impl<I: Read + Write + Unpin> Read for Guard<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.good > 0 {
                let n = this.good.min(buf.remaining());
                buf.put_slice(&this.held[..n]);
                this.held.advance(n);
                this.good -= n;
                if this.held.is_empty() {
                    // a stream holds no buffer while its answer comes
                    this.held = BytesMut::new();
                }
                return Poll::Ready(Ok(()));
            }
            if this.last.is_some() {
                return this.poll_end(cx);
            }
            let had = this.held.len();
            match this.poll_more(cx, buf.remaining()) {
                // told at once, the end would take a request along that came with it and was not looked at yet
                Poll::Ready(Ok(0) | Err(_)) if std::mem::take(&mut this.unserved) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(_)) => this.look(),
                Poll::Pending => {
                    this.unserved = false;
                    match ready!(this.poll_too_late(cx)) {
                        true => this.refuse(&Refusal::HeadTooSlow),
                        false => return Poll::Ready(Ok(())),
                    }
                }
            }
            if had == 0 {
                // the head's own time begins with its first byte
                this.waits_since = None;
            }
        }
    }
}

impl<I: Read + Write + Unpin> Write for Guard<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &mut this.last {
            Some(last) => last.poll(&mut this.io, cx),
            None => Pin::new(&mut this.io).poll_shutdown(cx),
        }
    }
}
