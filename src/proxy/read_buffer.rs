//! Bytes read from an instance while its response head is not whole, and what came with the head.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Heads of engines take some 200 bytes.
const BLOCK_BYTES: usize = 4 * 1024;
/// Less room than this is not worth a read.
const ROOM_BYTES_MIN: usize = 512;

/// The buffer of one connection; it holds a block only while there is something in it.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    /// bytes from `start` to `end` were read, then comes room
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl ReadBuffer {
    /// What was read and not taken.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Drops bytes off the front.
    pub fn skip(&mut self, length: usize) {
        self.start = (self.start + length).min(self.end);
        if self.start == self.end {
            *self = ReadBuffer::default();
        }
    }

    /// Reads once; 0 is the end of the connection.
    pub fn poll_fill<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.bytes.len() - self.end < ROOM_BYTES_MIN {
            self.bytes.resize(self.end + BLOCK_BYTES, 0);
        }
        let mut room = ReadBuf::new(&mut self.bytes[self.end..]);
        ready!(Pin::new(stream).poll_read(cx, &mut room))?;
        let length = room.filled().len();
        self.end += length;
        Poll::Ready(Ok(length))
    }
}
