//! The KV cache: blocks handed out, shared by prefix, and kept for reuse until evicted.
//!
//! A block is *private* (only counted), or *cached* under the hash of its chain, shared by the
//! sequences that hold it. A cached block nobody holds stays until space is needed; the one
//! unused longest goes first, and of one sequence the last block before the first.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const NONE: u32 = u32::MAX;

/// Keys are hashes already.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct PassHasher(u64);

impl Hasher for PassHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A map keyed by a 64-bit number.
pub(crate) type NumberMap<V> = HashMap<u64, V, BuildHasherDefault<PassHasher>>;

#[derive(Debug)]
struct Cached {
    hash: u64,
    holders: u32,
    older: u32,
    newer: u32,
}

/// Blocks one sequence holds.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Cached blocks, from the prompt's start.
    shared: Vec<u32>,
    /// Private blocks.
    private: u32,
    /// Prompt blocks already offered to the cache.
    offered: u32,
}

impl Held {
    pub(crate) fn blocks(&self) -> u32 {
        self.shared.len() as u32 + self.private
    }
}

/// All blocks of one instance.
#[derive(Debug)]
pub(crate) struct KvCache {
    total: u32,
    free: u32,
    by_hash: NumberMap<u32>,
    slots: Vec<Cached>,
    vacant: Vec<u32>,
    idle: u32,
    oldest: u32,
    newest: u32,
}

impl KvCache {
    pub(crate) fn new(total: u32) -> Self {
        KvCache {
            total,
            free: total,
            by_hash: NumberMap::default(),
            slots: Vec::new(),
            vacant: Vec::new(),
            idle: 0,
            oldest: NONE,
            newest: NONE,
        }
    }

    /// Blocks held by sequences.
    pub(crate) fn used(&self) -> u32 {
        self.total - self.free - self.idle
    }

    /// How many of the chain's first blocks are cached.
    pub(crate) fn hits(&self, hashes: &[u64]) -> u32 {
        hashes
            .iter()
            .take_while(|hash| self.by_hash.contains_key(hash))
            .count() as u32
    }

    /// Takes the first `hits` cached blocks and `private` new ones, or nothing if they do not fit.
    pub(crate) fn admit(
        &mut self,
        held: &mut Held,
        hashes: &[u64],
        hits: u32,
        private: u32,
    ) -> bool {
        let first = &hashes[..hits as usize];
        let woken = first.iter().filter(|hash| self.is_idle(**hash)).count() as u32;
        if self.free + self.idle < woken + private {
            return false;
        }
        for hash in first {
            let Some(&slot) = self.by_hash.get(hash) else {
                break;
            };
            if self.slots[slot as usize].holders == 0 {
                self.unlink(slot);
            }
            self.slots[slot as usize].holders += 1;
            held.shared.push(slot);
        }
        held.offered = hits;
        self.grow(held, private)
    }

    /// Takes `private` new blocks, evicting idle cached ones; nothing if they do not fit.
    pub(crate) fn grow(&mut self, held: &mut Held, private: u32) -> bool {
        if self.free + self.idle < private {
            return false;
        }
        while self.free < private {
            self.evict_oldest();
        }
        self.free -= private;
        held.private += private;
        true
    }

    /// The prompt's first `computed` blocks hold their keys and values now: share them.
    pub(crate) fn share(&mut self, held: &mut Held, hashes: &[u64], computed: u32) {
        let end = (computed as usize).min(hashes.len());
        for hash in hashes.iter().take(end).skip(held.offered as usize) {
            if self.by_hash.contains_key(hash) {
                continue; // Somebody computed the same at the same time: ours stays private.
            }
            let slot = self.insert(*hash);
            held.shared.push(slot);
            held.private -= 1;
        }
        held.offered = held.offered.max(end as u32);
    }

    /// Gives everything back; cached blocks stay for reuse.
    pub(crate) fn release(&mut self, held: &mut Held) {
        self.free += held.private;
        for &slot in held.shared.iter().rev() {
            self.slots[slot as usize].holders -= 1;
            if self.slots[slot as usize].holders == 0 {
                self.link_newest(slot);
            }
        }
        held.shared.clear();
        held.private = 0;
        held.offered = 0;
    }

    fn is_idle(&self, hash: u64) -> bool {
        self.by_hash
            .get(&hash)
            .is_some_and(|slot| self.slots[*slot as usize].holders == 0)
    }

    fn insert(&mut self, hash: u64) -> u32 {
        let cached = Cached {
            hash,
            holders: 1,
            older: NONE,
            newer: NONE,
        };
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.slots[slot as usize] = cached;
                slot
            }
            None => {
                self.slots.push(cached);
                (self.slots.len() - 1) as u32
            }
        };
        self.by_hash.insert(hash, slot);
        slot
    }

    fn evict_oldest(&mut self) {
        let slot = self.oldest;
        if slot == NONE {
            return;
        }
        self.unlink(slot);
        self.by_hash.remove(&self.slots[slot as usize].hash);
        self.vacant.push(slot);
        self.free += 1;
    }

    fn link_newest(&mut self, slot: u32) {
        let before = self.newest;
        self.slots[slot as usize].older = before;
        self.slots[slot as usize].newer = NONE;
        match before {
            NONE => self.oldest = slot,
            _ => self.slots[before as usize].newer = slot,
        }
        self.newest = slot;
        self.idle += 1;
    }

    fn unlink(&mut self, slot: u32) {
        let (older, newer) = (
            self.slots[slot as usize].older,
            self.slots[slot as usize].newer,
        );
        match older {
            NONE => self.oldest = newer,
            _ => self.slots[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            _ => self.slots[newer as usize].older = older,
        }
        self.idle -= 1;
    }
}
