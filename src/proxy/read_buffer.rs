//! Bytes read from an instance and not yet handed on, in blocks that are used again once all slices of them are gone.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};

/// A block: about sixteen events of one token.
const BLOCK_BYTES: usize = 4 * 1024;
/// Blocks grow up to this while reads fill them.
const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// Less room than this is not worth a read.
const ROOM_BYTES_MIN: usize = 512;

/// The buffer of one connection.
#[derive(Debug)]
pub struct ReadBuffer {
    /// `filled` bytes that were read, then room that is ready to be read into
    bytes: BytesMut,
    filled: usize,
    block_bytes: usize,
}

impl Default for ReadBuffer {
    fn default() -> Self {
        Self {
            bytes: BytesMut::new(),
            filled: 0,
            block_bytes: BLOCK_BYTES,
        }
    }
}

impl ReadBuffer {
    /// What was read and not taken.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// Takes up to `most` bytes off the front; `None` if there are none.
    pub fn take(&mut self, most: usize) -> Option<Bytes> {
        let length = most.min(self.filled);
        if length == 0 {
            return None;
        }
        self.filled -= length;
        Some(self.bytes.split_to(length).freeze())
    }

    /// Drops bytes off the front.
    pub fn skip(&mut self, length: usize) {
        self.bytes.advance(length);
        self.filled -= length;
    }

    /// Reads once; 0 is the end of the connection.
    pub fn poll_fill<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.make_room();
        let mut room = ReadBuf::new(&mut self.bytes[self.filled..]);
        ready!(Pin::new(stream).poll_read(cx, &mut room))?;
        let (length, full) = (room.filled().len(), room.remaining() == 0);
        self.filled += length;
        if full {
            self.block_bytes = (self.block_bytes * 2).min(BLOCK_BYTES_MAX);
        }
        Poll::Ready(Ok(length))
    }

    fn make_room(&mut self) {
        if self.bytes.len() - self.filled >= ROOM_BYTES_MIN {
            return;
        }
        // takes the old block again if nobody holds a slice of it
        self.bytes.truncate(self.filled);
        self.bytes.reserve(self.block_bytes);
        self.bytes.resize(self.filled + self.block_bytes, 0);
    }

    #[cfg(test)]
    pub(super) fn fill_from(&mut self, bytes: &[u8]) {
        self.bytes.truncate(self.filled);
        self.bytes.extend_from_slice(bytes);
        self.filled += bytes.len();
    }
}
