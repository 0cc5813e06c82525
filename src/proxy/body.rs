//! Request bodies as they go to an instance: held whole, or a held beginning and the rest streamed.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::client_pace::BodyPace;

/// What a streamed body may do before it breaks a limit.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// over limits.body_bytes
    #[error("request body is over {0} bytes (limits.body_bytes)")]
    TooLarge(u64),
    /// under timeouts.client_body_s
    #[error("request body comes too slowly")]
    TooSlow,
    /// the client's side broke
    #[error("request body broke off: {0}")]
    Client(#[from] hyper::Error),
}

/// How far a streamed request body has come; outlives the body, which hyper owns.
#[derive(Debug, Default)]
pub struct BodyProgress {
    bytes: AtomicU64,
    too_large: AtomicBool,
    too_slow: AtomicBool,
    client_left: AtomicBool,
}

impl BodyProgress {
    /// The client left before it had sent all.
    pub fn client_left(&self) -> bool {
        self.client_left.load(Relaxed)
    }

    /// It came too slowly.
    pub fn too_slow(&self) -> bool {
        self.too_slow.load(Relaxed)
    }

    /// It went over the limit.
    pub fn too_large(&self) -> bool {
        self.too_large.load(Relaxed)
    }
}

/// Whether a request body broke off because the client went, not because it was malformed.
pub fn client_left(error: &hyper::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return !matches!(io.kind(), ErrorKind::InvalidData | ErrorKind::InvalidInput);
        }
        cause = error.source();
    }
    true
}

/// The rest of a body that was too large to hold.
pub struct Streamed {
    held: VecDeque<Bytes>,
    rest: Incoming,
    limit_bytes: u64,
    known_bytes: Option<u64>,
    progress: Arc<BodyProgress>,
    pace: BodyPace,
}

impl Streamed {
    /// `held` was read already, at the pace that goes on; `known_bytes` is the declared length.
    pub fn new(
        held: Vec<Bytes>,
        rest: Incoming,
        pace: BodyPace,
        limit_bytes: u64,
        known_bytes: Option<u64>,
    ) -> Self {
        let progress = Arc::new(BodyProgress::default());
        progress
            .bytes
            .store(held.iter().map(|part| part.len() as u64).sum(), Relaxed);
        Self {
            held: held.into(),
            rest,
            limit_bytes,
            known_bytes,
            progress,
            pace,
        }
    }

    /// Shared view of how far it has come.
    pub fn progress(&self) -> Arc<BodyProgress> {
        self.progress.clone()
    }
}

/// A request body on its way to an instance.
pub enum UpstreamBody {
    /// whole; may be sent again
    Held(Option<Bytes>),
    /// sent once
    Streamed(Box<Streamed>),
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            UpstreamBody::Held(bytes) => {
                Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))))
            }
            UpstreamBody::Streamed(streamed) => streamed.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            UpstreamBody::Held(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            UpstreamBody::Streamed(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            UpstreamBody::Held(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            UpstreamBody::Streamed(streamed) => streamed
                .known_bytes
                .map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

impl Streamed {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(part) = self.held.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.rest).poll_frame(cx) else {
            ready!(self.pace.poll_too_slow(cx));
            self.progress.too_slow.store(true, Relaxed);
            return Poll::Ready(Some(Err(BodyError::TooSlow)));
        };
        let Some(frame) = frame else {
            return Poll::Ready(None);
        };
        let frame = frame.inspect_err(|error| {
            self.progress.client_left.store(client_left(error), Relaxed);
        })?;
        let length = frame.data_ref().map_or(0, Bytes::len);
        self.pace.came(length);
        let bytes = length as u64;
        let total = self.progress.bytes.fetch_add(bytes, Relaxed) + bytes;
        if total > self.limit_bytes {
            self.progress.too_large.store(true, Relaxed);
            return Poll::Ready(Some(Err(BodyError::TooLarge(self.limit_bytes))));
        }
        Poll::Ready(Some(Ok(frame)))
    }
}
