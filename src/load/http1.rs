//! Reading an HTTP/1.1 response from the bytes of a socket: its head, then its body by framing.
//!
//! Pure: bytes in, body slices out. It knows no more than a load client needs (no trailers kept,
//! no coding undone) and never copies a body byte.

/// The head of a response, as far as a load client looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// status
    pub status: u16,
    /// `content-type`, empty if absent
    pub content_type: String,
    /// `content-encoding`, if any
    pub content_encoding: Option<String>,
    /// whether the connection may be used again once the body has ended as framed
    pub keep_alive: bool,
    /// how the body ends
    pub framing: Framing,
    /// bytes of the head
    pub head_bytes: usize,
}

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// `content-length`
    Length(u64),
    /// `transfer-encoding: chunked`
    Chunked,
    /// the connection closes
    UntilClose,
}

/// A response this client cannot read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadResponse {
    /// the head is no HTTP/1.1 head, or longer than 64 headers
    #[error("the response head is not readable")]
    Head,
    /// a chunk size that is no hexadecimal number, or a chunk without its line end
    #[error("the chunked body is not readable")]
    Chunk,
}

const MAX_HEADERS: usize = 64;

/// Reads a head from the front of `bytes`; `None` if it is not complete yet. Interim heads
/// (1xx) are reported like any other: the caller skips `head_bytes` and reads on.
pub fn parse_head(bytes: &[u8]) -> Result<Option<Head>, BadResponse> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let head_bytes = match response.parse(bytes).map_err(|_| BadResponse::Head)? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let status = response.code.ok_or(BadResponse::Head)?;
    let mut head = Head {
        status,
        content_type: String::new(),
        content_encoding: None,
        keep_alive: response.version == Some(1),
        framing: Framing::UntilClose,
        head_bytes,
    };
    for header in response.headers.iter() {
        let value = std::str::from_utf8(header.value).unwrap_or("").trim();
        apply_header(&mut head, header.name, value)?;
    }
    if status < 200 || status == 204 || status == 304 {
        head.framing = Framing::Length(0);
    }
    head.keep_alive &= head.framing != Framing::UntilClose;
    Ok(Some(head))
}

fn apply_header(head: &mut Head, name: &str, value: &str) -> Result<(), BadResponse> {
    if name.eq_ignore_ascii_case("content-type") {
        head.content_type = value.to_owned();
    } else if name.eq_ignore_ascii_case("content-encoding") {
        head.content_encoding = Some(value.to_owned());
    } else if name.eq_ignore_ascii_case("transfer-encoding") {
        head.framing = Framing::Chunked;
    } else if name.eq_ignore_ascii_case("content-length") && head.framing != Framing::Chunked {
        head.framing = Framing::Length(value.parse().map_err(|_| BadResponse::Head)?);
    } else if name.eq_ignore_ascii_case("connection") {
        head.keep_alive = !value.eq_ignore_ascii_case("close");
    }
    Ok(())
}

/// Reads a body by its framing, over any division into reads.
#[derive(Debug, Clone)]
pub struct Body {
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// bytes left of a body of known length
    Length(u64),
    UntilClose,
    /// in a chunk's size line: the number so far and whether it is over (extension or line end)
    Size {
        size: u64,
        digits: u8,
        over: bool,
    },
    /// bytes left of a chunk
    Data(u64),
    /// after a chunk's data: its line end
    DataEnd,
    /// after the last chunk: trailer lines, and whether the present line is empty so far
    Trailer {
        empty: bool,
    },
    Done,
}

const SIZE: State = State::Size {
    size: 0,
    digits: 0,
    over: false,
};

impl Body {
    /// A reader for a body framed as the head says.
    pub fn new(framing: Framing) -> Body {
        let state = match framing {
            Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => SIZE,
            Framing::UntilClose => State::UntilClose,
        };
        Body { state }
    }

    /// Whether the body has ended as its framing says.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the end of the connection at this point is a proper end of the body.
    pub fn may_end_by_close(&self) -> bool {
        matches!(self.state, State::Done | State::UntilClose)
    }

    /// Takes one read from the socket and gives its body bytes to `sink`, in order. Bytes behind
    /// the end of the body are left alone: this client never has two requests on a connection.
    pub fn read<'a>(
        &mut self,
        mut bytes: &'a [u8],
        mut sink: impl FnMut(&'a [u8]),
    ) -> Result<(), BadResponse> {
        while !bytes.is_empty() && self.state != State::Done {
            bytes = match self.state {
                State::UntilClose => {
                    sink(bytes);
                    &[]
                }
                State::Length(left) => {
                    self.take(bytes, left, State::Length, State::Done, &mut sink)
                }
                State::Data(left) => self.take(bytes, left, State::Data, State::DataEnd, &mut sink),
                State::Size { .. } | State::DataEnd | State::Trailer { .. } => {
                    self.state = line_step(self.state, bytes[0])?;
                    &bytes[1..]
                }
                State::Done => &[],
            };
        }
        Ok(())
    }

    fn take<'a>(
        &mut self,
        bytes: &'a [u8],
        left: u64,
        more: fn(u64) -> State,
        end: State,
        sink: &mut impl FnMut(&'a [u8]),
    ) -> &'a [u8] {
        let taken = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let (body, rest) = bytes.split_at(taken);
        sink(body);
        let left = left - taken as u64;
        self.state = if left == 0 { end } else { more(left) };
        rest
    }
}

/// One byte of what lies between the data of chunks.
fn line_step(state: State, byte: u8) -> Result<State, BadResponse> {
    match (state, byte) {
        (State::Size { digits: 0, .. }, b'\n') => Err(BadResponse::Chunk),
        (State::Size { size: 0, .. }, b'\n') => Ok(State::Trailer { empty: true }),
        (State::Size { size, .. }, b'\n') => Ok(State::Data(size)),
        (
            State::Size {
                size,
                digits,
                over: true,
            },
            _,
        ) => Ok(State::Size {
            size,
            digits,
            over: true,
        }),
        (State::Size { size, digits, .. }, b';' | b'\r' | b' ' | b'\t') => Ok(State::Size {
            size,
            digits,
            over: true,
        }),
        (State::Size { digits: 15, .. }, _) => Err(BadResponse::Chunk),
        (State::Size { size, digits, .. }, digit) => {
            let value = (digit as char).to_digit(16).ok_or(BadResponse::Chunk)?;
            Ok(State::Size {
                size: size * 16 + u64::from(value),
                digits: digits + 1,
                over: false,
            })
        }
        (State::DataEnd, b'\r') => Ok(State::DataEnd),
        (State::DataEnd, b'\n') => Ok(SIZE),
        (State::DataEnd, _) => Err(BadResponse::Chunk),
        (State::Trailer { empty: true }, b'\n') => Ok(State::Done),
        (State::Trailer { .. }, b'\n') => Ok(State::Trailer { empty: true }),
        (State::Trailer { empty }, b'\r') => Ok(State::Trailer { empty }),
        (State::Trailer { .. }, _) => Ok(State::Trailer { empty: false }),
        (other, _) => Ok(other),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn body_of(
        framing: Framing,
        wire: &[u8],
        read_bytes: usize,
    ) -> (Result<(), BadResponse>, Vec<u8>, bool) {
        let mut body = Body::new(framing);
        let mut out = Vec::new();
        let result = wire
            .chunks(read_bytes)
            .try_for_each(|read| body.read(read, |bytes| out.extend_from_slice(bytes)));
        (result, out, body.is_done())
    }

    #[test]
    fn a_head_is_read_only_when_it_is_whole() {
        let wire = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n5\r\n";
        assert_eq!(parse_head(&wire[..40]), Ok(None));
        let head = parse_head(wire).unwrap().unwrap();
        assert_eq!(
            (head.status, head.framing, head.keep_alive),
            (200, Framing::Chunked, true)
        );
        assert_eq!(&wire[head.head_bytes..], b"5\r\n");
    }

    #[test]
    fn the_connection_is_kept_only_where_both_framing_and_headers_allow_it() {
        let keep = |wire: &[u8]| parse_head(wire).unwrap().unwrap().keep_alive;
        assert!(keep(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n"));
        assert!(!keep(
            b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nConnection: close\r\n\r\n"
        ));
        assert!(!keep(b"HTTP/1.1 200 OK\r\n\r\n"));
        assert!(!keep(b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\n"));
    }

    #[test]
    fn a_chunked_body_is_the_same_for_every_division_into_reads() {
        let wire =
            b"5\r\nhello\r\n1;name=value\r\n \r\nC\r\nchunked body\r\n0\r\nx-trailer: 1\r\n\r\n";
        for read_bytes in 1..=wire.len() {
            let (result, out, done) = body_of(Framing::Chunked, wire, read_bytes);
            assert_eq!(
                (result, out.as_slice(), done),
                (Ok(()), &b"hello chunked body"[..], true)
            );
        }
    }

    #[test]
    fn a_body_of_known_length_ends_at_its_length_and_not_before() {
        let (_, out, done) = body_of(Framing::Length(4), b"abc", 2);
        assert_eq!((out.as_slice(), done), (&b"abc"[..], false));
        let (_, out, done) = body_of(Framing::Length(4), b"abcdHTTP/1.1", 3);
        assert_eq!((out.as_slice(), done), (&b"abcd"[..], true));
        assert!(body_of(Framing::Length(0), b"", 1).2);
    }

    #[test]
    fn broken_chunks_are_reported() {
        for wire in [
            &b"xyz\r\n"[..],
            b"\r\nabc",
            b"3\r\nabcX",
            b"1234567890abcdef12\r\n",
        ] {
            assert_eq!(
                body_of(Framing::Chunked, wire, 1).0,
                Err(BadResponse::Chunk),
                "{wire:?}"
            );
        }
        assert_eq!(parse_head(b"SMTP hello\r\n\r\n"), Err(BadResponse::Head));
    }

    #[test]
    fn only_a_body_without_framing_may_end_by_close() {
        assert!(Body::new(Framing::UntilClose).may_end_by_close());
        assert!(!Body::new(Framing::Chunked).may_end_by_close());
        assert!(!Body::new(Framing::Length(2)).may_end_by_close());
    }
}
