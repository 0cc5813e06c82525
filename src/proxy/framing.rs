//! Where a response's body ends: taking the transfer coding off, read by read. Pure.

use super::read_buffer::ReadBuffer;
use bytes::Bytes;

/// Bytes of chunk extensions and trailers that are read over in one body.
const OVERHEAD_BYTES_MAX: u32 = 64 * 1024;

/// A chunked body broke its own syntax.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the response's chunked coding is broken")]
pub struct BadChunk;

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

    /// Takes the next piece of body out of what was read; `None` if more must be read, or it is done.
    pub fn take(&mut self, buffer: &mut ReadBuffer) -> Result<Option<Bytes>, BadChunk> {
        match self {
            Framing::Length(left) => {
                let piece = buffer.take(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= piece.as_ref().map_or(0, Bytes::len) as u64;
                Ok(piece)
            }
            Framing::ToEof => Ok(buffer.take(usize::MAX)),
            Framing::Chunked(chunk, overhead) => take_chunk(chunk, overhead, buffer),
        }
    }
}

fn take_chunk(
    chunk: &mut Chunk,
    overhead: &mut u32,
    buffer: &mut ReadBuffer,
) -> Result<Option<Bytes>, BadChunk> {
    loop {
        if let Chunk::Data(left) = chunk {
            let Some(piece) = buffer.take(usize::try_from(*left).unwrap_or(usize::MAX)) else {
                return Ok(None);
            };
            *left -= piece.len() as u64;
            if *left == 0 {
                *chunk = Chunk::DataCr;
                // the rest of this chunk's framing, if it is here, so that the end of a body is seen with its data
                read_over(chunk, overhead, buffer)?;
            }
            return Ok(Some(piece));
        }
        if !read_over(chunk, overhead, buffer)? {
            return Ok(None);
        }
    }
}

/// Reads over framing up to the next data; false if there is none yet, or ever.
fn read_over(
    chunk: &mut Chunk,
    overhead: &mut u32,
    buffer: &mut ReadBuffer,
) -> Result<bool, BadChunk> {
    let bytes = buffer.filled();
    let mut at = 0;
    while at < bytes.len() && !matches!(chunk, Chunk::Data(_) | Chunk::Done) {
        *chunk = next(*chunk, bytes[at], overhead)?;
        at += 1;
    }
    buffer.skip(at);
    Ok(matches!(chunk, Chunk::Data(_)))
}

fn next(chunk: Chunk, byte: u8, overhead: &mut u32) -> Result<Chunk, BadChunk> {
    let mut over = |next| {
        *overhead += 1;
        if *overhead > OVERHEAD_BYTES_MAX {
            Err(BadChunk)
        } else {
            Ok(next)
        }
    };
    let digit = char::from(byte).to_digit(16).map(u64::from);
    match (chunk, byte) {
        (Chunk::SizeStart, _) => digit.map(Chunk::Size).ok_or(BadChunk),
        (Chunk::Size(size), b'\r') => Ok(Chunk::SizeLf(size)),
        (Chunk::Size(size), b';' | b' ' | b'\t') => over(Chunk::Extension(size)),
        (Chunk::Size(size), _) => {
            let size = size
                .checked_mul(16)
                .zip(digit)
                .and_then(|(size, digit)| size.checked_add(digit));
            size.map(Chunk::Size).ok_or(BadChunk)
        }
        (Chunk::Extension(size), b'\r') => Ok(Chunk::SizeLf(size)),
        (Chunk::Extension(_), b'\n') => Err(BadChunk),
        (Chunk::Extension(size), _) => over(Chunk::Extension(size)),
        (Chunk::SizeLf(0), b'\n') => Ok(Chunk::TrailerStart),
        (Chunk::SizeLf(size), b'\n') => Ok(Chunk::Data(size)),
        (Chunk::DataCr, b'\r') => Ok(Chunk::DataLf),
        (Chunk::DataLf, b'\n') => Ok(Chunk::SizeStart),
        (Chunk::TrailerStart, b'\r') => Ok(Chunk::LastLf),
        (Chunk::TrailerStart | Chunk::Trailer, b'\n') => over(Chunk::TrailerStart),
        (Chunk::TrailerStart | Chunk::Trailer, _) => over(Chunk::Trailer),
        (Chunk::LastLf, b'\n') => Ok(Chunk::Done),
        _ => Err(BadChunk),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds `wire` in pieces of `step` bytes; gives the body and whether it was done.
    fn decoded(
        mut framing: Framing,
        wire: &[u8],
        step: usize,
    ) -> Result<(Vec<u8>, bool), BadChunk> {
        let mut buffer = ReadBuffer::default();
        let mut body = Vec::new();
        for piece in wire.chunks(step) {
            buffer.fill_from(piece);
            while let Some(data) = framing.take(&mut buffer)? {
                body.extend_from_slice(&data);
            }
        }
        Ok((body, framing.is_done()))
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
            assert_eq!(decoded(Framing::chunked(), wire, 7), Err(BadChunk));
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
