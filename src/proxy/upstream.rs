//! Connections to instances: an own HTTP/1.1 client for the relay, and a pool per core and instance, newest first.
//!
//! An own client, because a stream then takes one task and one buffer: what was read is handed to the
//! client's connection in the same poll, with the time of the very read it came with.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Request;
use http_body::SizeHint;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::arrival::{Arrival, StampedWire};
use super::body::{BodyError, UpstreamBody};
use super::framing::Framing;
use super::pieces;
use super::read_buffer::ReadBuffer;
use super::response_head::{self, Head, HeadError};
use super::scratch;
use super::sending::{SendError, Sending};
use super::timer::Timer;
use super::wire::Wire;
use crate::config::checked::{ArrivalStamp, Upstream};
use crate::measure::clock::{Ns, now_ns};
use crate::tls::outbound::Outbound;

/// A connection to an instance.
pub struct Connection {
    wire: StampedWire,
    buffer: ReadBuffer,
    head_bytes_max: usize,
    /// when the newest write was begun
    pub last_write_ns: Option<Ns>,
    /// whether a request went over it before
    pub reused: bool,
    idle_since_ns: Ns,
}

/// Why an attempt got no response head.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    /// no connection: nothing was sent
    #[error("{0}")]
    Connect(io::Error),
    /// this machine has no socket to give: nothing was sent, and the instance is not to blame
    #[error("{0}")]
    NoSocket(io::Error),
    /// a connection, but no agreement on TLS: nothing was sent
    #[error("the TLS handshake failed: {0} (see the pool's `tls`)")]
    Tls(io::Error),
    /// no connection within the limit
    #[error("no connection within {0:?} (timeouts.connect_s)")]
    ConnectTimeout(Duration),
    /// no byte of the request was written: sending it again is always safe
    #[error("the connection was closed before the request was written")]
    NeverWritten,
    /// no head within the limit after the request's last byte
    #[error("no response head within {0:?} (timeouts.headers_s)")]
    HeadTimeout(Duration),
    /// written, at least in part, then the connection ended without a byte of a response
    #[error("{0}")]
    NoAnswer(io::Error),
    /// the request's body broke off at the client's side
    #[error("{0}")]
    Body(BodyError),
    /// something came that is no response
    #[error("{0}")]
    NotHttp(#[from] HeadError),
    /// a head over limits.head_bytes
    #[error("the response's head is larger than {0} bytes (limits.head_bytes)")]
    HeadTooLarge(usize),
    /// the connection ended inside the head
    #[error("the connection ended inside the response's head")]
    HeadCut,
}

/// The body of an answer ended before its framing says.
#[derive(Debug, thiserror::Error)]
pub enum BodyCut {
    /// the connection's end
    #[error("the connection ended inside the body")]
    Closed,
    /// the connection's failure
    #[error(transparent)]
    Io(#[from] io::Error),
    /// the transfer coding
    #[error("the response's chunked coding is broken")]
    Chunk,
}

/// Opens a connection; `tls` is that of the instance's pool.
pub async fn connect(
    url: &Upstream,
    tls: Option<&Outbound>,
    limit: Duration,
    head_bytes_max: usize,
    arrival: ArrivalStamp,
) -> Result<Connection, AttemptError> {
    let wire = tokio::time::timeout(limit, open(url, tls))
        .await
        .map_err(|_| AttemptError::ConnectTimeout(limit))??;
    Ok(Connection::over(wire, head_bytes_max, arrival))
}

async fn open(url: &Upstream, tls: Option<&Outbound>) -> Result<Wire, AttemptError> {
    let opening = TcpStream::connect((url.host.as_str(), url.port));
    let socket = opening.await.map_err(not_opened)?;
    socket.set_nodelay(true).map_err(AttemptError::Connect)?;
    if !url.tls {
        return Ok(Wire::Plain(socket));
    }
    let tls = tls.ok_or_else(|| AttemptError::Tls(io::ErrorKind::Unsupported.into()))?;
    // boxed, so that a plain connection does not take the room
    let shaken = Box::pin(tls.connect(&url.host, socket)).await;
    Ok(Wire::Tls(Box::new(shaken.map_err(AttemptError::Tls)?)))
}

fn not_opened(error: io::Error) -> AttemptError {
    use nix::libc::{EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM};
    match error.raw_os_error() {
        Some(EMFILE | ENFILE | EADDRNOTAVAIL | ENOBUFS | ENOMEM) => AttemptError::NoSocket(error),
        _ => AttemptError::Connect(error),
    }
}

impl Connection {
    /// A fresh connection.
    pub fn over(wire: Wire, head_bytes_max: usize, arrival: ArrivalStamp) -> Self {
        Self {
            wire: StampedWire::new(wire, arrival),
            buffer: ReadBuffer::default(),
            head_bytes_max,
            last_write_ns: None,
            reused: false,
            idle_since_ns: now_ns(),
        }
    }

    /// Sends a request and waits for the response's head: for `limit` after the newest byte of the request went out,
    /// but as long as its body takes to come.
    pub async fn send(
        mut self,
        request: Request<UpstreamBody>,
        limit: Duration,
    ) -> Result<(Head, AnswerBody), AttemptError> {
        let method = request.method().clone();
        let mut sending = Sending::new(request);
        let mut wait = HeadWait::new(limit);
        let head = poll_fn(|cx| {
            self.poll_send(&mut sending, cx)?;
            if let Poll::Ready(head) = self.poll_head(&sending, &method, cx) {
                return Poll::Ready(head);
            }
            let too_long = wait.poll_too_long(&sending, cx);
            too_long.map(|()| Err(AttemptError::HeadTimeout(limit)))
        })
        .await?;
        let (framing, keep_alive) = (head.framing, head.keep_alive);
        let sending = (!sending.is_done()).then(|| Box::new(sending));
        Ok((
            head,
            AnswerBody {
                connection: self,
                framing,
                read_bytes: scratch::READ_BYTES,
                keep_alive,
                sending,
            },
        ))
    }

    /// Writes what the socket takes. A socket that takes no more may still hold an answer, so its failure is not told here.
    fn poll_send(
        &mut self,
        sending: &mut Sending,
        cx: &mut Context<'_>,
    ) -> Result<(), AttemptError> {
        let last_write_ns = &mut self.last_write_ns;
        let sent = sending.poll(self.wire.wire(), cx, &mut |at_ns| {
            *last_write_ns = Some(at_ns)
        });
        match sent {
            Poll::Ready(Err(SendError::Body(error))) => Err(AttemptError::Body(error)),
            Poll::Ready(Err(SendError::Io(error))) => {
                tracing::debug!(%error, "instance takes no more of the request");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn poll_head(
        &mut self,
        sending: &Sending,
        method: &http::Method,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Head, AttemptError>> {
        loop {
            while let Some((head, length)) = response_head::read(self.buffer.filled(), method)? {
                self.buffer.skip(length);
                // interim heads say nothing about the answer
                if !head.status.is_informational() {
                    return Poll::Ready(Ok(head));
                }
            }
            if self.buffer.filled().len() >= self.head_bytes_max {
                return Poll::Ready(Err(AttemptError::HeadTooLarge(self.head_bytes_max)));
            }
            match ready!(self.buffer.poll_fill(&mut self.wire, cx)) {
                Ok(0) => {
                    return Poll::Ready(Err(
                        self.ended(sending, io::ErrorKind::UnexpectedEof.into())
                    ));
                }
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(self.ended(sending, error))),
            }
        }
    }

    fn ended(&self, sending: &Sending, error: io::Error) -> AttemptError {
        match (self.buffer.filled().is_empty(), sending.written_bytes) {
            (false, _) => AttemptError::HeadCut,
            (true, 0) => AttemptError::NeverWritten,
            (true, _) => AttemptError::NoAnswer(error),
        }
    }

    /// The newest read.
    pub fn newest_read(&self) -> Arrival {
        self.wire.newest()
    }

    /// Nothing came since it was given back: neither an end nor bytes nobody asked for.
    fn is_usable(&mut self) -> bool {
        self.wire.is_quiet()
    }
}

/// How long an instance has been silent about a request it was sent.
struct HeadWait {
    limit: Duration,
    since: Instant,
    written_bytes: u64,
    timer: Timer,
}

impl HeadWait {
    fn new(limit: Duration) -> Self {
        Self {
            limit,
            since: Instant::now(),
            written_bytes: 0,
            timer: Timer::default(),
        }
    }

    fn poll_too_long(&mut self, sending: &Sending, cx: &mut Context<'_>) -> Poll<()> {
        if sending.written_bytes != self.written_bytes || sending.waits_for_client() {
            self.written_bytes = sending.written_bytes;
            self.since = Instant::now();
        }
        self.timer.poll(cx, self.since + self.limit)
    }
}

/// The body of an answer, still on its connection. Dropping it closes that.
pub struct AnswerBody {
    connection: Connection,
    framing: Framing,
    /// the most that the next read takes: grows while reads fill it
    read_bytes: usize,
    keep_alive: bool,
    /// the rest of a request that was answered before it was whole
    sending: Option<Box<Sending>>,
}

impl AnswerBody {
    /// The connection's stamps.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The whole request was written.
    pub fn request_sent(&self) -> bool {
        self.sending.is_none()
    }

    /// The whole body was taken.
    pub fn is_done(&self) -> bool {
        self.framing.is_done()
    }

    /// Bytes left, where known.
    pub fn size_hint(&self) -> SizeHint {
        self.framing
            .left()
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// The next piece of body: as much of the newest read as lies in one piece.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyCut>>> {
        self.poll_rest_of_request(cx);
        loop {
            if self.framing.is_done() {
                return Poll::Ready(None);
            }
            if self.framing.is_broken() {
                return Poll::Ready(Some(Err(BodyCut::Chunk)));
            }
            let piece = match ready!(self.poll_piece(cx)) {
                Ok(Some(piece)) => piece,
                Ok(None) if self.framing.ends_at_eof() => return Poll::Ready(None),
                Ok(None) => return Poll::Ready(Some(Err(BodyCut::Closed))),
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            };
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(piece)));
            }
        }
    }

    /// The body's bytes of what came with the head, or else of the next read; `None` at the connection's end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let Connection { wire, buffer, .. } = &mut self.connection;
        if !buffer.filled().is_empty() {
            let read = buffer.filled();
            let (piece, used) = pieces::cut(read.len(), |body| self.framing.decode(read, body));
            buffer.skip(used);
            return Poll::Ready(Ok(Some(piece)));
        }
        let framing = &mut self.framing;
        let read = ready!(scratch::poll_read(wire, cx, self.read_bytes, |read| {
            let decoded = pieces::cut(read.len(), |body| framing.decode(read, body));
            (decoded, read.len())
        }));
        let ((piece, used), read_bytes) = read?;
        if read_bytes == self.read_bytes {
            self.read_bytes = (read_bytes * 2).min(scratch::READ_BYTES_MAX);
        }
        // bytes nobody asked for: whatever they are, the next request must not get them
        self.keep_alive &= used == read_bytes;
        Poll::Ready(Ok((read_bytes > 0).then_some(piece)))
    }

    fn poll_rest_of_request(&mut self, cx: &mut Context<'_>) {
        let Some(sending) = &mut self.sending else {
            return;
        };
        let last_write_ns = &mut self.connection.last_write_ns;
        match sending.poll(self.connection.wire.wire(), cx, &mut |at_ns| {
            *last_write_ns = Some(at_ns)
        }) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.sending = None,
            Poll::Ready(Err(error)) => {
                tracing::debug!(%error, "the rest of the request was not sent");
                self.keep_alive = false;
                self.sending = None;
            }
        }
    }

    /// The whole body, if it is not larger than `limit_bytes`.
    pub async fn collect(&mut self, limit_bytes: usize) -> Option<Bytes> {
        let mut whole = BytesMut::new();
        while let Some(data) = poll_fn(|cx| self.poll_data(cx)).await {
            whole.extend_from_slice(&data.ok()?);
            if whole.len() > limit_bytes {
                return None;
            }
        }
        Some(whole.freeze())
    }

    /// The connection, if it may carry another request.
    pub fn into_reusable(self) -> Option<Connection> {
        let clean = self.keep_alive && self.framing.is_done() && self.sending.is_none();
        (clean && self.connection.buffer.filled().is_empty()).then_some(self.connection)
    }
}

/// Idle connections of one core to one instance.
#[derive(Default)]
pub struct ConnectionPool {
    idle: Mutex<Vec<Connection>>,
}

impl ConnectionPool {
    /// The newest idle connection that is still open and younger than `idle_limit`.
    pub fn take(&self, idle_limit: Duration) -> Option<Connection> {
        let oldest_ns = oldest_ns(idle_limit);
        loop {
            let mut connection = self.idle.lock().pop()?;
            if connection.idle_since_ns >= oldest_ns && connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose exchange ended clean.
    pub fn give(&self, mut connection: Connection) {
        connection.idle_since_ns = now_ns();
        connection.reused = true;
        self.idle.lock().push(connection);
    }

    /// Whether it keeps none.
    pub fn is_empty(&self) -> bool {
        self.idle.lock().is_empty()
    }

    /// Closes what has been idle too long, or was closed by the instance.
    pub fn sweep(&self, idle_limit: Duration) {
        let oldest_ns = oldest_ns(idle_limit);
        let is_stale = |connection: &mut Connection| {
            connection.idle_since_ns < oldest_ns || !connection.is_usable()
        };
        let stale: Vec<_> = self.idle.lock().extract_if(.., is_stale).collect();
        drop(stale);
    }
}

fn oldest_ns(idle_limit: Duration) -> Ns {
    now_ns().saturating_sub(u64::try_from(idle_limit.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn want_of_sockets_here_is_no_failure_of_the_instance() {
        for code in [
            nix::libc::EMFILE,
            nix::libc::ENFILE,
            nix::libc::EADDRNOTAVAIL,
        ] {
            let error = not_opened(io::Error::from_raw_os_error(code));
            assert!(matches!(error, AttemptError::NoSocket(_)), "{error:?}");
        }
        let refused = not_opened(io::ErrorKind::ConnectionRefused.into());
        assert!(matches!(refused, AttemptError::Connect(_)), "{refused:?}");
    }
}
