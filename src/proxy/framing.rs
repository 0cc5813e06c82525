//! Where a body ends: taking the transfer coding off, read by read. Pure.

use bytes::BytesMut;

/// Bytes of chunk extensions and trailers that are read over in one body.
const OVERHEAD_BYTES_MAX: u32 = 64 * 1024;

/// What comes next in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunk {
    /// the first digit of a size
    SizeStart,
    /// further digits
    Size(u64),
    /// the rest of a size's line
    Extension(u64),
    /// LF after the CR of a size's line
    SizeLf(u64),
    /// data still to come
    Data(u64),
    /// CR, then LF, after data
    DataCr,
    /// LF after data
    DataLf,
    /// the start of a trailer's line, or the last line's CR
    TrailerStart,
    /// inside a trailer's line
    Trailer,
    /// the last LF
    LastLf,
    /// nothing
    Done,
    /// what came was no chunked coding
    Broken,
}

/// How the body's end is known, and how far we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// bytes left
    Length(u64),
    /// chunked, with the bytes of overhead read over so far
    Chunked(Chunk, u32),
    /// until the connection closes
    ToEof,
}

impl Framing {
    /// A chunked body, at its start.
    pub fn chunked() -> Self {
        Framing::Chunked(Chunk::SizeStart, 0)
    }

    /// The whole body was taken.
    pub fn is_done(&self) -> bool {
        matches!(self, Framing::Length(0) | Framing::Chunked(Chunk::Done, _))
    }

    /// Whether the connection's end is a proper end of the body.
    pub fn ends_at_eof(&self) -> bool {
        *self == Framing::ToEof || self.is_done()
    }

    /// Bytes of body that are left, where that is known.
    pub fn left(&self) -> Option<u64> {
        match self {
            Framing::Length(left) => Some(*left),
            _ => None,
        }
    }

    /// The chunked coding was broken: what came before was body, nothing more will be.
    pub fn is_broken(&self) -> bool {
        matches!(self, Framing::Chunked(Chunk::Broken, _))
    }

    /// Appends the body's bytes of a read to `body`; gives the bytes used of it. Those past them belong to no body.
    pub fn decode(&mut self, read: &[u8], body: &mut BytesMut) -> usize {
        self.take(read, |data| body.extend_from_slice(data))
    }

    /// Goes over a read without keeping the body's bytes; gives the bytes used of it.
    pub fn skip(&mut self, read: &[u8]) -> usize {
        self.take(read, |_| ())
    }

    fn take(&mut self, read: &[u8], mut data: impl FnMut(&[u8])) -> usize {
        let used = match self {
            Framing::Length(left) => {
                let used = usize::try_from(*left).map_or(read.len(), |left| left.min(read.len()));
                *left -= used as u64;
                used
            }
            Framing::ToEof => read.len(),
            Framing::Chunked(chunk, overhead) => {
                return take_chunks(chunk, overhead, read, data);
            }
        };
        data(&read[..used]);
        used
    }
}

fn take_chunks(
    chunk: &mut Chunk,
    overhead: &mut u32,
    read: &[u8],
    mut data: impl FnMut(&[u8]),
) -> usize {
    let mut used = 0;
    while used < read.len() && !matches!(chunk, Chunk::Done | Chunk::Broken) {
        let rest = &read[used..];
        if let Chunk::Data(left) = chunk {
            let length = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
            *left -= length as u64;
            if *left == 0 {
                *chunk = Chunk::DataCr;
            }
            data(&rest[..length]);
            used += length;
        } else if let Some((after, length)) = usual(*chunk, rest) {
            *chunk = after;
            used += length;
        } else {
            *chunk = next(*chunk, rest[0], overhead);
            used += 1;
        }
    }
    used
}

/// The framing between two pieces of data as engines write it, all at once: `\r\n`, up to 7 hex digits, `\r\n`.
fn usual(chunk: Chunk, rest: &[u8]) -> Option<(Chunk, usize)> {
    let start = match chunk {
        Chunk::SizeStart => 0,
        Chunk::DataCr if rest.starts_with(b"\r\n") => 2,
        _ => return None,
    };
    let mut size = 0;
    for (at, &byte) in rest[start..].iter().take(8).enumerate() {
        let Some(digit) = char::from(byte).to_digit(16) else {
            let line = at > 0 && size > 0 && rest[start + at..].starts_with(b"\r\n");
            return line.then_some((Chunk::Data(size), start + at + 2));
        };
        size = size * 16 + u64::from(digit);
    }
    None
}

fn next(chunk: Chunk, byte: u8, overhead: &mut u32) -> Chunk {
    let mut over = |next| {
        *overhead += 1;
        if *overhead > OVERHEAD_BYTES_MAX {
            Chunk::Broken
        } else {
            next
        }
    };
    let digit = char::from(byte).to_digit(16).map(u64::from);
    match (chunk, byte) {
        (Chunk::SizeStart, _) => digit.map_or(Chunk::Broken, Chunk::Size),
        (Chunk::Size(size), b'\r') => Chunk::SizeLf(size),
        (Chunk::Size(size), b';' | b' ' | b'\t') => over(Chunk::Extension(size)),
        (Chunk::Size(size), _) => {
            let size = size
                .checked_mul(16)
                .zip(digit)
                .and_then(|(size, digit)| size.checked_add(digit));
            size.map_or(Chunk::Broken, Chunk::Size)
        }
        (Chunk::Extension(size), b'\r') => Chunk::SizeLf(size),
        (Chunk::Extension(_), b'\n') => Chunk::Broken,
        (Chunk::Extension(size), _) => over(Chunk::Extension(size)),
        (Chunk::SizeLf(0), b'\n') => Chunk::TrailerStart,
        (Chunk::SizeLf(size), b'\n') => Chunk::Data(size),
        (Chunk::DataCr, b'\r') => Chunk::DataLf,
        (Chunk::DataLf, b'\n') => Chunk::SizeStart,
        (Chunk::TrailerStart, b'\r') => Chunk::LastLf,
        (Chunk::TrailerStart | Chunk::Trailer, b'\n') => over(Chunk::TrailerStart),
        (Chunk::TrailerStart | Chunk::Trailer, _) => over(Chunk::Trailer),
        (Chunk::LastLf, b'\n') => Chunk::Done,
        _ => Chunk::Broken,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds `wire` in pieces of `step` bytes; gives the body and whether it was done.
    fn decoded(mut framing: Framing, wire: &[u8], step: usize) -> Result<(Vec<u8>, bool), Vec<u8>> {
        let mut body = BytesMut::new();
        for read in wire.chunks(step) {
            let used = framing.decode(read, &mut body);
            if framing.is_broken() {
                return Err(body.to_vec());
            }
            assert!(used == read.len() || framing.is_done());
        }
        Ok((body.to_vec(), framing.is_done()))
    }

    #[test]
    fn what_comes_past_the_end_is_not_used() {
        let mut framing = Framing::chunked();
        let mut body = BytesMut::new();
        let used = framing.decode(b"5\r\nhello\r\n0\r\n\r\nHTTP", &mut body);
        assert_eq!((&body[..], used), (&b"hello"[..], 15));
        assert!(framing.is_done());
        let mut framing = Framing::Length(3);
        assert_eq!(framing.decode(b"abcd", &mut body), 3);
    }

    #[test]
    fn data_before_broken_coding_is_body() {
        assert_eq!(
            decoded(Framing::chunked(), b"5\r\nhello\r\nx", 99),
            Err(b"hello".to_vec())
        );
    }

    #[test]
    fn extensions_and_trailers_are_read_over() {
        let wire = b"5;a=\"b\"\r\nhello\r\n1 \r\n!\r\n0\r\nx: y\r\nz: 1\r\n\r\n";
        for step in 1..wire.len() {
            assert_eq!(
                decoded(Framing::chunked(), wire, step),
                Ok((b"hello!".to_vec(), true))
            );
        }
    }

    #[test]
    fn broken_chunks_are_refused() {
        let endless = [b"1;".to_vec(), vec![b'x'; 70_000]].concat();
        for wire in [
            &b"x\r\n"[..],
            b"\r\n",
            b"5\nhello",
            b"1\r\nabc",
            b"-1\r\n",
            b"11111111111111111\r\n",
            b"1;\n",
            &endless,
        ] {
            assert!(decoded(Framing::chunked(), wire, 7).is_err());
        }
    }

    #[test]
    fn a_body_that_stops_is_not_done() {
        assert_eq!(
            decoded(Framing::Length(6), b"hello", 2),
            Ok((b"hello".to_vec(), false))
        );
        assert_eq!(
            decoded(Framing::chunked(), b"6\r\nhello", 2),
            Ok((b"hello".to_vec(), false))
        );
        assert_eq!(
            decoded(Framing::chunked(), b"5\r\nhello\r\n", 2),
            Ok((b"hello".to_vec(), false))
        );
    }

    proptest! {
        #[test]
        fn any_chunking_read_in_any_pieces_gives_the_body(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..10), step in 1_usize..60) {
            let mut wire = Vec::new();
            for chunk in &chunks {
                wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                wire.extend_from_slice(chunk);
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(b"0\r\n\r\n");
            prop_assert_eq!(decoded(Framing::chunked(), &wire, step), Ok((chunks.concat(), true)));
        }

        #[test]
        fn garbage_never_panics(wire in prop::collection::vec(any::<u8>(), 0..200), step in 1_usize..20) {
            let _ = decoded(Framing::chunked(), &wire, step);
        }
    }
}
