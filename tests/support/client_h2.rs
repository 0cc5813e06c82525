//! An HTTP/2 client with prior knowledge, for what only HTTP/2 can show: resets and siblings.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::{PATIENCE, within};

/// A connection with many streams.
#[derive(Clone)]
pub struct ClientH2 {
    send: SendRequest<Full<Bytes>>,
    ended: watch::Receiver<bool>,
}

impl ClientH2 {
    /// Connects; every stream has `window` bytes of its own, the connection plenty.
    pub async fn connect(addr: SocketAddr, window: u32) -> ClientH2 {
        let socket = TcpStream::connect(addr).await.unwrap();
        socket.set_nodelay(true).unwrap();
        ClientH2::over(socket, window).await
    }

    /// The same over a stream that is there already.
    pub async fn over<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        socket: S,
        window: u32,
    ) -> ClientH2 {
        let (send, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(window)
            .initial_connection_window_size(1 << 24)
            .handshake(TokioIo::new(socket))
            .await
            .unwrap();
        let (end, ended) = watch::channel(false);
        tokio::spawn(async move {
            let _ = connection.await;
            end.send_replace(true);
        });
        ClientH2 { send, ended }
    }

    /// Returns once the other side has closed the connection.
    pub async fn closed(&self) {
        let mut ended = self.ended.clone();
        let closed = async move {
            // an error tells the same: the task that would say so is gone
            let _ = ended.wait_for(|ended| *ended).await;
        };
        within("the connection's end", PATIENCE, closed).await;
    }

    /// Sends a JSON body to `path`; returns when the head is there.
    pub async fn post(&self, path: &str, id: &str, body: &str) -> http::Response<Incoming> {
        self.send(
            http::Request::post(format!("http://test{path}")).header("x-request-id", id),
            body,
        )
        .await
    }

    /// The same, with an API key.
    pub async fn post_as(&self, key: &str, path: &str, body: &str) -> http::Response<Incoming> {
        let request = http::Request::post(format!("http://test{path}"));
        self.send(
            request.header("authorization", format!("Bearer {key}")),
            body,
        )
        .await
    }

    async fn send(&self, head: http::request::Builder, body: &str) -> http::Response<Incoming> {
        let request = head
            .header("content-type", "application/json")
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
            .unwrap();
        let mut send = self.send.clone();
        within("a head on HTTP/2", PATIENCE, async move {
            send.ready().await.unwrap();
            send.send_request(request).await.unwrap()
        })
        .await
    }
}

/// The next bytes of a body; `None` at its clean end.
pub async fn next_piece(body: &mut Incoming) -> Option<Result<Bytes, hyper::Error>> {
    loop {
        let frame = within("a frame on HTTP/2", PATIENCE, body.frame()).await?;
        match frame.map(|frame| frame.into_data()) {
            Ok(Ok(data)) => return Some(Ok(data)),
            Ok(Err(_trailers)) => {}
            Err(error) => return Some(Err(error)),
        }
    }
}

/// A body to its end, or to its error.
pub async fn whole(body: &mut Incoming) -> (Vec<u8>, Option<hyper::Error>) {
    let mut out = Vec::new();
    while let Some(piece) = next_piece(body).await {
        match piece {
            Ok(data) => out.extend_from_slice(&data),
            Err(error) => return (out, Some(error)),
        }
    }
    (out, None)
}
