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
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tower::ServiceExt;

use super::client_io::{ClientIo, ClientSide};
use super::client_tls::ClientTls;
use super::core::Core;
use super::guard::{self, Guard};
use super::reply::Reply;
use super::serve::{serve, turn_away};
use super::stream_body::StreamBody;
use super::stream_tasks::{self, StreamTasks};
use crate::config::checked::Config;
use crate::tls::inbound::Inbound;

/// What an HTTP/2 client with prior knowledge sends first.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Between two looks at first bytes that may become that.
const PEEK_PAUSE_MAX: Duration = Duration::from_millis(50);
/// Small, so that a slow client's backpressure reaches the instance (hyper's default hides 400 KiB a stream).
const HTTP2_SEND_BUFFER_BYTES: usize = 16 * 1024;
/// A request body that waits, for its instance or for room, must not fill the window that all of a connection share.
const HTTP2_STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
/// Streams that a connection may have open.
const HTTP2_STREAMS_MAX: u32 = 200;
/// Streams reset before we looked at them, or because of a client's own faults, after which a connection ends.
const HTTP2_EARLY_RESETS_MAX: usize = 20;
const HTTP2_FAULTY_STREAMS_MAX: usize = 100;
/// A client that is gone without a word is noticed by its silence to these.
const HTTP2_PING_EVERY: Duration = Duration::from_secs(20);
const HTTP2_PING_LIMIT: Duration = Duration::from_secs(20);
/// How long an idle client may take to say goodbye.
const GOODBYE_TIME_MAX: Duration = Duration::from_secs(1);

/// How a connection stands to the server's end.
#[derive(Clone)]
pub enum Life {
    /// served; once this turns true it ends what it has begun
    Served(watch::Receiver<bool>),
    /// it came when the server had begun to stop: each request is told so
    Late,
}

/// Serves a connection until it ends.
pub async fn serve_connection(core: Arc<Core>, stream: TcpStream, life: Life) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "client connection gone at once");
        return;
    }
    let generation = core.shared.generation();
    let (config, tls) = (generation.config.clone(), generation.tls.clone());
    drop(generation);
    match tls {
        // boxed, so that a connection without TLS does not keep the room
        Some(tls) => Box::pin(serve_tls(core, config, &tls, stream, life)).await,
        None => serve_plain(core, config, stream, life).await,
    }
}

async fn serve_plain(core: Arc<Core>, config: Arc<Config>, stream: TcpStream, life: Life) {
    let limits = &config.timeouts;
    let is_http2 = match tokio::time::timeout(limits.client_header, speaks_http2(&stream)).await {
        Ok(Some(is_http2)) => is_http2 && config.server.http2,
        _ => return,
    };
    let side = Arc::new(ClientSide::default());
    let io = ClientIo::new(stream, side.clone(), limits.client_write);
    speak(core, config, TokioIo::new(io), side, is_http2, life).await;
}

async fn serve_tls(
    core: Arc<Core>,
    config: Arc<Config>,
    tls: &Inbound,
    stream: TcpStream,
    life: Life,
) {
    let limits = &config.timeouts;
    let side = Arc::new(ClientSide::default());
    let io = ClientIo::new(stream, side.clone(), limits.client_write);
    let shaking = ClientTls::accept(tls, io, side.clone());
    match tokio::time::timeout(limits.client_header, shaking).await {
        Ok(Ok((io, is_http2))) => speak(core, config, io, side, is_http2, life).await,
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake with a client failed"),
        Err(_) => tracing::debug!("TLS handshake with a client took too long"),
    }
}

/// Hands the connection to hyper.
pub(super) async fn speak<I: Read + Write + Unpin + Send + 'static>(
    core: Arc<Core>,
    config: Arc<Config>,
    io: I,
    side: Arc<ClientSide>,
    is_http2: bool,
    life: Life,
) {
    let (seen, late) = (side.clone(), matches!(life, Life::Late));
    let refused = core.shared.refused_heads.clone();
    let service = tower::service_fn(move |request: Request<Incoming>| {
        let (core, side) = (core.clone(), side.clone());
        async move {
            if late {
                return Ok(turn_away(&core, side, request));
            }
            let mut serving = pin!(serve(core, side, request));
            let reply = poll_fn(|cx| stream_tasks::noted(serving.as_mut().poll(cx))).await;
            Ok::<Response<Reply>, Infallible>(reply)
        }
    });
    let ended = if is_http2 {
        let streams = StreamTasks::new(config.timeouts.client_write);
        let mut builder = http2::Builder::new(streams.clone());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(HTTP2_PING_EVERY)
            .keep_alive_timeout(HTTP2_PING_LIMIT)
            .max_header_list_size(u32::try_from(config.limits.head_bytes).unwrap_or(u32::MAX))
            .max_send_buf_size(HTTP2_SEND_BUFFER_BYTES)
            .initial_stream_window_size(HTTP2_STREAM_WINDOW_BYTES)
            .initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
            .max_concurrent_streams(HTTP2_STREAMS_MAX)
            .max_pending_accept_reset_streams(HTTP2_EARLY_RESETS_MAX)
            .max_local_error_reset_streams(HTTP2_FAULTY_STREAMS_MAX);
        let service = service.map_response(|reply| reply.map(StreamBody::new));
        let connection = builder.serve_connection(io, TowerToHyperService::new(service));
        let idle = streams.idle_for(config.timeouts.client_idle);
        drive(connection, life, idle, |connection| {
            connection.graceful_shutdown()
        })
        .await
    } else {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            // the guard gives hyper whole heads, and ends the wait for them
            .header_read_timeout(None)
            .half_close(config.client.half_close)
            .keep_alive(!late)
            // events are small: one piece in one write is cheaper than three in a vector
            .writev(false)
            .max_buf_size(config.limits.head_bytes.max(8192));
        let limits = guard::Limits {
            head_bytes: config.limits.head_bytes,
            head: config.timeouts.client_header,
            idle: config.timeouts.client_idle,
        };
        let io = Guard::new(io, seen, limits, refused);
        let connection = builder.serve_connection(io, TowerToHyperService::new(service));
        // the guard sees to idle connections
        let idle = std::future::pending();
        drive(connection, life, idle, |connection| {
            connection.graceful_shutdown()
        })
        .await
    };
    if let Some(Err(error)) = ended {
        tracing::debug!(%error, "client connection ended");
    }
}

/// Runs a connection; when the server stops, lets it finish what it has begun, and when it is idle, closes it.
async fn drive<C: Future>(
    connection: C,
    life: Life,
    idle: impl Future<Output = ()>,
    graceful: impl FnOnce(Pin<&mut C>),
) -> Option<C::Output> {
    let (mut connection, mut idle) = (pin!(connection), pin!(idle));
    let Life::Served(mut stopping) = life else {
        return tokio::select! {
            ended = connection => Some(ended),
            () = idle => None,
        };
    };
    let mut news = stopping.clone();
    news.mark_unchanged();
    let mut stop = pin!(stopping.wait_for(|stopping| *stopping));
    let mut listening = false;
    let ended = poll_fn(|cx| {
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(Next::Ended(ended));
        }
        if idle.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Next::Close);
        }
        // once it listens, the stop wakes this task; until then a look at the version is all it takes
        if listening && !news.has_changed().unwrap_or(true) {
            return Poll::Pending;
        }
        listening = true;
        stop.as_mut().poll(cx).map(|_| Next::Finish)
    });
    match ended.await {
        Next::Ended(ended) => Some(ended),
        Next::Finish => {
            graceful(connection.as_mut());
            Some(connection.await)
        }
        Next::Close => {
            graceful(connection.as_mut());
            tokio::time::timeout(GOODBYE_TIME_MAX, connection)
                .await
                .ok()
        }
    }
}

/// What becomes of a connection.
enum Next<T> {
    /// it has ended
    Ended(T),
    /// it ends when all that it has begun is done
    Finish,
    /// nothing is open on it: it ends now
    Close,
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

/// Counts an open connection on its core and over all; uncounts it when it goes.
pub struct Counted {
    core: Arc<Core>,
    live: bool,
}

impl Counted {
    /// Counts one more. A late one is nothing that the server's end waits for.
    pub fn new(core: Arc<Core>, life: &Life) -> Self {
        let live = matches!(life, Life::Served(_));
        if live {
            core.live.fetch_add(1, Relaxed);
        }
        core.shared.connections.fetch_add(1, Relaxed);
        Self { core, live }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.live {
            self.core.live.fetch_sub(1, Relaxed);
        }
        self.core.shared.connections.fetch_sub(1, Relaxed);
    }
}
