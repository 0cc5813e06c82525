//! The words of a fault: what goes wrong with one exchange on its way through a fault proxy, and where.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

/// What becomes of one exchange, step by step and by direction.
#[derive(Debug, Clone, Default)]
pub struct Fault {
    /// on the request's way to the instance
    pub up: VecDeque<Step>,
    /// on the answer's way back
    pub down: VecDeque<Step>,
}

/// An act and its place.
#[derive(Debug, Clone)]
pub struct Step {
    /// before which byte
    pub at: At,
    /// what is done there
    pub act: Act,
}

/// A place in the bytes of one exchange and direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// so many bytes from the head's first
    Byte(u64),
    /// so many bytes after the (last) head's end
    Body(u64),
    /// after the last byte
    End,
}

/// What a fault proxy does there.
#[derive(Debug, Clone)]
pub enum Act {
    /// the bytes that follow wait
    Delay(Duration),
    /// the bytes that follow go in small writes
    Trickle { bytes: usize, every: Duration },
    /// both connections close
    Close,
    /// both connections are reset
    Reset,
    /// nothing follows but a FIN in this direction; the other one goes on
    HalfClose,
    /// nothing follows, and no end either
    BlackHole,
    /// bytes that nobody sent
    Insert(Bytes),
    /// the next chunk's size is no number
    Garble,
    /// the request is swallowed; this is the answer (only in `up`)
    Answer(Bytes),
}

impl Fault {
    /// Nothing goes wrong.
    pub fn none() -> Fault {
        Fault::default()
    }

    /// Adds a step on the request's way.
    pub fn up(mut self, at: At, act: Act) -> Fault {
        self.up.push_back(Step { at, act });
        self
    }

    /// Adds a step on the answer's way.
    pub fn down(mut self, at: At, act: Act) -> Fault {
        self.down.push_back(Step { at, act });
        self
    }
}
