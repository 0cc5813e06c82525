//! One client connection: HTTP/1.1 or HTTP/2 by its first bytes or by what TLS agreed on, then hyper with our service.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::client_io::{ClientIo, ClientSide};
use super::client_tls::ClientTls;
use super::core::Core;
use super::guard::Guard;
use super::reply::Reply;
use super::serve::serve;
use crate::tls::inbound::Inbound;

/// What an HTTP/2 client with prior knowledge sends first.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Between two looks at first bytes that may become that.
const PEEK_PAUSE_MAX: Duration = Duration::from_millis(50);
/// Small, so that a slow client's backpressure reaches the instance (hyper's default hides 400 KiB a stream).
const HTTP2_SEND_BUFFER_BYTES: usize = 16 * 1024;

/// Serves a connection until it ends, or drains it once `stopping` turns true.
pub async fn serve_connection(core: Arc<Core>, stream: TcpStream, stopping: watch::Receiver<bool>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "client connection gone at once");
        return;
    }
    match core.shared.tls.clone() {
        // boxed, so that a connection without TLS does not keep the room
        Some(tls) => Box::pin(serve_tls(core, &tls, stream, stopping)).await,
        None => serve_plain(core, stream, stopping).await,
    }
}

async fn serve_plain(core: Arc<Core>, stream: TcpStream, stopping: watch::Receiver<bool>) {
    let limit = core.shared.config.timeouts.client_header;
    let is_http2 = match tokio::time::timeout(limit, speaks_http2(&stream)).await {
        Ok(Some(is_http2)) => is_http2 && core.shared.config.server.http2,
        _ => return,
    };
    let side = Arc::new(ClientSide::default());
    let io = ClientIo::new(stream, side.clone());
    speak(core, io, side, is_http2, stopping).await;
}

async fn serve_tls(
    core: Arc<Core>,
    tls: &Inbound,
    stream: TcpStream,
    stopping: watch::Receiver<bool>,
) {
    let limit = core.shared.config.timeouts.client_header;
    let side = Arc::new(ClientSide::default());
    let shaking = ClientTls::accept(tls, stream, side.clone());
    match tokio::time::timeout(limit, shaking).await {
        Ok(Ok((io, is_http2))) => speak(core, io, side, is_http2, stopping).await,
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake with a client failed"),
        Err(_) => tracing::debug!("TLS handshake with a client took too long"),
    }
}

/// Hands the connection to hyper.
async fn speak<I: Read + Write + Unpin + Send + 'static>(
    core: Arc<Core>,
    io: I,
    side: Arc<ClientSide>,
    is_http2: bool,
    stopping: watch::Receiver<bool>,
) {
    let (config, seen) = (core.shared.config.clone(), side.clone());
    let service = TowerToHyperService::new(tower::service_fn(move |request: Request<Incoming>| {
        let (core, side) = (core.clone(), side.clone());
        async move { Ok::<Response<Reply>, Infallible>(serve(core, side, request).await) }
    }));
    let ended = if is_http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_send_buf_size(HTTP2_SEND_BUFFER_BYTES);
        let connection = builder.serve_connection(io, service);
        drive(connection, stopping, |connection| {
            connection.graceful_shutdown()
        })
        .await
    } else {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(config.timeouts.client_header)
            .half_close(config.client.half_close)
            // events are small: one piece in one write is cheaper than three in a vector
            .writev(false)
            .max_buf_size(config.limits.head_bytes.max(8192));
        let io = Guard::new(io, seen, config.limits.head_bytes);
        let connection = builder.serve_connection(io, service);
        drive(connection, stopping, |connection| {
            connection.graceful_shutdown()
        })
        .await
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "client connection ended");
    }
}

/// Runs a connection; when the server stops, lets it finish what it has begun.
async fn drive<C: Future>(
    connection: C,
    mut stopping: watch::Receiver<bool>,
    graceful: impl FnOnce(Pin<&mut C>),
) -> C::Output {
    let mut connection = pin!(connection);
    let mut news = stopping.clone();
    news.mark_unchanged();
    let mut stop = pin!(stopping.wait_for(|stopping| *stopping));
    let mut listening = false;
    let ended = poll_fn(|cx| {
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(Some(ended));
        }
        // once it listens, the stop wakes this task; until then a look at the version is all it takes
        if listening && !news.has_changed().unwrap_or(true) {
            return Poll::Pending;
        }
        listening = true;
        stop.as_mut().poll(cx).map(|_| None)
    });
    if let Some(ended) = ended.await {
        return ended;
    }
    graceful(connection.as_mut());
    connection.await
}

/// Looks at the first bytes without taking them; `None` if the client left before it said anything.
async fn speaks_http2(stream: &TcpStream) -> Option<bool> {
    let mut first = [0_u8; HTTP2_PREFACE.len()];
    let mut pause = Duration::from_millis(1);
    loop {
        let n = stream.peek(&mut first).await.ok().filter(|n| *n > 0)?;
        if first[..n] != HTTP2_PREFACE[..n] {
            return Some(false);
        }
        if n >= HTTP2_PREFACE.len() {
            return Some(true);
        }
        // a peek does not wait for more than it has shown already
        tokio::time::sleep(pause).await;
        // who stops after a first `P` must not cost a look each millisecond
        pause = (pause * 2).min(PEEK_PAUSE_MAX);
    }
}

/// Counts a live connection on its core and over all; uncounts it when it goes.
pub struct Counted(Arc<Core>);

impl Counted {
    /// Counts one more.
    pub fn new(core: Arc<Core>) -> Self {
        core.live.fetch_add(1, Relaxed);
        core.shared.connections.fetch_add(1, Relaxed);
        Self(core)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Relaxed);
        self.0.shared.connections.fetch_sub(1, Relaxed);
    }
}
