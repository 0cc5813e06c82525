//! The client's socket: stamps reads and writes where bytes cross it.
//!
//! hyper writes everything it was handed before it calls `poll_flush` on the I/O. Once what was written before a flush
//! is out, every body frame handed over until then has been taken by the socket. That is how the time "the bytes of
//! this chunk were taken by the client's socket" is known without counting offsets.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::Instant;

use super::client_socket::ClientSocket;
use super::finish::OpenExchange;
use super::timer::Timer;
use super::turn;
use crate::measure::clock::{Ns, now_ns};

/// What the socket of one client connection saw. One task writes it; the atomics are only for `Send`.
#[derive(Default)]
pub struct ClientSide {
    first_read_ns: AtomicU64,
    last_read_ns: AtomicU64,
    last_write_ns: AtomicU64,
    blocked_since_ns: AtomicU64,
    blocked_ns: AtomicU64,
    /// it took nothing for too long
    gave_up: AtomicBool,
    handed_frames: AtomicU64,
    /// of those, what was written when hyper last flushed
    written_frames: AtomicU64,
    /// of those, what is out
    flushed_frames: AtomicU64,
    /// answers handed over whole that are not out yet, oldest first: their exchanges, if they make a record
    parked: Mutex<VecDeque<Option<OpenExchange>>>,
    /// answers handed over whole, those of them that were written when hyper last flushed, and those that are out
    ended_answers: AtomicU64,
    written_answers: AtomicU64,
    answers_out: AtomicU64,
    /// waits for an answer to be out
    waiting: Mutex<Option<Waker>>,
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

    /// The connection was cut because the client took nothing for too long.
    pub fn gave_up(&self) -> bool {
        self.gave_up.load(Relaxed)
    }

    /// Time writes have waited for the client on this connection, in nanoseconds.
    pub fn blocked_ns(&self) -> u64 {
        let since = self.blocked_since_ns.load(Relaxed);
        let now_blocked = match since {
            0 => 0,
            since => now_ns().saturating_sub(since),
        };
        self.blocked_ns.load(Relaxed) + now_blocked
    }

    /// The answer is handed over whole. Its exchange, if it has one, waits here until the bytes are out.
    pub fn end_at_flush(&self, exchange: Option<OpenExchange>) {
        self.parked.lock().push_back(exchange);
        self.ended_answers.fetch_add(1, Relaxed);
    }

    /// What was read so far was no request.
    pub fn no_request_yet(&self) {
        self.first_read_ns.store(0, Relaxed);
    }

    /// The newest read brought bytes of a request, maybe its first.
    pub fn request_has_begun(&self) {
        if self.first_read_ns.load(Relaxed) == 0 {
            let last = self.last_read_ns.load(Relaxed);
            self.first_read_ns.store(last, Relaxed);
        }
    }

    /// Answers that the socket has taken whole.
    pub fn answers_out(&self) -> u64 {
        self.answers_out.load(Relaxed)
    }

    /// Wakes a task once the socket has taken a further answer.
    pub fn wake_when_answered(&self, task: &Waker) {
        *self.waiting.lock() = Some(task.clone());
    }

    fn stamp_read(&self) {
        let now = now_ns();
        self.last_read_ns.store(now, Relaxed);
        if self.first_read_ns.load(Relaxed) == 0 {
            self.first_read_ns.store(now, Relaxed);
        }
    }

    /// A write begun at `now` went out. Its end is no stamp: a client on the same machine may run before the call returns.
    pub fn wrote(&self, now: Ns) {
        self.last_write_ns.store(now, Relaxed);
        let since = self.blocked_since_ns.load(Relaxed);
        if since != 0 {
            self.blocked_ns
                .fetch_add(now.saturating_sub(since), Relaxed);
            self.blocked_since_ns.store(0, Relaxed);
        }
    }

    /// A write begun at `now` waits for the client to read.
    pub fn blocked(&self, now: Ns) {
        if self.blocked_since_ns.load(Relaxed) == 0 {
            self.blocked_since_ns.store(now, Relaxed);
        }
    }

    /// hyper has written all it was handed.
    pub fn flush_begun(&self) {
        self.written_frames
            .store(self.handed_frames.load(Relaxed), Relaxed);
        self.written_answers
            .store(self.ended_answers.load(Relaxed), Relaxed);
    }

    /// All that hyper had written when it last flushed is out.
    pub fn flushed(&self) {
        self.flushed_frames
            .store(self.written_frames.load(Relaxed), Relaxed);
        let written = self.written_answers.load(Relaxed);
        if self.answers_out.load(Relaxed) == written {
            return;
        }
        while self.answers_out.load(Relaxed) < written {
            self.answers_out.fetch_add(1, Relaxed);
            let parked = self.parked.lock().pop_front().flatten();
            if let Some(mut exchange) = parked {
                exchange.client_has_all(some(self.last_write_ns.load(Relaxed)));
            }
        }
        // the next read is the next request's first byte
        self.first_read_ns.store(0, Relaxed);
        if let Some(task) = self.waiting.lock().take() {
            task.wake();
        }
    }

    /// The connection is gone: exchanges that wait for their last flush end without it.
    fn gone(&self) {
        let parked = std::mem::take(&mut *self.parked.lock());
        drop(parked);
    }
}

fn some(stamp: u64) -> Option<Ns> {
    (stamp != 0).then_some(stamp)
}

/// A client socket that stamps.
pub struct ClientIo {
    reading: OwnedReadHalf,
    writing: Arc<ClientSocket>,
    side: Arc<ClientSide>,
    /// the longest that it may take nothing
    write_limit: Duration,
    timer: Timer,
}

impl ClientIo {
    /// Wraps `stream`; what it sees goes to `side`. A client that takes nothing for `write_limit` is cut.
    pub fn new(stream: TcpStream, side: Arc<ClientSide>, write_limit: Duration) -> Self {
        let (reading, writing) = stream.into_split();
        Self {
            reading,
            writing: Arc::new(ClientSocket::new(writing, side.clone())),
            side,
            write_limit,
            timer: Timer::default(),
        }
    }

    /// A write that waits fails once the client has taken nothing for too long.
    fn bounded<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl Fn(&Arc<ClientSocket>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let written = write(&self.writing, cx);
        let since = self.side.blocked_since_ns.load(Relaxed);
        if written.is_ready() || since == 0 {
            return written;
        }
        let blocked = Duration::from_nanos(now_ns().saturating_sub(since));
        let left = self.write_limit.saturating_sub(blocked);
        ready!(self.timer.poll(cx, Instant::now() + left));
        self.writing.write_unasked();
        let written = write(&self.writing, cx);
        if written.is_ready() {
            return written;
        }
        if self.side.blocked_since_ns.load(Relaxed) != since {
            // it took some: the wait begins anew
            ready!(self.timer.poll(cx, Instant::now() + self.write_limit));
        }
        self.side.gave_up.store(true, Relaxed);
        self.writing.reset_at_end();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.reading).poll_read(cx, buf));
        if result.is_ok() {
            self.side.stamp_read();
        }
        Poll::Ready(result)
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.bounded(cx, |socket, cx| socket.poll_write(cx, buf))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bounded(cx, |socket, cx| socket.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bounded(cx, |socket, cx| socket.poll_shutdown(cx))
    }
}

impl Drop for ClientIo {
    fn drop(&mut self) {
        // what waits for the end of the turn still goes out, and ends its exchange
        if self.writing.has_waiting() {
            turn::end_turn();
        }
        self.side.gone();
    }
}
