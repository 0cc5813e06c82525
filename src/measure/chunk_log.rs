//! The delta-coded log of a stream's output chunks: at most 6 bytes for a usual chunk.
//!
//! An entry is a flag byte (kind, which parts follow), then variable-length numbers: arrival in
//! µs since the chunk before, choice if not 0, tokens if known and not 1, hand-over in µs after
//! arrival. Stamps are cut to µs before the difference is taken, so errors do not add up.
//!
//! A log with a spill holds one block; full ones wait on disk until [`ChunkLog::recall`].

use std::io;
use std::sync::Arc;

use super::clock::Ns;
use super::spill::{BLOCK_BYTES, Spill, Spilled};

/// Longest entry: the flags and four numbers.
const ENTRY_BYTES: usize = 32;

/// What a chunk carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkKind {
    /// text or refusal
    Text,
    /// reasoning, in either spelling
    Reasoning,
    /// a tool call's name or arguments
    Tool,
}

/// One output chunk of one choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// arrival of the read that completed it
    pub arrival_ns: Ns,
    /// index of the choice
    pub choice: u32,
    /// what it carried
    pub kind: ChunkKind,
    /// its tokens, where known
    pub tokens: Option<u32>,
    /// when its bytes were taken by the client's socket, if told
    pub handed_ns: Option<Ns>,
}

const REASONING: u8 = 1;
const TOOL: u8 = 2;
const HAS_ARRIVAL: u8 = 1 << 2;
const HAS_CHOICE: u8 = 1 << 3;
const ONE_TOKEN: u8 = 1 << 4;
const HAS_TOKENS: u8 = 1 << 5;
const HAS_HANDED: u8 = 1 << 6;

/// Output chunks in order of arrival, up to a cap of bytes.
#[derive(Debug, Default)]
pub struct ChunkLog {
    /// the entries, or those after the last spilled block
    entries: Vec<u8>,
    spilled: Option<Spilled>,
    spilled_bytes: usize,
    cap_bytes: usize,
    chunks: u64,
    last_us: u64,
    truncated: bool,
}

impl ChunkLog {
    /// An empty log that grows to `cap_bytes` in memory.
    pub fn new(cap_bytes: usize) -> ChunkLog {
        ChunkLog {
            cap_bytes,
            ..ChunkLog::default()
        }
    }

    /// An empty log that hands full blocks to `spill`.
    pub fn spilling(cap_bytes: usize, spill: Arc<Spill>) -> ChunkLog {
        ChunkLog {
            spilled: Some(Spilled::none(spill)),
            ..ChunkLog::new(cap_bytes)
        }
    }

    /// Appends a chunk; past the cap it is dropped and the log marked truncated.
    pub fn push(&mut self, chunk: Chunk) {
        let mut entry = [0u8; ENTRY_BYTES];
        let length = self.encode(&chunk, &mut entry);
        if self.truncated || self.bytes() + length > self.cap_bytes || !self.make_room(length) {
            self.truncated = true;
            return;
        }
        self.entries.extend_from_slice(&entry[..length]);
        self.last_us = (chunk.arrival_ns / 1000).max(self.last_us);
        self.chunks += 1;
    }

    /// Spills a full block; false if it could not go.
    fn make_room(&mut self, length: usize) -> bool {
        let Some(spilled) = &mut self.spilled else {
            return true;
        };
        if self.entries.len() + length <= BLOCK_BYTES {
            return true;
        }
        let block = std::mem::take(&mut self.entries);
        let bytes = block.len();
        let kept = spilled.put(block);
        // what could not go is lost, and all after it: the log ends before it
        self.spilled_bytes += if kept { bytes } else { 0 };
        kept
    }

    /// Brings spilled blocks back into memory; the log can then be read. Reads the disk: not for a core.
    pub fn recall(&mut self) -> io::Result<()> {
        let Some(spilled) = self.spilled.take() else {
            return Ok(());
        };
        let last = std::mem::take(&mut self.entries);
        self.entries = spilled.gather()?;
        self.entries.extend_from_slice(&last);
        self.spilled_bytes = 0;
        Ok(())
    }

    /// Chunks pushed and not dropped.
    pub fn len(&self) -> u64 {
        self.chunks
    }

    /// True without a chunk.
    pub fn is_empty(&self) -> bool {
        self.chunks == 0
    }

    /// Bytes the entries take.
    pub fn bytes(&self) -> usize {
        self.spilled_bytes + self.entries.len()
    }

    /// True if chunks were dropped, at the cap or because a block could not be spilled.
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// The chunks in memory, stamps in whole microseconds (given in ns).
    pub fn iter(&self) -> Chunks<'_> {
        Chunks {
            entries: &self.entries,
            last_us: 0,
        }
    }

    fn encode(&self, chunk: &Chunk, entry: &mut [u8; ENTRY_BYTES]) -> usize {
        let arrival_us = chunk.arrival_ns / 1000;
        let delta_us = arrival_us.saturating_sub(self.last_us);
        let mut flags = match chunk.kind {
            ChunkKind::Text => 0,
            ChunkKind::Reasoning => REASONING,
            ChunkKind::Tool => TOOL,
        };
        let mut length = 1;
        if delta_us > 0 {
            flags |= HAS_ARRIVAL;
            length = put(entry, length, delta_us);
        }
        if chunk.choice > 0 {
            flags |= HAS_CHOICE;
            length = put(entry, length, u64::from(chunk.choice));
        }
        match chunk.tokens {
            Some(1) => flags |= ONE_TOKEN,
            Some(tokens) => {
                flags |= HAS_TOKENS;
                length = put(entry, length, u64::from(tokens));
            }
            None => {}
        }
        if let Some(handed_ns) = chunk.handed_ns {
            flags |= HAS_HANDED;
            let from_us = arrival_us.max(self.last_us);
            length = put(entry, length, (handed_ns / 1000).saturating_sub(from_us));
        }
        entry[0] = flags;
        length
    }
}

/// LEB128: seven bits a byte, least first.
fn put(entry: &mut [u8; ENTRY_BYTES], mut at: usize, mut value: u64) -> usize {
    while value >= 0x80 {
        entry[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    entry[at] = value as u8;
    at + 1
}

/// Decodes a log.
#[derive(Debug)]
pub struct Chunks<'a> {
    entries: &'a [u8],
    last_us: u64,
}

impl Chunks<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.entries.split_first()?;
        self.entries = rest;
        Some(byte)
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        Some(value)
    }

    fn number_if(&mut self, present: bool) -> Option<u64> {
        if present { self.number() } else { None }
    }
}

impl Iterator for Chunks<'_> {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        let flags = self.byte()?;
        self.last_us += self.number_if(flags & HAS_ARRIVAL != 0).unwrap_or(0);
        let choice = self.number_if(flags & HAS_CHOICE != 0).unwrap_or(0) as u32;
        let mut tokens = self
            .number_if(flags & HAS_TOKENS != 0)
            .map(|tokens| tokens as u32);
        if flags & ONE_TOKEN != 0 {
            tokens = Some(1);
        }
        let handed_us = self
            .number_if(flags & HAS_HANDED != 0)
            .map(|after| self.last_us + after);
        let kind = match flags & 3 {
            REASONING => ChunkKind::Reasoning,
            TOOL => ChunkKind::Tool,
            _ => ChunkKind::Text,
        };
        Some(Chunk {
            arrival_ns: self.last_us * 1000,
            choice,
            kind,
            tokens,
            handed_ns: handed_us.map(|us| us * 1000),
        })
    }
}
