//! A client's TLS: on top of the stamping socket, so that stamps stay at the socket's edge.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio_rustls::server::TlsStream;

use super::client_io::{ClientIo, ClientSide};
use crate::tls::inbound::Inbound;

/// A client's TLS stream, as hyper uses it.
///
/// rustls writes all that it was handed before it flushes the socket, as hyper does, so a flush that ends still tells
/// that every frame handed over was taken.
pub struct ClientTls {
    stream: TokioIo<TlsStream<ClientIo>>,
    side: Arc<ClientSide>,
}

impl ClientTls {
    /// Shakes hands; tells whether the client speaks HTTP/2. What `socket` sees goes to `side`.
    pub async fn accept(
        tls: &Inbound,
        socket: ClientIo,
        side: Arc<ClientSide>,
    ) -> io::Result<(ClientTls, bool)> {
        let (stream, is_http2) = tls.accept(socket).await?;
        side.no_request_yet();
        let stream = TokioIo::new(stream);
        Ok((ClientTls { stream, side }, is_http2))
    }
}

impl Read for ClientTls {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        if result.is_ok() {
            // the request's first bytes may have come with the handshake's last
            self.side.request_has_begun();
        }
        Poll::Ready(result)
    }
}

impl Write for ClientTls {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
