//! Request bodies as they go to an instance: held whole, or a held beginning and the rest streamed.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::pin::Pin;
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
    /// taken from the client so far
    bytes: u64,
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
        Self {
            bytes: held.iter().map(|part| part.len() as u64).sum(),
            held: held.into(),
            rest,
            limit_bytes,
            known_bytes,
            pace,
        }
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
            return Poll::Ready(Some(Err(BodyError::TooSlow)));
        };
        let Some(frame) = frame.transpose()? else {
            return Poll::Ready(None);
        };
        let length = frame.data_ref().map_or(0, Bytes::len);
        self.pace.came(length);
        self.bytes += length as u64;
        if self.bytes > self.limit_bytes {
            return Poll::Ready(Some(Err(BodyError::TooLarge(self.limit_bytes))));
        }
        Poll::Ready(Some(Ok(frame)))
    }
}
