//! One block a thread that all its connections read into: between two reads none holds a buffer.

use std::cell::RefCell;
use std::io;
use std::task::{Context, Poll, ready};

use super::arrival::StampedWire;

/// A read at first: a response's head, or about sixteen events of one token.
pub const READ_BYTES: usize = 4 * 1024;
/// The most that one read takes.
pub const READ_BYTES_MAX: usize = 64 * 1024;

thread_local! {
    static BLOCK: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES_MAX]);
}

/// Lends the block for one read. Nothing is kept in it, and what reads must not lend it again.
pub fn with_block<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    BLOCK.with_borrow_mut(|block| read(block))
}

/// Reads once, up to `most` bytes, and lets `look` at them; there are none at the connection's end.
pub fn poll_read<T>(
    wire: &mut StampedWire,
    cx: &mut Context<'_>,
    most: usize,
    look: impl FnOnce(&[u8]) -> T,
) -> Poll<io::Result<T>> {
    with_block(|block| {
        let most = most.min(block.len());
        let length = ready!(wire.poll_read(cx, &mut block[..most]))?;
        Poll::Ready(Ok(look(&block[..length])))
    })
}
