//! HTTP/1.1 as bytes: heads, framing, chunks. Independent of the code under test on purpose.

use bytes::{Buf, Bytes, BytesMut};

/// A request's or response's head, as it was on the wire.
#[derive(Debug, Clone)]
pub struct Head {
    /// every byte up to and with the empty line
    pub raw: Bytes,
    /// request line or status line
    pub first_line: String,
    /// header lines in order, names in lower case
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// Takes a head off the front of `buffer`, if a whole one is there.
    pub fn take(buffer: &mut BytesMut) -> Option<Head> {
        let end = find(buffer, b"\r\n\r\n")? + 4;
        let raw = buffer.split_to(end).freeze();
        let text = String::from_utf8_lossy(&raw[..end - 4]).into_owned();
        let mut lines = text.split("\r\n");
        let first_line = lines.next().unwrap_or_default().to_owned();
        let headers = lines
            .map(|line| {
                let (name, value) = line.split_once(':').unwrap_or((line, ""));
                (name.to_ascii_lowercase(), value.trim().to_owned())
            })
            .collect();
        Some(Head {
            raw,
            first_line,
            headers,
        })
    }

    /// The first header of that (lower-case) name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// All headers of that (lower-case) name.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers
            .iter()
            .filter(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// Method of a request.
    pub fn method(&self) -> &str {
        self.first_line.split(' ').next().unwrap_or_default()
    }

    /// Target of a request.
    pub fn path(&self) -> &str {
        self.first_line.split(' ').nth(1).unwrap_or_default()
    }

    /// Status of a response.
    pub fn status(&self) -> u16 {
        let code = self.first_line.split(' ').nth(1);
        code.and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    fn is_chunked(&self) -> bool {
        self.header("transfer-encoding")
            .is_some_and(|value| value.to_ascii_lowercase().contains("chunked"))
    }

    fn length(&self) -> Option<u64> {
        self.header("content-length").and_then(|v| v.parse().ok())
    }

    /// How this request's body is framed.
    pub fn request_framing(&self) -> Framing {
        match (self.is_chunked(), self.length()) {
            (true, _) => Framing::Chunked,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::Length(0),
        }
    }

    /// How this response's body is framed; `head_only` if the request was HEAD.
    pub fn response_framing(&self, head_only: bool) -> Framing {
        let status = self.status();
        if head_only || status < 200 || status == 204 || status == 304 {
            return Framing::Length(0);
        }
        match (self.is_chunked(), self.length()) {
            (true, _) => Framing::Chunked,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::UntilClose,
        }
    }
}

/// How the end of a body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// by a count of bytes
    Length(u64),
    /// by chunks and an empty last one
    Chunked,
    /// by the end of the connection
    UntilClose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Size,
    Data(u64),
    DataEnd,
    Trailers,
    Done,
}

/// Takes a body's bytes out of its framing, as far as they have come.
#[derive(Debug)]
pub struct BodyReader {
    framing: Framing,
    place: Place,
}

impl BodyReader {
    /// A reader at the body's first byte.
    pub fn new(framing: Framing) -> BodyReader {
        let place = match framing {
            Framing::Length(0) => Place::Done,
            Framing::Length(length) => Place::Data(length),
            Framing::Chunked => Place::Size,
            Framing::UntilClose => Place::Data(u64::MAX),
        };
        BodyReader { framing, place }
    }

    /// The framing said that the body has ended.
    pub fn is_done(&self) -> bool {
        self.place == Place::Done
    }

    /// An end of the connection here is the body's proper end.
    pub fn ends_with_connection(&self) -> bool {
        self.is_done() || self.framing == Framing::UntilClose
    }

    /// Takes what can be taken of `buffer` now: body bytes, appended to `out`.
    pub fn feed(&mut self, buffer: &mut BytesMut, out: &mut Vec<u8>) {
        while self.step(buffer, out) {}
    }

    fn step(&mut self, buffer: &mut BytesMut, out: &mut Vec<u8>) -> bool {
        match self.place {
            Place::Done => false,
            Place::Data(left) => self.take_data(left, buffer, out),
            Place::Size => self.take_size(buffer),
            Place::DataEnd => {
                let there = buffer.len() >= 2;
                if there {
                    assert_eq!(&buffer[..2], b"\r\n", "a chunk does not end in CRLF");
                    buffer.advance(2);
                    self.place = Place::Size;
                }
                there
            }
            Place::Trailers => match find(buffer, b"\r\n") {
                None => false,
                Some(at) => {
                    buffer.advance(at + 2);
                    if at == 0 {
                        self.place = Place::Done;
                    }
                    true
                }
            },
        }
    }

    fn take_data(&mut self, left: u64, buffer: &mut BytesMut, out: &mut Vec<u8>) -> bool {
        let taken = left.min(buffer.len() as u64);
        if taken == 0 {
            return false;
        }
        out.extend_from_slice(&buffer[..taken as usize]);
        buffer.advance(taken as usize);
        let left = match self.framing {
            Framing::UntilClose => left,
            _ => left - taken,
        };
        self.place = match (left, self.framing) {
            (0, Framing::Chunked) => Place::DataEnd,
            (0, _) => Place::Done,
            (left, _) => Place::Data(left),
        };
        true
    }

    fn take_size(&mut self, buffer: &mut BytesMut) -> bool {
        let Some(at) = find(buffer, b"\r\n") else {
            return false;
        };
        let line = String::from_utf8_lossy(&buffer[..at]).into_owned();
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size =
            u64::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("no chunk size: {line:?}"));
        buffer.advance(at + 2);
        self.place = if size == 0 {
            Place::Trailers
        } else {
            Place::Data(size)
        };
        true
    }
}

/// One chunk around `data`.
pub fn chunk(data: &[u8]) -> Bytes {
    let mut out = format!("{:x}\r\n", data.len()).into_bytes();
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
    out.into()
}

/// The chunk that ends a body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Where `needle` begins in `hay`.
pub fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(hay, needle)
}
