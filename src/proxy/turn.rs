//! Small writes to clients wait for the end of a turn: first all streams that have something are read, then all are written.
//!
//! A turn is one pass of a core's loop over the tasks that are ready. What the instances sent in one step comes in one
//! turn, and writes that follow one another wake a client that reads several of the streams once, not once each.

use std::cell::RefCell;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::client_socket::ClientSocket;

/// A larger write goes out at once.
const WRITE_BYTES_MAX: usize = 4 * 1024;
/// So many writes end a turn early: the first of them must not wait for long.
const WRITES_MAX: usize = 64;

thread_local! {
    static TURN: RefCell<Turn> = RefCell::default();
}

#[derive(Default)]
struct Turn {
    bytes: Vec<u8>,
    writes: Vec<(Arc<ClientSocket>, Range<usize>)>,
    /// the task that ends turns; without one nothing waits
    end: Option<Waker>,
    /// it was woken in this turn
    ending: bool,
}

/// Ends this thread's turns. Its task comes after all that were ready when the turn's first write came.
pub async fn end_turns() {
    poll_fn(|cx| {
        TURN.with_borrow_mut(|turn| turn.end = Some(cx.waker().clone()));
        end_turn();
        Poll::<()>::Pending
    })
    .await;
}

/// Takes a write that is to go out when the turn ends; false if it does not wait.
pub fn write_later(socket: &Arc<ClientSocket>, bytes: &[u8]) -> bool {
    let full = TURN.with_borrow_mut(|turn| turn.add(socket, bytes));
    if full == Some(true) {
        end_turn();
    }
    full.is_some()
}

/// Writes all that waits.
pub fn end_turn() {
    let (mut writes, bytes) = TURN.with_borrow_mut(|turn| {
        turn.ending = false;
        (
            std::mem::take(&mut turn.writes),
            std::mem::take(&mut turn.bytes),
        )
    });
    for (socket, range) in writes.drain(..) {
        socket.write_now(&bytes[range]);
    }
    TURN.with_borrow_mut(|turn| turn.keep(writes, bytes));
}

impl Turn {
    /// Whether it is full now; `None` if it does not take the write.
    fn add(&mut self, socket: &Arc<ClientSocket>, bytes: &[u8]) -> Option<bool> {
        let end = self
            .end
            .as_ref()
            .filter(|_| bytes.len() <= WRITE_BYTES_MAX)?;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        match self.writes.last_mut() {
            Some((last, range)) if Arc::ptr_eq(last, socket) => range.end = self.bytes.len(),
            _ => {
                socket.write_waits();
                self.writes.push((socket.clone(), start..self.bytes.len()));
            }
        }
        if !self.ending {
            self.ending = true;
            end.wake_by_ref();
        }
        Some(self.writes.len() >= WRITES_MAX)
    }

    /// Keeps the memory for the next turn, unless writing has begun one already.
    fn keep(&mut self, writes: Vec<(Arc<ClientSocket>, Range<usize>)>, mut bytes: Vec<u8>) {
        if self.writes.is_empty() && self.bytes.is_empty() {
            bytes.clear();
            self.writes = writes;
            self.bytes = bytes;
        }
    }
}
