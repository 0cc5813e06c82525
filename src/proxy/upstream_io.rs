//! The instance's socket: stamps reads and writes where bytes cross it.
//!
//! hyper reads again only after the body frame of the last read was taken, so at the moment the relay
//! takes a frame, the newest read is the one that brought it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};

use crate::measure::clock::{Ns, now_ns};

/// Stamps of one upstream connection.
#[derive(Default)]
pub struct UpstreamSide {
    last_read_ns: AtomicU64,
    last_write_ns: AtomicU64,
}

impl UpstreamSide {
    /// The newest read; the call's own time if there was none.
    pub fn last_read_ns(&self) -> Ns {
        match self.last_read_ns.load(Relaxed) {
            0 => now_ns(),
            stamp => stamp,
        }
    }

    /// The newest write; `None` if nothing was written yet.
    pub fn last_write_ns(&self) -> Option<Ns> {
        match self.last_write_ns.load(Relaxed) {
            0 => None,
            stamp => Some(stamp),
        }
    }
}

/// An instance's socket that stamps.
pub struct UpstreamIo<S> {
    inner: S,
    side: Arc<UpstreamSide>,
}

impl<S> UpstreamIo<S> {
    /// Wraps `inner`; what it sees goes to `side`.
    pub fn new(inner: S, side: Arc<UpstreamSide>) -> Self {
        Self { inner, side }
    }

    fn wrote(&self, result: io::Result<usize>) -> Poll<io::Result<usize>> {
        self.side.last_write_ns.store(now_ns(), Relaxed);
        Poll::Ready(result)
    }
}

impl<S: Read + Unpin> Read for UpstreamIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.inner).poll_read(cx, buf));
        self.side.last_read_ns.store(now_ns(), Relaxed);
        Poll::Ready(result)
    }
}

impl<S: Write + Unpin> Write for UpstreamIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.inner).poll_write(cx, buf));
        self.wrote(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, bufs));
        self.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
