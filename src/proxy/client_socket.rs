//! The writing half of a client's socket: at once, or at the end of the turn; what it does not take then is kept.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;

use super::client_io::ClientSide;
use super::turn;
use crate::measure::clock::now_ns;

/// One client's socket. One thread uses it; the lock is only for `Send`.
pub struct ClientSocket {
    half: OwnedWriteHalf,
    side: Arc<ClientSide>,
    /// writes that wait for the end of the turn
    waiting: AtomicUsize,
    /// the next write does not wait until the kernel says that there is room
    unasked: AtomicBool,
    behind: Mutex<Behind>,
}

/// What the socket did not take at the end of a turn.
#[derive(Default)]
struct Behind {
    bytes: Vec<u8>,
    error: Option<io::Error>,
    /// the connection's task, which goes on from here
    task: Option<Waker>,
}

impl ClientSocket {
    /// What the socket sees goes to `side`.
    pub fn new(half: OwnedWriteHalf, side: Arc<ClientSide>) -> Self {
        Self {
            half,
            side,
            waiting: AtomicUsize::new(0),
            unasked: AtomicBool::new(false),
            behind: Mutex::default(),
        }
    }

    /// Takes bytes. Small ones go out when the turn ends; a failure then is told by the next call.
    pub fn poll_write(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_catch_up(cx))?;
        if turn::write_later(self, bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        if self.waiting.load(Relaxed) > 0 {
            turn::end_turn();
            ready!(self.poll_catch_up(cx))?;
        }
        self.poll_write_now(cx, bytes)
    }

    /// Everything that was taken is out, or waits only for the end of the turn.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_catch_up(cx))?;
        self.side.flush_begun();
        if self.waiting.load(Relaxed) == 0 {
            self.side.flushed();
        }
        Poll::Ready(Ok(()))
    }

    /// Everything that was taken is out, and no more comes.
    pub fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.waiting.load(Relaxed) > 0 {
            turn::end_turn();
        }
        ready!(self.poll_catch_up(cx))?;
        let stream: &TcpStream = self.half.as_ref();
        Poll::Ready(socket2::SockRef::from(stream).shutdown(std::net::Shutdown::Write))
    }

    /// Makes the next write be tried at once. The kernel says that there is room when a third of its buffer, up to
    /// megabytes, is free; a slow client has taken something long before.
    pub fn write_unasked(&self) {
        self.unasked.store(true, Relaxed);
    }

    /// When the connection goes, it is reset: the kernel would offer a client that takes nothing the rest for minutes.
    pub fn reset_at_end(&self) {
        let stream: &TcpStream = self.half.as_ref();
        if let Err(error) = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)) {
            tracing::debug!(%error, "a client's connection will not be reset");
        }
    }

    /// Whether writes wait for the end of the turn.
    pub fn has_waiting(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// A turn took a write of this socket.
    pub fn write_waits(&self) {
        self.waiting.fetch_add(1, Relaxed);
    }

    /// The turn ends: writes what it took.
    pub fn write_now(&self, bytes: &[u8]) {
        let left = self.waiting.fetch_sub(1, Relaxed) - 1;
        let mut behind = self.behind.lock();
        if behind.error.is_some() {
            return;
        }
        let taken = if behind.bytes.is_empty() {
            self.try_write_all(bytes)
        } else {
            Ok(0)
        };
        match taken {
            Ok(taken) if taken == bytes.len() => {
                drop(behind);
                if left == 0 {
                    self.side.flushed();
                }
                return;
            }
            Ok(taken) => behind.bytes.extend_from_slice(&bytes[taken..]),
            Err(error) => behind.error = Some(error),
        }
        if let Some(task) = behind.task.take() {
            task.wake();
        }
    }

    /// Writes until the socket takes no more; gives how much it took.
    fn try_write_all(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut taken = 0;
        while taken < bytes.len() {
            let now = now_ns();
            match self.half.try_write(&bytes[taken..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    taken += n;
                    self.side.wrote(now);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.side.blocked(now);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    /// What the socket did not take at the end of a turn comes first.
    fn poll_catch_up(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut behind = self.behind.lock();
        let Behind { bytes, error, task } = &mut *behind;
        if let Some(error) = error.take() {
            return Poll::Ready(Err(error));
        }
        while !bytes.is_empty() {
            let n = ready!(self.poll_write_now(cx, bytes))?;
            bytes.drain(..n);
            if bytes.is_empty() {
                // a stream that is not behind holds no buffer
                *bytes = Vec::new();
            }
        }
        if task
            .as_ref()
            .is_none_or(|known| !known.will_wake(cx.waker()))
        {
            *task = Some(cx.waker().clone());
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_now(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let stream: &TcpStream = self.half.as_ref();
        if self.unasked.swap(false, Relaxed) {
            let now = now_ns();
            if let Ok(n) = socket2::SockRef::from(stream).send(bytes) {
                self.side.wrote(now);
                return Poll::Ready(Ok(n));
            }
        }
        loop {
            let now = now_ns();
            if stream.poll_write_ready(cx)?.is_pending() {
                self.side.blocked(now);
                return Poll::Pending;
            }
            match stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => {
                    if written.is_ok() {
                        self.side.wrote(now);
                    }
                    return Poll::Ready(written);
                }
            }
        }
    }
}
