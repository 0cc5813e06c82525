//! Writing a request to an instance: head and body, as fast as the socket takes them.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{Method, Request};
use http_body::Body;
use tokio::io::AsyncWrite;

use super::body::{BodyError, UpstreamBody};
use crate::measure::clock::{Ns, now_ns};

/// Pieces handed to one write.
const PIECES_MAX: usize = 8;

/// Why a request could not be sent whole.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// the instance's side
    #[error(transparent)]
    Io(#[from] io::Error),
    /// the client's side
    #[error(transparent)]
    Body(#[from] BodyError),
}

/// What the stream took may still lie in its own buffers: TLS has some.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flush {
    Done,
    Due,
    /// the socket took no more
    Waiting,
}

/// A request on its way.
pub struct Sending {
    queue: VecDeque<Bytes>,
    body: Option<UpstreamBody>,
    chunked: bool,
    flush: Flush,
    /// bytes the socket took
    pub written_bytes: u64,
}

impl Sending {
    /// Settles the framing and writes the head down.
    pub fn new(request: Request<UpstreamBody>) -> Self {
        let (mut parts, body) = request.into_parts();
        parts.headers.remove(CONTENT_LENGTH);
        parts.headers.remove(TRANSFER_ENCODING);
        let target = parts
            .uri
            .path_and_query()
            .map_or("/", |target| target.as_str());
        let mut head = Vec::with_capacity(512);
        for piece in [parts.method.as_str(), " ", target, " HTTP/1.1\r\n"] {
            head.extend_from_slice(piece.as_bytes());
        }
        for (name, value) in &parts.headers {
            field(&mut head, name.as_str(), value.as_bytes());
        }
        let length = body.size_hint().exact();
        match length {
            Some(0) if !expects_body(&parts.method) => {}
            Some(length) => field(&mut head, "content-length", length.to_string().as_bytes()),
            None => field(&mut head, "transfer-encoding", b"chunked"),
        }
        head.extend_from_slice(b"\r\n");
        Self {
            queue: VecDeque::from([Bytes::from(head)]),
            body: Some(body),
            chunked: length.is_none(),
            flush: Flush::Due,
            written_bytes: 0,
        }
    }

    /// Everything was written.
    pub fn is_done(&self) -> bool {
        self.queue.is_empty() && self.body.is_none() && self.flush == Flush::Done
    }

    /// All that has come of the body was written; the client has to send more.
    pub fn waits_for_client(&self) -> bool {
        self.queue.is_empty() && self.body.is_some()
    }

    /// Writes as much as the socket takes and tells when each write was begun. Ready when all is written.
    pub fn poll<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        wrote: &mut impl FnMut(Ns),
    ) -> Poll<Result<(), SendError>> {
        while !self.is_done() {
            // the body's first piece goes out together with the head
            match self.poll_body(cx) {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending if self.queue.is_empty() => {
                    ready!(self.poll_flush(stream, cx, wrote))?;
                    return Poll::Pending;
                }
                _ => {}
            }
            if self.queue.is_empty() {
                ready!(self.poll_flush(stream, cx, wrote))?;
            } else {
                // not the call's end: an instance on the same machine may run before it returns
                let begun_ns = now_ns();
                ready!(self.poll_write(stream, cx))?;
                wrote(begun_ns);
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_flush<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        wrote: &mut impl FnMut(Ns),
    ) -> Poll<io::Result<()>> {
        let before = self.flush;
        if before == Flush::Done {
            return Poll::Ready(Ok(()));
        }
        self.flush = Flush::Waiting;
        ready!(Pin::new(stream).poll_flush(cx))?;
        self.flush = Flush::Done;
        if before == Flush::Waiting {
            // what it held goes out only now
            wrote(now_ns());
        }
        Poll::Ready(Ok(()))
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        if self.queue.len() >= PIECES_MAX / 2 {
            return Poll::Ready(Ok(()));
        }
        let Some(body) = &mut self.body else {
            return Poll::Ready(Ok(()));
        };
        match ready!(Pin::new(body).poll_frame(cx)).transpose()? {
            Some(frame) => {
                let data = frame.into_data().unwrap_or_default();
                if !data.is_empty() {
                    self.push(data);
                }
            }
            None => {
                self.body = None;
                if self.chunked {
                    self.queue.push_back(Bytes::from_static(b"0\r\n\r\n"));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn push(&mut self, data: Bytes) {
        if !self.chunked {
            self.queue.push_back(data);
            return;
        }
        self.queue
            .push_back(Bytes::from(format!("{:x}\r\n", data.len())));
        self.queue.push_back(data);
        self.queue.push_back(Bytes::from_static(b"\r\n"));
    }

    fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.queue) {
            *slice = IoSlice::new(piece);
            count += 1;
        }
        let mut taken = ready!(Pin::new(stream).poll_write_vectored(cx, &slices[..count]))?;
        if taken == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.written_bytes += taken as u64;
        self.flush = Flush::Due;
        while let Some(piece) = self.queue.front_mut() {
            if piece.len() > taken {
                piece.advance(taken);
                break;
            }
            taken -= piece.len();
            self.queue.pop_front();
        }
        Poll::Ready(Ok(()))
    }
}

fn field(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    for piece in [name.as_bytes(), b": ", value, b"\r\n"] {
        head.extend_from_slice(piece);
    }
}

fn expects_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}
