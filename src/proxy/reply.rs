//! The body of a reply: our own bytes, or an instance's answer on its way.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::relay::{BrokenOff, Relay};
use super::stream_tasks;

/// A reply's body.
pub enum Reply {
    /// made here
    Own(Option<Bytes>),
    /// an instance's
    Relay(Box<Relay>),
}

impl Reply {
    /// Our own bytes.
    pub fn own(bytes: Bytes) -> Self {
        Reply::Own((!bytes.is_empty()).then_some(bytes))
    }

    /// An instance's answer.
    pub fn relay(relay: Relay) -> Self {
        Reply::Relay(Box::new(relay))
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let polled = match self.get_mut() {
            Reply::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Reply::Relay(relay) => Pin::new(relay.as_mut()).poll_frame(cx),
        };
        stream_tasks::noted(polled)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Reply::Own(bytes) => bytes.is_none(),
            Reply::Relay(relay) => relay.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Reply::Own(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Reply::Relay(relay) => relay.size_hint(),
        }
    }
}
