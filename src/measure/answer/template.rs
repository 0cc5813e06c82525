//! The cheap way through a stream: chunks of one stream differ in their text alone.
//!
//! A chunk that was parsed in full and carried plain output becomes a template: its bytes with the
//! output string (and one counting number, where there is one) cut out. A later event is known
//! without a parse if every byte outside the holes is the same and the string hole holds no quote
//! that is not escaped: then it *is* the same document with another string, whatever the text
//! looks like. Anything else goes to the full parse.

use std::ops::Range;

use memchr::{memchr_iter, memmem};
use smallvec::SmallVec;

use crate::measure::chunk_log::ChunkKind;

/// Templates kept of one stream: choices, and kinds of output.
const TEMPLATES: usize = 4;
/// Longer frames are not worth their memory.
const FRAME_BYTES: usize = 1024;
/// Numbers that change from chunk to chunk and mean nothing to the meter.
const COUNTERS: [&[u8]; 2] = [b"\"sequence_number\":", b"\"created\":"];

/// What an event matched by a template carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skimmed {
    /// index of the choice
    pub choice: u32,
    /// kind of its output
    pub kind: ChunkKind,
    /// the string was empty: no output
    pub empty: bool,
}

/// A stretch of the chunk learned from, with a hole for a number: the number seldom changes.
#[derive(Debug)]
struct Frame {
    range: Range<usize>,
    hole: Option<Hole>,
}

/// Where the number was in the bytes.
#[derive(Debug, Clone, Copy)]
struct Hole {
    start: usize,
    end: usize,
}

fn digits(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count()
}

/// Digits that JSON takes for one number: at least one, and no leading 0 before others.
fn is_number(digits: &[u8]) -> bool {
    digits.len() == 1 || digits.first().is_some_and(|&first| first != b'0')
}

impl Frame {
    /// The frame `range` of `learned`.
    fn new(learned: &[u8], range: Range<usize>) -> Frame {
        let bytes = &learned[range.clone()];
        let hole = COUNTERS.iter().find_map(|name| {
            let start = memmem::find(bytes, name)? + name.len();
            let length = digits(&bytes[start..]);
            let end = start + length;
            // Only a whole number that ends in this frame.
            let ends = matches!(bytes.get(end), Some(b',' | b'}'));
            (length > 0 && ends).then_some(Hole { start, end })
        });
        Frame { range, hole }
    }

    /// What is left after this frame at the front.
    #[inline]
    fn front<'a>(&self, learned: &[u8], data: &'a [u8]) -> Option<&'a [u8]> {
        let frame = &learned[self.range.clone()];
        match data.strip_prefix(frame) {
            Some(rest) => Some(rest),
            None => self.front_with_another_number(frame, data),
        }
    }

    fn front_with_another_number<'a>(&self, frame: &[u8], data: &'a [u8]) -> Option<&'a [u8]> {
        let hole = self.hole?;
        let rest = data.strip_prefix(&frame[..hole.start])?;
        let (number, rest) = rest.split_at(digits(rest));
        if !is_number(number) {
            return None;
        }
        rest.strip_prefix(&frame[hole.end..])
    }

    /// What is left before this frame at the back.
    #[inline]
    fn back<'a>(&self, learned: &[u8], data: &'a [u8]) -> Option<&'a [u8]> {
        let frame = &learned[self.range.clone()];
        match data.strip_suffix(frame) {
            Some(rest) => Some(rest),
            None => self.back_with_another_number(frame, data),
        }
    }

    fn back_with_another_number<'a>(&self, frame: &[u8], data: &'a [u8]) -> Option<&'a [u8]> {
        let hole = self.hole?;
        let rest = data.strip_suffix(&frame[hole.end..])?;
        let length = rest
            .iter()
            .rev()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (rest, number) = rest.split_at(rest.len() - length);
        if !is_number(number) {
            return None;
        }
        rest.strip_suffix(&frame[..hole.start])
    }
}

#[derive(Debug)]
struct Template {
    /// the chunk learned from, without its output: one piece of memory, read from front to back
    learned: Box<[u8]>,
    front: Frame,
    back: Frame,
    choice: u32,
    kind: ChunkKind,
}

/// True if `body`, which follows an opening quote, holds no quote that would close the string and
/// does not end in an escape.
fn stays_inside_string(body: &[u8]) -> bool {
    let escaped = |at: usize| {
        body[..at]
            .iter()
            .rev()
            .take_while(|&&byte| byte == b'\\')
            .count()
            % 2
            == 1
    };
    memchr_iter(b'"', body).all(escaped) && !escaped(body.len())
}

impl Template {
    fn matches(&self, data: &[u8]) -> Option<Skimmed> {
        let rest = self.front.front(&self.learned, data)?;
        let body = self.back.back(&self.learned, rest)?;
        stays_inside_string(body).then_some(Skimmed {
            choice: self.choice,
            kind: self.kind,
            empty: body.is_empty(),
        })
    }
}

/// The templates of one stream, last used first tried.
#[derive(Debug, Default)]
pub struct Templates {
    known: SmallVec<[Template; 1]>,
    last: usize,
    next: usize,
}

impl Templates {
    /// Reads an event by a template, if one fits.
    #[inline]
    pub fn skim(&mut self, data: &[u8]) -> Option<Skimmed> {
        let last = self.known.get(self.last)?;
        if let Some(skimmed) = last.matches(data) {
            return Some(skimmed);
        }
        let (at, skimmed) = self
            .known
            .iter()
            .enumerate()
            .find_map(|(at, template)| Some((at, template.matches(data)?)))?;
        self.last = at;
        Some(skimmed)
    }

    /// Keeps the frame of a chunk whose only output is `output`, a slice of `data` without escapes.
    pub fn learn(&mut self, data: &[u8], output: &str, choice: u32, kind: ChunkKind) {
        let start = (output.as_ptr() as usize).wrapping_sub(data.as_ptr() as usize);
        let Some(end) = start.checked_add(output.len()) else {
            return;
        };
        if end >= data.len() || data.len() - output.len() > FRAME_BYTES {
            return;
        }
        let learned = [&data[..start], &data[end..]].concat();
        let template = Template {
            front: Frame::new(&learned, 0..start),
            back: Frame::new(&learned, start..learned.len()),
            learned: learned.into(),
            choice,
            kind,
        };
        if self.known.len() < TEMPLATES {
            self.last = self.known.len();
            return self.known.push(template);
        }
        self.last = self.next;
        self.known[self.next] = template;
        self.next = (self.next + 1) % TEMPLATES;
    }
}
