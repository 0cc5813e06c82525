//! One small `GET` of text: which models a server has, what an exporter says.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::http1::{Body, parse_head};

/// More of an answer is not read.
const MOST_BYTES: usize = 16 << 20;
/// Read at a time.
pub const BLOCK_BYTES: usize = 64 << 10;

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
        let mut block = [0; BLOCK_BYTES];
        loop {
            let count = stream.read(&mut block)?;
            bytes.extend_from_slice(&block[..count]);
            if let Some(answer) = Fetched::read(&bytes, count == 0)? {
                return Ok(answer);
            }
        }
    }
}

impl Fetched {
    /// Takes an answer apart, of which `bytes` have come so far; `None` if more is to come. Servers that do not close
    /// are not waited for.
    pub fn read(bytes: &[u8], ended: bool) -> Result<Option<Fetched>> {
        if bytes.len() > MOST_BYTES {
            return Err(Error::other("the answer is too long"));
        }
        let Some(head) = parse_head(bytes).map_err(Error::other)? else {
            return unfinished(ended);
        };
        let mut body = Vec::new();
        let mut reader = Body::new(head.framing);
        reader
            .read(&bytes[head.head_bytes..], |part| {
                body.extend_from_slice(part)
            })
            .map_err(Error::other)?;
        let is_whole = reader.is_done() || (ended && reader.may_end_by_close());
        if !is_whole {
            return unfinished(ended);
        }
        Ok(Some(Fetched {
            status: head.status,
            body,
        }))
    }
}

fn unfinished(ended: bool) -> Result<Option<Fetched>> {
    match ended {
        true => Err(ErrorKind::UnexpectedEof.into()),
        false => Ok(None),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_by_its_framing_and_half_of_one_is_none() {
        let read = |text: &str, ended| Fetched::read(text.as_bytes(), ended);
        let sized = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        let whole = read(sized, false).unwrap().unwrap();
        assert_eq!((whole.status, whole.body.as_slice()), (200, &b"ok"[..]));
        let until_close = "HTTP/1.1 503 No\r\nconnection: close\r\n\r\nwait";
        assert_eq!(read(until_close, false).unwrap(), None);
        let closed = read(until_close, true).unwrap().unwrap();
        assert_eq!((closed.status, closed.body.len()), (503, 4));
        for half in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok",
        ] {
            assert_eq!(read(half, false).unwrap(), None);
            assert!(read(half, true).is_err(), "{half}");
        }
        assert!(read("220 smtp.example\r\n\r\n", false).is_err());
    }
}
