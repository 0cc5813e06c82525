//! Where full blocks of chunk logs wait for their stream's end: a file without a name, in slots.
//!
//! A long stream then holds one block in memory, however long it gets. A core hands a block to the
//! writer's queue and never waits; a block that finds the queue or the file full is refused.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// Entries of a block.
pub const BLOCK_BYTES: usize = 512;
/// Before the entries: whose block it is, and how long.
const HEAD_BYTES: usize = 16;
const SLOT_BYTES: usize = HEAD_BYTES + BLOCK_BYTES;
/// About 1 GiB: some 180 million chunks of streams under way.
const SLOTS_MAX: u32 = 2 * 1024 * 1024;

/// A block on its way to its slot.
#[derive(Debug)]
pub struct Block {
    slot: u32,
    owner: u64,
    entries: Vec<u8>,
}

/// Passes a block to the thread that writes it; false if that takes no more.
pub type Pass = Box<dyn Fn(Block) -> bool + Send + Sync>;

#[derive(Debug, Default)]
struct Slots {
    free: Vec<u32>,
    used: u32,
}

/// The blocks of all logs under way.
pub struct Spill {
    file: Arc<File>,
    slots: Mutex<Slots>,
    owners: AtomicU64,
    pass: Pass,
}

impl std::fmt::Debug for Spill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spill").finish_non_exhaustive()
    }
}

/// A file for blocks in `dir`, gone with its last user.
pub fn file(dir: &Path) -> io::Result<Arc<File>> {
    tempfile::tempfile_in(dir).map(Arc::new)
}

/// Writes a block to its slot. For the thread that a [`Pass`] leads to.
pub fn write(file: &File, block: &Block) -> io::Result<()> {
    let mut bytes = [0; SLOT_BYTES];
    let length = block.entries.len().min(BLOCK_BYTES);
    bytes[..8].copy_from_slice(&block.owner.to_le_bytes());
    bytes[8..HEAD_BYTES].copy_from_slice(&(length as u64).to_le_bytes());
    bytes[HEAD_BYTES..][..length].copy_from_slice(&block.entries[..length]);
    file.write_all_at(&bytes, offset(block.slot))
}

fn offset(slot: u32) -> u64 {
    u64::from(slot) * SLOT_BYTES as u64
}

impl Spill {
    /// Blocks go by `pass` to a thread that calls [`write()`] on the same `file`.
    pub fn new(file: Arc<File>, pass: Pass) -> Spill {
        Spill {
            file,
            slots: Mutex::default(),
            // 0 is what a slot holds that was never written
            owners: AtomicU64::new(1),
            pass,
        }
    }

    /// Slots that hold a block.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        let slots = self.slots.lock();
        slots.used as usize - slots.free.len()
    }

    fn take_slot(&self) -> Option<u32> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.free.pop() {
            return Some(slot);
        }
        if slots.used == SLOTS_MAX {
            return None;
        }
        slots.used += 1;
        Some(slots.used - 1)
    }
}

/// The spilled blocks of one log, in order. Dropping it frees their slots.
#[derive(Debug)]
pub struct Spilled {
    spill: Arc<Spill>,
    owner: u64,
    slots: Vec<u32>,
}

impl Spilled {
    /// None yet.
    pub fn none(spill: Arc<Spill>) -> Spilled {
        Spilled {
            owner: spill.owners.fetch_add(1, Relaxed),
            spill,
            slots: Vec::new(),
        }
    }

    /// Spills one more block; false if it was refused.
    pub fn put(&mut self, entries: Vec<u8>) -> bool {
        let Some(slot) = self.spill.take_slot() else {
            return false;
        };
        let owner = self.owner;
        let passed = (self.spill.pass)(Block {
            slot,
            owner,
            entries,
        });
        if passed {
            self.slots.push(slot);
        } else {
            self.spill.slots.lock().free.push(slot);
        }
        passed
    }

    /// All entries. Fails where a block was never written, because the disk refused it.
    pub fn gather(&self) -> io::Result<Vec<u8>> {
        let mut entries = Vec::with_capacity((self.slots.len() + 1) * BLOCK_BYTES);
        let mut bytes = [0; SLOT_BYTES];
        for &slot in &self.slots {
            self.spill.file.read_exact_at(&mut bytes, offset(slot))?;
            let (head, block) = bytes.split_at(HEAD_BYTES);
            let number = |at: usize| {
                head[at..at + 8]
                    .iter()
                    .rev()
                    .fold(0, |n, &byte| n << 8 | u64::from(byte))
            };
            if number(0) != self.owner {
                return Err(io::Error::other("a block of a chunk log was not written"));
            }
            entries.extend_from_slice(&block[..(number(8) as usize).min(BLOCK_BYTES)]);
        }
        Ok(entries)
    }
}

impl Drop for Spilled {
    fn drop(&mut self) {
        // a block still queued is written before one that takes its slot: both go by the same queue
        self.spill.slots.lock().free.append(&mut self.slots);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    /// A spill that writes at once, or refuses after `blocks`.
    fn spill(blocks: usize) -> Arc<Spill> {
        let file = file(&std::env::temp_dir()).unwrap();
        let to = file.clone();
        let left = Mutex::new(blocks);
        let pass = move |block: Block| {
            let mut left = left.lock();
            if *left == 0 {
                return false;
            }
            *left -= 1;
            write(&to, &block).unwrap();
            true
        };
        Arc::new(Spill::new(file, Box::new(pass)))
    }

    #[test]
    fn blocks_come_back_in_order_and_free_their_slots() {
        let spill = spill(100);
        let mut logs: Vec<Spilled> = (0..3).map(|_| Spilled::none(spill.clone())).collect();
        for round in 0..4u8 {
            for (log, of) in logs.iter_mut().zip(0u8..) {
                assert!(log.put(vec![of * 16 + round; 100 + usize::from(round)]));
            }
        }
        assert_eq!(spill.held(), 12);
        for (log, of) in logs.iter().zip(0u8..) {
            let wanted: Vec<u8> = (0..4u8)
                .flat_map(|round| vec![of * 16 + round; 100 + usize::from(round)])
                .collect();
            assert_eq!(log.gather().unwrap(), wanted);
        }
        drop(logs);
        assert_eq!(spill.held(), 0);
    }

    #[test]
    fn a_refused_block_takes_no_slot() {
        let spill = spill(1);
        let mut log = Spilled::none(spill.clone());
        assert!(log.put(vec![1; 10]));
        assert!(!log.put(vec![2; 10]));
        assert_eq!((spill.held(), log.gather().unwrap()), (1, vec![1; 10]));
    }

    #[test]
    fn a_block_that_was_not_written_is_an_error_and_not_somebody_elses() {
        let file = file(&std::env::temp_dir()).unwrap();
        let spill = Arc::new(Spill::new(file.clone(), Box::new(|_| true)));
        let mut log = Spilled::none(spill.clone());
        assert!(log.put(vec![1; 10]));
        assert!(log.gather().is_err(), "nothing there");
        let other = Block {
            slot: 0,
            owner: log.owner + 1,
            entries: vec![2; 10],
        };
        write(&file, &other).unwrap();
        assert!(log.gather().is_err(), "another's");
    }
}
