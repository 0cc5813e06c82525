//! Connections to instances: an own pool per core and instance, newest first, and one attempt over them.
//!
//! `hyper::client::conn` beneath: hyper-util's pooled client races extra connects and keeps idle
//! connections for 90 s, where engines close theirs after 5 s.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;

use super::body::UpstreamBody;
use super::upstream_io::{UpstreamIo, UpstreamSide};
use crate::config::checked::Upstream;
use crate::measure::clock::{Ns, now_ns};

/// A connection to an instance.
pub struct Connection {
    sender: http1::SendRequest<UpstreamBody>,
    /// its stamps
    pub side: Arc<UpstreamSide>,
    idle_since_ns: Ns,
    /// whether a request went over it before
    pub reused: bool,
}

/// Why an attempt got no response head.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    /// no connection: nothing was sent
    #[error("{0}")]
    Connect(std::io::Error),
    /// no connection within the limit
    #[error("no connection within {0:?} (timeouts.connect_s)")]
    ConnectTimeout(Duration),
    /// the request was never written: sending it again is always safe
    #[error("the connection was closed before the request was written")]
    NeverWritten,
    /// written, at least in part, then no answer came
    #[error("{0}")]
    NoAnswer(hyper::Error),
}

/// Idle connections of one core to one instance.
#[derive(Default)]
pub struct ConnectionPool {
    idle: Mutex<Vec<Connection>>,
}

impl ConnectionPool {
    /// The newest idle connection that is still open and younger than `idle_limit`.
    pub fn take(&self, idle_limit: Duration) -> Option<Connection> {
        let oldest_ns = now_ns().saturating_sub(as_ns(idle_limit));
        loop {
            let connection = self.idle.lock().pop()?;
            if connection.idle_since_ns >= oldest_ns && !connection.sender.is_closed() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose exchange ended clean.
    pub fn give(&self, mut connection: Connection) {
        if connection.sender.is_closed() {
            return;
        }
        connection.idle_since_ns = now_ns();
        connection.reused = true;
        self.idle.lock().push(connection);
    }

    /// Closes what has been idle too long.
    pub fn sweep(&self, idle_limit: Duration) {
        let oldest_ns = now_ns().saturating_sub(as_ns(idle_limit));
        let mut idle = self.idle.lock();
        let stale: Vec<_> = idle
            .extract_if(.., |c| c.idle_since_ns < oldest_ns || c.sender.is_closed())
            .collect();
        drop(idle);
        drop(stale);
    }
}

fn as_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Opens a connection; its task runs on the calling core.
pub async fn connect(
    url: &Upstream,
    limit: Duration,
    head_bytes: usize,
) -> Result<Connection, AttemptError> {
    let opening = TcpStream::connect((url.host.as_str(), url.port));
    let stream = tokio::time::timeout(limit, opening)
        .await
        .map_err(|_| AttemptError::ConnectTimeout(limit))?
        .map_err(AttemptError::Connect)?;
    stream.set_nodelay(true).map_err(AttemptError::Connect)?;
    let side = Arc::new(UpstreamSide::default());
    let io = UpstreamIo::new(TokioIo::new(stream), side.clone());
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(head_bytes.max(8192))
        .handshake(io)
        .await
        .map_err(AttemptError::NoAnswer)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "upstream connection ended");
        }
    });
    Ok(Connection {
        sender,
        side,
        idle_since_ns: now_ns(),
        reused: false,
    })
}

impl Connection {
    /// Sends a request and waits for the response's head.
    pub async fn send(
        &mut self,
        request: Request<UpstreamBody>,
    ) -> Result<Response<Incoming>, AttemptError> {
        if self.sender.ready().await.is_err() {
            return Err(AttemptError::NeverWritten);
        }
        match self.sender.try_send_request(request).await {
            Ok(response) => Ok(response),
            Err(mut error) => match error.take_message() {
                Some(_request) => Err(AttemptError::NeverWritten),
                None => Err(AttemptError::NoAnswer(error.into_error())),
            },
        }
    }
}
