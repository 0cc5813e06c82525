//! Withholds the usage event that the proxy itself asked for (C28); all else passes byte for byte.
//!
//! Only an unfinished tail that could still be that event is held back, 64 KiB of it at most.

use bytes::Bytes;
use memchr::{memchr2, memmem};

use super::answer::json::Json;
use super::sse::{Item, Scanner};

/// Longest unfinished event held back; no usage event is near it.
const HOLD_BYTES: usize = 64 * 1024;

/// Where a block of lines ends, over several reads.
#[derive(Debug)]
struct Cursor {
    line_empty: bool,
    after_cr: bool,
}

impl Cursor {
    fn new() -> Cursor {
        Cursor {
            line_empty: true,
            after_cr: false,
        }
    }

    /// Offset past the empty line that ends the block; `None` if it does not end here.
    fn block_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = usize::from(self.after_cr && bytes.first() == Some(&b'\n'));
        self.after_cr = bytes.is_empty() && self.after_cr;
        while at < bytes.len() {
            let Some(length) = memchr2(b'\n', b'\r', &bytes[at..]) else {
                self.line_empty = false;
                return None;
            };
            let empty = length == 0 && self.line_empty;
            at += length;
            at += line_end_bytes(&bytes[at..]);
            if empty {
                return Some(at);
            }
            self.line_empty = true;
            self.after_cr = at == bytes.len() && bytes[at - 1] == b'\r';
        }
        None
    }
}

fn line_end_bytes(rest: &[u8]) -> usize {
    if rest.starts_with(b"\r\n") { 2 } else { 1 }
}

/// A comment at the front of a block passes by itself: keep-alives must not wait.
fn unit_end(bytes: &[u8]) -> Option<usize> {
    if bytes.first() != Some(&b':') {
        return Cursor::new().block_end(bytes);
    }
    let end = memchr2(b'\n', b'\r', bytes)?;
    Some(end + line_end_bytes(&bytes[end..]))
}

/// True for the event to withhold: usage, an empty list of choices, no error.
fn is_usage_only(event: &[u8]) -> bool {
    // a quote inside a string is escaped, so these bytes are a key with a choice
    let has_choice = memmem::find(event, b"\"choices\":[{").is_some();
    if has_choice || memmem::find(event, b"usage").is_none() {
        return false;
    }
    let mut found = false;
    let mut sink = |item: Item<'_>| {
        if let Item::Event { data, .. } = item {
            found = Json::read(data).is_some_and(|json| {
                json.get("choices") == Some(&Json::List(Vec::new()))
                    && matches!(json.get("usage"), Some(Json::Object(_)))
                    && json.get("error").is_none()
            });
        }
    };
    let mut scanner = Scanner::new(HOLD_BYTES);
    scanner.feed(event, &mut sink);
    scanner.end(true, &mut sink);
    found
}

/// False once an unfinished event shows a choice, or is a comment: it may go on at once.
fn could_be_usage(tail: &[u8]) -> bool {
    tail.len() <= HOLD_BYTES
        && tail.first() != Some(&b':')
        && memmem::find(tail, b"\"choices\":[{").is_none()
}

/// The filter of one stream.
#[derive(Debug, Default)]
pub struct UsageFilter {
    /// bytes of the event under way that have not been passed on
    held: Vec<u8>,
    /// an event under way that passes up to its end
    passing: Option<Cursor>,
    /// the last block ended in CR and was withheld (true) or passed: an LF now goes the same way
    after_cr: Option<bool>,
    withheld: u64,
}

/// The parts of a read that go on.
struct Kept {
    bytes: Bytes,
    start: usize,
    pieces: Vec<Bytes>,
}

impl Kept {
    fn leave_out(&mut self, from: usize, to: usize) {
        if from > self.start {
            self.pieces.push(self.bytes.slice(self.start..from));
        }
        self.start = to;
    }

    fn take(mut self, end: usize) -> Bytes {
        self.leave_out(end, end);
        match self.pieces.len() {
            0 => Bytes::new(),
            1 => self.pieces.swap_remove(0),
            _ => Bytes::from(self.pieces.concat()),
        }
    }
}

impl UsageFilter {
    /// A filter for one stream.
    pub fn new() -> UsageFilter {
        UsageFilter::default()
    }

    /// Events withheld so far.
    pub fn withheld(&self) -> u64 {
        self.withheld
    }

    /// Takes one read and gives what may go on now; without a copy if the read is whole events.
    pub fn push(&mut self, bytes: Bytes) -> Bytes {
        if bytes.is_empty() {
            return bytes;
        }
        let bytes = self.join(bytes);
        let mut kept = Kept {
            bytes: bytes.clone(),
            start: 0,
            pieces: Vec::new(),
        };
        let mut at = self.after_last(&bytes, &mut kept);
        if let Some(cursor) = &mut self.passing {
            let Some(end) = cursor.block_end(&bytes) else {
                return bytes;
            };
            self.passing = None;
            at = end;
            self.note_cr(&bytes[..at], at == bytes.len(), false);
        }
        while at < bytes.len() {
            let Some(length) = unit_end(&bytes[at..]) else {
                let end = self.keep_tail(&bytes, at);
                return kept.take(end);
            };
            let end = at + length;
            let usage = is_usage_only(&bytes[at..end]);
            if usage {
                kept.leave_out(at, end);
                self.withheld += 1;
            }
            self.note_cr(&bytes[..end], end == bytes.len(), usage);
            at = end;
        }
        kept.take(at)
    }

    /// The stream ended: what was held back, unless it is the event to withhold.
    pub fn finish(&mut self) -> Bytes {
        let held = std::mem::take(&mut self.held);
        if is_usage_only(&held) {
            self.withheld += 1;
            return Bytes::new();
        }
        Bytes::from(held)
    }

    fn join(&mut self, bytes: Bytes) -> Bytes {
        if self.held.is_empty() {
            return bytes;
        }
        self.held.extend_from_slice(&bytes);
        Bytes::from(std::mem::take(&mut self.held))
    }

    /// An LF that belongs to the CR before it shares the fate of that block.
    fn after_last(&mut self, bytes: &[u8], kept: &mut Kept) -> usize {
        match self.after_cr.take() {
            Some(withheld) if bytes[0] == b'\n' => {
                if withheld {
                    kept.leave_out(0, 1);
                }
                1
            }
            _ => 0,
        }
    }

    fn note_cr(&mut self, block: &[u8], at_end: bool, withheld: bool) {
        self.after_cr = (at_end && block.ends_with(b"\r")).then_some(withheld);
    }

    /// Holds the unfinished tail, or lets it pass; gives where the bytes that go on end.
    fn keep_tail(&mut self, bytes: &[u8], at: usize) -> usize {
        let tail = &bytes[at..];
        if could_be_usage(tail) {
            self.held = tail.to_vec();
            return at;
        }
        let mut cursor = Cursor::new();
        cursor.block_end(tail);
        self.passing = Some(cursor);
        bytes.len()
    }
}
