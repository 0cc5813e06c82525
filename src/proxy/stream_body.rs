//! A reply's body on HTTP/2: it breaks off only when everything before is out.
//!
//! A reset throws away what waits on its stream, the head too. So each piece tells when the connection is done with
//! it, and the end of an answer that broke off waits for that; one whose client takes nothing ends by its pace.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use super::relay::BrokenOff;
use super::reply::Reply;

/// A reply on its stream.
pub struct StreamBody {
    reply: Reply,
    waiting: Arc<Waiting>,
    broken: Option<BrokenOff>,
}

/// Bytes that tell when they are gone.
pub struct Piece {
    bytes: Bytes,
    waiting: Arc<Waiting>,
}

/// The pieces of one stream that are not out.
#[derive(Default)]
struct Waiting {
    pieces: AtomicUsize,
    task: Mutex<Option<Waker>>,
}

impl StreamBody {
    /// The body of `reply`.
    pub fn new(reply: Reply) -> Self {
        Self {
            reply,
            waiting: Arc::default(),
            broken: None,
        }
    }

    fn piece(&self, bytes: Bytes) -> Piece {
        self.waiting.pieces.fetch_add(1, AcqRel);
        let waiting = self.waiting.clone();
        Piece { bytes, waiting }
    }
}

impl Waiting {
    /// Ready once no piece waits.
    fn poll_out(&self, cx: &mut Context<'_>) -> Poll<()> {
        *self.task.lock() = Some(cx.waker().clone());
        match self.pieces.load(Acquire) {
            0 => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }
}

impl Body for StreamBody {
    type Data = Piece;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, BrokenOff>>> {
        if self.broken.is_some() {
            return self
                .waiting
                .poll_out(cx)
                .map(|()| self.broken.take().map(Err));
        }
        Pin::new(&mut self.reply).poll_frame(cx).map(|next| {
            next.map(|frame| match frame {
                Ok(frame) => Ok(frame.map_data(|bytes| self.piece(bytes))),
                Err(broken) => {
                    self.broken = Some(broken);
                    // empty: it leaves after the head, even where no byte of the body came
                    Ok(Frame::data(self.piece(Bytes::new())))
                }
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.broken.is_none() && self.reply.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.reply.size_hint()
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.waiting.pieces.fetch_sub(1, AcqRel) == 1
            && let Some(task) = self.waiting.task.lock().take()
        {
            task.wake();
        }
    }
}
