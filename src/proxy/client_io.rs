//! The client's socket: stamps reads and writes where bytes cross it.
//!
//! hyper writes everything it was handed before it calls `poll_flush` on the I/O, so a flush tells
//! that every body frame handed over until then has been taken by the socket. That is how the time
//! "the bytes of this chunk were taken by the client's socket" is known without counting offsets.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use parking_lot::Mutex;

use super::finish::OpenExchange;
use crate::measure::clock::{Ns, now_ns};

/// What the socket of one client connection saw. One task writes it; the atomics are only for `Send`.
#[derive(Default)]
pub struct ClientSide {
    first_read_ns: AtomicU64,
    last_read_ns: AtomicU64,
    last_write_ns: AtomicU64,
    blocked_since_ns: AtomicU64,
    blocked_ns: AtomicU64,
    handed_frames: AtomicU64,
    flushed_frames: AtomicU64,
    /// the answer was handed over whole: the next flush ends this request
    ending: AtomicBool,
    /// the exchange that ends then, if the request makes a record
    parked: Mutex<Option<OpenExchange>>,
}

impl ClientSide {
    /// First byte of the request now being served; `None` if it came along with an earlier one.
    pub fn request_first_ns(&self) -> Option<Ns> {
        some(self.first_read_ns.load(Relaxed))
    }

    /// The newest read.
    pub fn last_read_ns(&self) -> Option<Ns> {
        some(self.last_read_ns.load(Relaxed))
    }

    /// Called by the relay for every frame it hands to hyper.
    pub fn frame_handed(&self) {
        self.handed_frames.fetch_add(1, Relaxed);
    }

    /// When the socket took all frames handed over so far; `None` while some are on their way.
    pub fn all_taken_ns(&self) -> Option<Ns> {
        let all = self.flushed_frames.load(Relaxed) == self.handed_frames.load(Relaxed);
        if all {
            some(self.last_write_ns.load(Relaxed))
        } else {
            None
        }
    }

    /// Whether a write waits for the client to read.
    pub fn is_blocked(&self) -> bool {
        self.blocked_since_ns.load(Relaxed) != 0
    }

    /// Time writes have waited for the client on this connection, in nanoseconds.
    pub fn blocked_ns(&self) -> u64 {
        self.blocked_ns.load(Relaxed)
    }

    /// The answer is handed over whole. Its exchange, if it has one, waits here until the bytes are out.
    pub fn end_at_flush(&self, exchange: Option<OpenExchange>) {
        *self.parked.lock() = exchange;
        self.ending.store(true, Relaxed);
    }

    fn stamp_read(&self) {
        let now = now_ns();
        self.last_read_ns.store(now, Relaxed);
        if self.first_read_ns.load(Relaxed) == 0 {
            self.first_read_ns.store(now, Relaxed);
        }
    }

    /// A write begun at `now` did that. Its end is no stamp: a client on the same machine may run before the call returns.
    fn stamp_write(&self, now: Ns, result: &Poll<io::Result<usize>>) {
        let since = self.blocked_since_ns.load(Relaxed);
        match result {
            Poll::Pending if since == 0 => self.blocked_since_ns.store(now, Relaxed),
            Poll::Ready(Ok(_)) => {
                self.last_write_ns.store(now, Relaxed);
                if since != 0 {
                    self.blocked_ns
                        .fetch_add(now.saturating_sub(since), Relaxed);
                    self.blocked_since_ns.store(0, Relaxed);
                }
            }
            _ => {}
        }
    }

    fn flushed(&self) {
        self.flushed_frames
            .store(self.handed_frames.load(Relaxed), Relaxed);
        if !self.ending.load(Relaxed) {
            return;
        }
        self.ending.store(false, Relaxed);
        // the next read is the next request's first byte
        self.first_read_ns.store(0, Relaxed);
        let parked = self.parked.lock().take();
        if let Some(mut exchange) = parked {
            exchange.client_has_all(some(self.last_write_ns.load(Relaxed)));
        }
    }
}

fn some(stamp: u64) -> Option<Ns> {
    (stamp != 0).then_some(stamp)
}

/// A client socket that stamps.
pub struct ClientIo<S> {
    inner: S,
    side: Arc<ClientSide>,
}

impl<S> ClientIo<S> {
    /// Wraps `inner`; what it sees goes to `side`.
    pub fn new(inner: S, side: Arc<ClientSide>) -> Self {
        Self { inner, side }
    }
}

impl<S: Read + Unpin> Read for ClientIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.inner).poll_read(cx, buf));
        if result.is_ok() {
            self.side.stamp_read();
        }
        Poll::Ready(result)
    }
}

impl<S: Write + Unpin> Write for ClientIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let now = now_ns();
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.side.stamp_write(now, &result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let now = now_ns();
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.side.stamp_write(now, &result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.inner).poll_flush(cx));
        if result.is_ok() {
            self.side.flushed();
        }
        Poll::Ready(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<S> Drop for ClientIo<S> {
    fn drop(&mut self) {
        // a connection that ends before its last flush still ends its exchange
        let parked = self.side.parked.lock().take();
        drop(parked);
    }
}
