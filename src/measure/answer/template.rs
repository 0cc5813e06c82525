//! The cheap way through a stream: chunks of one stream differ in their text alone.
//!
//! A chunk that was parsed in full and carried plain output becomes a template: its bytes with holes
//! for the output, and for the ids and counting numbers that mean nothing to the meter. A later event
//! is known without a parse if every byte outside the holes is the same and each hole holds what one
//! JSON string or number may hold: then it *is* the same document with other values, whatever they
//! look like. Anything else goes to the full parse.

use std::ops::Range;

use memchr::{memchr, memchr_iter, memmem, memrchr};

use crate::measure::chunk_log::ChunkKind;

/// Longer frames are not worth their memory.
const FRAME_BYTES: usize = 1024;
/// Holes beside the output; chunks in use have four at most.
const HOLES: usize = 8;
/// Numbers that change from chunk to chunk, or from stream to stream.
const NUMBERS: [&[u8]; 2] = [b"\"sequence_number\":", b"\"created\":"];
/// Strings that do. The bytes are always a key's: inside a string its quotes would be escaped.
const NAMES: [&[u8]; 3] = [b"\"id\":\"", b"\"item_id\":\"", b"\"obfuscation\":\""];

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

/// What a hole may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hole {
    /// digits that JSON takes for one number
    Number,
    /// a string's bytes without quote or escape
    Name,
}

/// A hole in the frame, before the byte at `at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    at: usize,
    hole: Hole,
}

/// The frame of a chunk. Chunks of streams that differ only in what holes hold give the same one.
#[derive(Debug, PartialEq, Eq)]
pub struct Template {
    /// the chunk without what the holes held: one piece of memory, read from front to back
    frame: Box<[u8]>,
    /// where the output was
    output_at: usize,
    /// holes before the output, first to last
    front: Box<[Place]>,
    /// holes after it, last to first
    back: Box<[Place]>,
    choice: u32,
    kind: ChunkKind,
}

fn is_number(digits: &[u8]) -> bool {
    // at least one, and no leading 0 before others
    digits.len() == 1 || digits.first().is_some_and(|&first| first != b'0')
}

impl Hole {
    /// Length of what fills the hole at the front of `data`.
    #[inline]
    fn filled_front(self, data: &[u8]) -> Option<usize> {
        match self {
            Hole::Number => {
                let length = data.iter().take_while(|byte| byte.is_ascii_digit()).count();
                is_number(&data[..length]).then_some(length)
            }
            Hole::Name => {
                let length = memchr(b'"', data)?;
                memchr(b'\\', &data[..length]).is_none().then_some(length)
            }
        }
    }

    /// Length of what fills the hole at the back of `data`.
    #[inline]
    fn filled_back(self, data: &[u8]) -> Option<usize> {
        let filled = match self {
            Hole::Number => {
                let digits = data.iter().rev().take_while(|byte| byte.is_ascii_digit());
                &data[data.len() - digits.count()..]
            }
            Hole::Name => &data[memrchr(b'"', data)? + 1..],
        };
        let fits = match self {
            Hole::Number => is_number(filled),
            Hole::Name => memchr(b'\\', filled).is_none(),
        };
        fits.then_some(filled.len())
    }

    /// What follows it in the chunk it is learned from: else it is not whole there.
    fn ends_before(self, next: Option<&u8>) -> bool {
        match self {
            Hole::Number => matches!(next, Some(b',' | b'}')),
            Hole::Name => next == Some(&b'"'),
        }
    }
}

/// What may differ in a part of a chunk, in order.
fn varying(part: &[u8]) -> Vec<(Range<usize>, Hole)> {
    let numbers = NUMBERS.map(|key| (key, Hole::Number));
    let names = NAMES.map(|key| (key, Hole::Name));
    let mut found: Vec<_> = numbers
        .into_iter()
        .chain(names)
        .flat_map(|(key, hole)| {
            let starts = memmem::find_iter(part, key).map(move |at| at + key.len());
            starts.filter_map(move |start| {
                let end = start + hole.filled_front(&part[start..])?;
                hole.ends_before(part.get(end))
                    .then_some((start..end, hole))
            })
        })
        .collect();
    found.sort_by_key(|(range, _)| range.start);
    found
}

/// Appends a part of a chunk less what may differ; gives the holes.
fn cut_out(part: &[u8], frame: &mut Vec<u8>) -> Vec<Place> {
    let mut holes = Vec::new();
    let mut from = 0;
    for (range, hole) in varying(part) {
        frame.extend_from_slice(&part[from..range.start]);
        let at = frame.len();
        holes.push(Place { at, hole });
        from = range.end;
    }
    frame.extend_from_slice(&part[from..]);
    holes
}

/// True if `body`, which follows an opening quote, holds no quote that would close the string and
/// does not end in an escape.
#[inline]
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
    /// The frame of a chunk whose only output is `output`, a slice of `data` without escapes; `None` if it is too long.
    pub fn learn(data: &[u8], output: &str, choice: u32, kind: ChunkKind) -> Option<Template> {
        let start = (output.as_ptr() as usize).wrapping_sub(data.as_ptr() as usize);
        let end = start.checked_add(output.len())?;
        if end >= data.len() || data.len() - output.len() > FRAME_BYTES {
            return None;
        }
        let mut frame = Vec::with_capacity(data.len() - output.len());
        let front = cut_out(&data[..start], &mut frame);
        let output_at = frame.len();
        let mut back = cut_out(&data[end..], &mut frame);
        back.reverse();
        (front.len() + back.len() <= HOLES).then(|| Template {
            frame: frame.into(),
            output_at,
            front: front.into(),
            back: back.into(),
            choice,
            kind,
        })
    }

    /// Index of the choice it is of.
    pub fn choice(&self) -> u32 {
        self.choice
    }

    /// Kind of its output.
    pub fn kind(&self) -> ChunkKind {
        self.kind
    }

    /// What an event carries that differs from the chunk learned from in its holes alone.
    #[inline]
    pub fn skim(&self, data: &[u8]) -> Option<Skimmed> {
        let rest = self.after_front(data)?;
        let body = self.before_back(rest)?;
        stays_inside_string(body).then_some(Skimmed {
            choice: self.choice,
            kind: self.kind,
            empty: body.is_empty(),
        })
    }

    #[inline]
    fn after_front<'a>(&self, mut data: &'a [u8]) -> Option<&'a [u8]> {
        let mut from = 0;
        for place in &self.front {
            data = data.strip_prefix(&self.frame[from..place.at])?;
            data = &data[place.hole.filled_front(data)?..];
            from = place.at;
        }
        data.strip_prefix(&self.frame[from..self.output_at])
    }

    #[inline]
    fn before_back<'a>(&self, mut data: &'a [u8]) -> Option<&'a [u8]> {
        let mut to = self.frame.len();
        for place in &self.back {
            data = data.strip_suffix(&self.frame[place.at..to])?;
            data = &data[..data.len() - place.hole.filled_back(data)?];
            to = place.at;
        }
        data.strip_suffix(&self.frame[self.output_at..to])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const CHUNK: &str = "{\"id\":\"c-1\",\"created\":17,\"choices\":[{\"index\":0,\"delta\":{\"content\":\"OUT\"},\
                         \"finish_reason\":null}],\"obfuscation\":\"xy\",\"sequence_number\":4}";

    fn learned(chunk: &str) -> Template {
        let at = chunk.find("OUT").unwrap();
        Template::learn(chunk.as_bytes(), &chunk[at..at + 3], 0, ChunkKind::Text).unwrap()
    }

    fn empty(template: &Template, chunk: &str) -> Option<bool> {
        template.skim(chunk.as_bytes()).map(|skimmed| skimmed.empty)
    }

    #[test]
    fn what_holes_hold_may_differ() {
        let template = learned(CHUNK);
        let other = CHUNK
            .replace("c-1", "chatcmpl-77")
            .replace("17", "1800000000")
            .replace("xy", "")
            .replace(":4}", ":12}");
        assert_eq!(empty(&template, &other), Some(false));
        let nasty = other.replace("OUT", "\\\"id\\\":\\\"\\\\");
        assert_eq!(empty(&template, &nasty), Some(false));
        assert_eq!(empty(&template, &other.replace("OUT", "")), Some(true));
        assert_eq!(
            learned(CHUNK),
            learned(&other),
            "one frame for both streams"
        );
    }

    #[test]
    fn what_is_no_other_value_of_a_hole_does_not_fit() {
        let template = learned(CHUNK);
        let odd = [
            ("\"c-1\"", "\"c-1\",\"usage\":\"x\""),
            ("\"c-1\"", "\"c-1\\\""),
            ("17", "017"),
            ("17", ""),
            ("17", "1.5"),
            ("\"xy\"", "\"xy\\\""),
            ("\"xy\"", "\"\\\\\""),
            (":4}", ":04}"),
            (":4}", ":4,\"error\":{}}"),
            ("null", "\"stop\""),
            ("OUT\"", "OUT\",\"x\":\"\""),
            ("OUT\"", "OUT\\\""),
        ];
        for (from, to) in odd {
            let chunk = CHUNK.replace(from, to);
            assert_ne!(chunk, CHUNK);
            assert_eq!(empty(&template, &chunk), None, "{chunk}");
        }
    }

    #[test]
    fn a_long_frame_and_one_of_many_holes_are_not_kept() {
        let long = CHUNK
            .replace("c-1", "c")
            .replace("null", &"1".repeat(FRAME_BYTES));
        let many = CHUNK.replace(
            "null",
            &format!("[{}]", ["{\"id\":\"x\"}"; HOLES].join(",")),
        );
        for chunk in [long, many] {
            let at = chunk.find("OUT").unwrap();
            let output = &chunk[at..at + 3];
            assert!(Template::learn(chunk.as_bytes(), output, 0, ChunkKind::Text).is_none());
        }
    }
}
