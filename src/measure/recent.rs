//! The newest usual chunks of a stream, not yet told to the reader: two cache lines a stream.
//!
//! Between first and last output a stream is one usual chunk after another: a whole event that a template
//! knows. What is to be kept of one is when it came and when the client's socket took it; both are noted here,
//! and all else that a stream keeps (answer, histograms, log) is touched once for eleven chunks.
//! [`Recent::settle`] then tells the reader what it would have been told chunk by chunk.

use std::sync::Arc;

use memchr::memchr2;

use super::answer::template::Template;
use super::clock::Ns;

/// Chunks noted before they must be told.
const CHUNKS: usize = 11;

/// When a chunk came and was handed on, ns after the first one noted came.
#[derive(Debug, Clone, Copy, Default)]
struct Noted {
    arrival_ns: u32,
    handed_ns: u32,
}

/// What came of looking for usual chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Took {
    /// all bytes were usual chunks
    All,
    /// the bytes from here on are something else
    UpTo(usize),
    /// so many bytes were taken: there is room for more only after [`Recent::settle`]
    Full(usize),
}

/// A chunk told: when it came, and when it was handed on, if it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usual {
    /// arrival of its read
    pub arrival_ns: Ns,
    /// when the client's socket had taken it
    pub handed_ns: Option<Ns>,
}

/// Reads that brought usual chunks and nothing else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// how many
    pub count: u64,
    /// their body bytes
    pub bytes: u64,
}

/// Usual chunks of one stream. Fields that every event touches come first, then the chunks in order.
#[derive(Debug)]
#[repr(C)]
pub struct Recent {
    /// the frame of what is usual now; `None` while nothing is
    template: Option<Arc<Template>>,
    base_ns: Ns,
    bytes: u32,
    /// longest data of an event that is read
    cap_bytes: u32,
    reads: u8,
    count: u8,
    /// of the chunks, how many were handed on
    handed: u8,
    noted: [Noted; CHUNKS],
}

/// A usual event at the front of the bytes, as its data and its length; a name may go before the data.
#[inline]
fn event(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let mut rest = bytes;
    if let Some(named) = rest.strip_prefix(b"event: ") {
        let (name, after) = line(named)?;
        if name == b"error" {
            return None;
        }
        rest = after;
    }
    let (data, after) = line(rest.strip_prefix(b"data: ")?)?;
    let after = after.strip_prefix(b"\n")?;
    Some((data, bytes.len() - after.len()))
}

/// A line that ends in LF, and what follows.
#[inline]
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr2(b'\n', b'\r', bytes)?;
    (bytes[end] == b'\n').then(|| (&bytes[..end], &bytes[end + 1..]))
}

/// Time from `base_ns`, where it can be noted.
#[inline]
fn after(base_ns: Ns, at_ns: Ns) -> Option<u32> {
    u32::try_from(at_ns.checked_sub(base_ns)?).ok()
}

impl Recent {
    /// Nothing noted. Events with more than `cap_bytes` of data are never usual.
    pub fn new(cap_bytes: usize) -> Recent {
        Recent {
            template: None,
            base_ns: 0,
            bytes: 0,
            cap_bytes: u32::try_from(cap_bytes).unwrap_or(u32::MAX),
            reads: 0,
            count: 0,
            handed: 0,
            noted: [Noted::default(); CHUNKS],
        }
    }

    /// What is usual from now on. To be settled before.
    pub fn expect(&mut self, template: Option<&Arc<Template>>) {
        let same = match (&self.template, template) {
            (Some(known), Some(next)) => Arc::ptr_eq(known, next),
            (None, None) => true,
            _ => false,
        };
        if !same {
            self.template = template.cloned();
        }
    }

    /// Whether anything can be usual.
    pub fn expects(&self) -> bool {
        self.template.is_some()
    }

    /// Chunks noted.
    #[inline]
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// Notes the usual chunks at the front of what a read at `at_ns` brought.
    #[inline]
    pub fn take(&mut self, bytes: &[u8], at_ns: Ns) -> Took {
        let mut at = 0;
        while at < bytes.len() {
            let Some(length) = self.usual(&bytes[at..]) else {
                return Took::UpTo(at);
            };
            if !self.note(at_ns) {
                return Took::Full(at);
            }
            at += length;
        }
        Took::All
    }

    /// Counts a read that brought usual chunks alone.
    #[inline]
    pub fn count_read(&mut self, bytes: usize) {
        self.reads += 1;
        // a read is no larger than a few buffers
        self.bytes = self.bytes.saturating_add(bytes as u32);
    }

    /// All chunks noted have been taken by the client's socket; false if that cannot be noted.
    #[inline]
    pub fn hand(&mut self, at_ns: Ns) -> bool {
        let count = self.count();
        let Some(handed_ns) = after(self.base_ns, at_ns) else {
            return count == usize::from(self.handed);
        };
        for noted in &mut self.noted[usize::from(self.handed)..count] {
            noted.handed_ns = handed_ns;
        }
        self.handed = self.count;
        true
    }

    /// Tells the chunks in order and forgets them; gives the reads that brought nothing else.
    pub fn settle(&mut self, mut tell: impl FnMut(&Template, Usual)) -> Reads {
        let base_ns = self.base_ns;
        for (at, noted) in self.noted[..self.count()].iter().enumerate() {
            let Some(template) = &self.template else {
                break;
            };
            let handed = at < usize::from(self.handed);
            let usual = Usual {
                arrival_ns: base_ns + u64::from(noted.arrival_ns),
                handed_ns: handed.then(|| base_ns + u64::from(noted.handed_ns)),
            };
            tell(template, usual);
        }
        let reads = Reads {
            count: u64::from(self.reads),
            bytes: u64::from(self.bytes),
        };
        (self.count, self.handed, self.reads, self.bytes) = (0, 0, 0, 0);
        reads
    }

    /// Length of the usual event at the front of the bytes.
    #[inline]
    fn usual(&self, bytes: &[u8]) -> Option<usize> {
        let template = self.template.as_ref()?;
        let (data, length) = event(bytes)?;
        let skimmed = template.skim(data)?;
        (!skimmed.empty && data.len() <= self.cap_bytes as usize).then_some(length)
    }

    /// False if there is no room, or the time is too far from the first one's.
    #[inline]
    fn note(&mut self, at_ns: Ns) -> bool {
        let count = self.count();
        if count == 0 {
            self.base_ns = at_ns;
        }
        let Some(arrival_ns) = after(self.base_ns, at_ns).filter(|_| count < CHUNKS) else {
            return false;
        };
        self.noted[count].arrival_ns = arrival_ns;
        self.count += 1;
        true
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn it_leaves_room_in_two_cache_lines() {
        assert_eq!(size_of::<Recent>(), 120);
    }

    #[test]
    fn only_whole_events_in_the_usual_spelling_are_seen() {
        let whole = b"event: a\ndata: {}\n\nrest";
        assert_eq!(event(whole), Some((&b"{}"[..], whole.len() - 4)));
        assert_eq!(event(b"data: x\n\n"), Some((&b"x"[..], 9)));
        let others = [
            "data: x\n",
            "data: x\n\r\n",
            "data: x\r\n\r\n",
            "data: x\r\n",
            "data:x\n\n",
            "data: x\ndata: y\n\n",
            ": c\ndata: x\n\n",
            "event: error\ndata: x\n\n",
            "event: a\rb\ndata: x\n\n",
            "\ndata: x\n\n",
        ];
        for other in others {
            assert_eq!(event(other.as_bytes()), None, "{other:?}");
        }
    }
}
