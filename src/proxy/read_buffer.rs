//! Bytes read from an instance while its response head is not whole, and what came with the head.

use std::io;
use std::task::{Context, Poll};

use super::arrival::StampedWire;
use super::scratch;

/// The buffer of one connection; it holds memory only while there is something in it.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    bytes: Vec<u8>,
    /// bytes before it were taken
    start: usize,
}

impl ReadBuffer {
    /// What was read and not taken.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Drops bytes off the front.
    pub fn skip(&mut self, length: usize) {
        self.start += length;
        if self.start >= self.bytes.len() {
            *self = ReadBuffer::default();
        }
    }

    /// Reads once; 0 is the end of the connection.
    pub fn poll_fill(
        &mut self,
        wire: &mut StampedWire,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        scratch::poll_read(wire, cx, scratch::READ_BYTES, |read| {
            self.bytes.extend_from_slice(read);
            read.len()
        })
    }
}
