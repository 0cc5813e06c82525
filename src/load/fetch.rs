//! One small `GET` of text: which models a server has, what an exporter says.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::http1::{Body, parse_head};

/// More of an answer is not read.
pub const MOST_BYTES: u64 = 16 << 20;

/// What to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// value of the `host` header
    pub authority: String,
    /// path and query
    pub path: String,
    /// more headers, each ended by its line end
    pub headers: String,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// status
    pub status: u16,
    /// body, whatever the status
    pub body: Vec<u8>,
}

impl Ask {
    /// The request as it goes on the wire, after which the server is to close.
    pub fn bytes(&self) -> Vec<u8> {
        let Ask {
            authority,
            path,
            headers,
        } = self;
        format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\n{headers}connection: close\r\n\r\n")
            .into_bytes()
    }

    /// Asks `addr`; each step may take `limit`.
    pub fn get(&self, addr: SocketAddr, limit: Duration) -> Result<Fetched> {
        let mut stream = TcpStream::connect_timeout(&addr, limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        stream.write_all(&self.bytes())?;
        let mut bytes = Vec::new();
        stream.take(MOST_BYTES).read_to_end(&mut bytes)?;
        Fetched::read(&bytes)
    }
}

impl Fetched {
    /// Takes an answer apart that was read to its end.
    pub fn read(bytes: &[u8]) -> Result<Fetched> {
        let head = parse_head(bytes).map_err(Error::other)?;
        let head = head.ok_or(ErrorKind::UnexpectedEof)?;
        let mut body = Vec::new();
        let mut reader = Body::new(head.framing);
        reader
            .read(&bytes[head.head_bytes..], |part| {
                body.extend_from_slice(part)
            })
            .map_err(Error::other)?;
        if !reader.may_end_by_close() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(Fetched {
            status: head.status,
            body,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_by_its_framing_and_half_of_one_is_none() {
        let read = |text: &str| Fetched::read(text.as_bytes());
        let whole = read("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        assert_eq!((whole.status, whole.body.as_slice()), (200, &b"ok"[..]));
        let closed = read("HTTP/1.1 503 No\r\nconnection: close\r\n\r\nwait").unwrap();
        assert_eq!((closed.status, closed.body.len()), (503, 4));
        for half in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok",
            "220 smtp.example\r\n\r\n",
        ] {
            assert!(read(half).is_err(), "{half}");
        }
    }
}
