//! The event-stream scanner: bytes in, events out, whatever the reads cut apart.
//!
//! An event that lies wholly inside one read is handed out as a slice of that read. Only the
//! unfinished part of an event is copied, into one buffer that is used again. Every byte is looked
//! at once, so the time is linear in the bytes however they are split.

use memchr::memchr2;

/// Longest field prefix that must be seen to know a line: a byte order mark and `event: `.
const HEAD_BYTES: usize = 10;
/// A buffer that grew past this for one long event is given back after it.
const KEEP_BYTES: usize = 16 * 1024;
/// Event names past this are cut; the longest in use are about 40 bytes.
const NAME_BYTES: usize = 128;
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// What the scanner found.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A dispatched event with non-empty data.
    Event {
        /// `event:` field, if one was given
        name: Option<&'a [u8]>,
        /// the data lines, joined with LF
        data: &'a [u8],
        /// offset in this read just past the event
        end_offset: usize,
    },
    /// A comment line.
    Comment,
}

/// The part of a line that has been seen in earlier reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// fewer than `HEAD_BYTES` bytes so far, kept in `head`
    Head,
    Data,
    Name,
    /// comment, unknown field, or the rest of an event past the cap
    Ignored,
}

/// Incremental parser of one event stream.
#[derive(Debug)]
pub struct Scanner {
    cap_bytes: usize,
    head: [u8; HEAD_BYTES],
    head_len: usize,
    line: Line,
    /// joined data lines that came in earlier reads, or several lines of one event
    data: Vec<u8>,
    has_data: bool,
    name: Vec<u8>,
    has_name: bool,
    /// the last byte was a CR: an LF now belongs to it
    after_cr: bool,
    first_line: bool,
    skipping: bool,
    unmeasured: bool,
}

/// Slices of the current read that belong to the event under way.
#[derive(Default)]
struct Borrowed<'a> {
    data: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
}

enum Field<'a> {
    Data(&'a [u8]),
    Name(&'a [u8]),
    Comment,
    Other,
}

/// Reads a line: the field name up to the colon, the value less one leading space.
fn field(line: &[u8]) -> Field<'_> {
    let value = |rest: &'_ [u8]| -> usize { usize::from(rest.first() == Some(&b' ')) };
    if let Some(rest) = line.strip_prefix(b"data:") {
        return Field::Data(&rest[value(rest)..]);
    }
    if let Some(rest) = line.strip_prefix(b"event:") {
        return Field::Name(&rest[value(rest)..]);
    }
    match line {
        [b':', ..] => Field::Comment,
        b"data" => Field::Data(b""),
        b"event" => Field::Name(b""),
        _ => Field::Other,
    }
}

impl Scanner {
    /// A scanner that holds at most `cap_bytes` of one unfinished event.
    pub fn new(cap_bytes: usize) -> Scanner {
        Scanner {
            cap_bytes,
            head: [0; HEAD_BYTES],
            head_len: 0,
            line: Line::Head,
            data: Vec::new(),
            has_data: false,
            name: Vec::new(),
            has_name: false,
            after_cr: false,
            first_line: true,
            skipping: false,
            unmeasured: false,
        }
    }

    /// True once an event was longer than the cap and had to be skipped.
    pub fn unmeasured(&self) -> bool {
        self.unmeasured
    }

    /// True where the next byte begins an event: nothing of one has been seen yet.
    pub fn is_between_events(&self) -> bool {
        let line_begins = self.line == Line::Head && self.head_len == 0 && !self.after_cr;
        line_begins && !self.has_data && !self.has_name && !self.skipping && !self.first_line
    }

    /// Bytes held for the unfinished event (capacity, not length).
    pub fn held_bytes(&self) -> usize {
        self.data.capacity() + self.name.capacity()
    }

    /// Takes one read and hands out what it completes.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut impl FnMut(Item<'_>)) {
        let mut borrowed = Borrowed::default();
        let mut at = 0;
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            at = usize::from(bytes[0] == b'\n');
        }
        while at < bytes.len() {
            let rest = &bytes[at..];
            let length = match rest[0] {
                b'\n' | b'\r' => Some(0),
                _ => memchr2(b'\n', b'\r', rest),
            };
            let Some(length) = length else {
                self.partial(rest, &mut borrowed, sink);
                break;
            };
            at += length + self.line_end_bytes(&rest[length..]);
            self.line(&rest[..length], at, &mut borrowed, sink);
        }
        self.spill(borrowed);
    }

    /// The body ended. At a clean end an unfinished line and event are dispatched.
    pub fn end(&mut self, clean: bool, sink: &mut impl FnMut(Item<'_>)) {
        if clean {
            let mut borrowed = Borrowed::default();
            if self.head_len > 0 || self.line != Line::Head {
                self.line(b"", 0, &mut borrowed, sink);
                self.spill(borrowed);
            }
            self.dispatch(0, &mut Borrowed::default(), sink);
        }
        self.reset();
    }

    /// Bytes of the line end at the front of `rest`; notes a CR whose LF may come next.
    fn line_end_bytes(&mut self, rest: &[u8]) -> usize {
        if rest[0] == b'\n' {
            return 1;
        }
        match rest.get(1) {
            Some(b'\n') => 2,
            Some(_) => 1,
            None => {
                self.after_cr = true;
                1
            }
        }
    }

    /// A line end was found; `tail` is the part of the line in this read.
    #[inline]
    fn line<'a>(
        &mut self,
        tail: &'a [u8],
        end_offset: usize,
        borrowed: &mut Borrowed<'a>,
        sink: &mut impl FnMut(Item<'_>),
    ) {
        if self.line != Line::Head {
            self.append(tail);
            self.line = Line::Head;
            return;
        }
        if self.head_len > 0 {
            return self.split_line(tail, borrowed, sink);
        }
        let mut line = tail;
        if self.first_line {
            self.first_line = false;
            line = tail.strip_prefix(BOM).unwrap_or(tail);
        }
        if line.is_empty() {
            return self.dispatch(end_offset, borrowed, sink);
        }
        match field(line) {
            Field::Data(value) => self.data_line(value, borrowed),
            Field::Name(value) => {
                self.has_name = false;
                borrowed.name = Some(&value[..value.len().min(NAME_BYTES)]);
            }
            Field::Comment => sink(Item::Comment),
            Field::Other => {}
        }
    }

    /// The end of a line whose first bytes came in an earlier read.
    fn split_line<'a>(
        &mut self,
        tail: &'a [u8],
        borrowed: &mut Borrowed<'a>,
        sink: &mut impl FnMut(Item<'_>),
    ) {
        let taken = self.fill_head(tail);
        self.classify(borrowed, sink);
        self.append(&tail[taken..]);
        self.line = Line::Head;
        // A line that held only a byte order mark is an empty first line: nothing to dispatch yet.
    }

    /// Bytes of a line that does not end in this read.
    fn partial<'a>(
        &mut self,
        bytes: &'a [u8],
        borrowed: &mut Borrowed<'a>,
        sink: &mut impl FnMut(Item<'_>),
    ) {
        if self.line != Line::Head {
            return self.append(bytes);
        }
        let taken = self.fill_head(bytes);
        if self.head_len == HEAD_BYTES {
            self.classify(borrowed, sink);
            self.append(&bytes[taken..]);
        }
    }

    fn fill_head(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(HEAD_BYTES - self.head_len);
        self.head[self.head_len..self.head_len + taken].copy_from_slice(&bytes[..taken]);
        self.head_len += taken;
        taken
    }

    /// Decides what the line under way is from its head, and moves the head where it belongs.
    fn classify(&mut self, borrowed: &mut Borrowed<'_>, sink: &mut impl FnMut(Item<'_>)) {
        let head = self.head;
        let mut line = &head[..self.head_len];
        self.head_len = 0;
        if self.first_line {
            self.first_line = false;
            line = line.strip_prefix(BOM).unwrap_or(line);
        }
        self.line = Line::Ignored;
        match field(line) {
            Field::Data(value) => {
                self.spill_data(borrowed);
                if self.skipping {
                    return;
                }
                if self.has_data {
                    self.push(b"\n");
                }
                self.has_data = true;
                self.line = Line::Data;
                self.append(value);
            }
            Field::Name(value) => {
                borrowed.name = None;
                self.name.clear();
                self.has_name = true;
                self.line = Line::Name;
                self.append(value);
            }
            Field::Comment => sink(Item::Comment),
            Field::Other => {}
        }
    }

    /// Adds bytes to the line under way.
    fn append(&mut self, bytes: &[u8]) {
        match self.line {
            Line::Data => self.push(bytes),
            Line::Name => {
                let room = NAME_BYTES.saturating_sub(self.name.len());
                self.name.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            Line::Head | Line::Ignored => {}
        }
    }

    #[inline]
    fn data_line<'a>(&mut self, value: &'a [u8], borrowed: &mut Borrowed<'a>) {
        if !self.has_data && borrowed.data.is_none() && !self.skipping {
            if value.len() > self.cap_bytes {
                return self.skip();
            }
            borrowed.data = Some(value);
            return;
        }
        self.spill_data(borrowed);
        if !self.skipping {
            self.push(b"\n");
            self.push(value);
        }
    }

    /// Copies into the data buffer, growing it no further than the cap.
    fn push(&mut self, bytes: &[u8]) {
        if self.skipping {
            return;
        }
        let length = self.data.len() + bytes.len();
        if length > self.cap_bytes {
            return self.skip();
        }
        if length > self.data.capacity() {
            let capacity = (self.data.capacity() * 2).clamp(length, self.cap_bytes.max(length));
            self.data.reserve_exact(capacity - self.data.len());
        }
        self.data.extend_from_slice(bytes);
    }

    /// The event is past the cap: drop what is held and ignore the rest of it.
    #[cold]
    fn skip(&mut self) {
        self.data = Vec::new();
        self.has_data = true;
        self.skipping = true;
        self.unmeasured = true;
        if self.line == Line::Data {
            self.line = Line::Ignored;
        }
    }

    fn spill_data(&mut self, borrowed: &mut Borrowed<'_>) {
        if let Some(data) = borrowed.data.take() {
            self.has_data = true;
            self.push(data);
        }
    }

    /// The read is over: copies what of the event under way still points into it.
    fn spill(&mut self, mut borrowed: Borrowed<'_>) {
        self.spill_data(&mut borrowed);
        if let Some(name) = borrowed.name {
            self.has_name = true;
            self.name.clear();
            self.name.extend_from_slice(name);
        }
    }

    /// An empty line: hands out the event, if it has data.
    #[inline]
    fn dispatch(
        &mut self,
        end_offset: usize,
        borrowed: &mut Borrowed<'_>,
        sink: &mut impl FnMut(Item<'_>),
    ) {
        let own_name = self.has_name.then_some(self.name.as_slice());
        let name = borrowed
            .name
            .take()
            .or(own_name)
            .filter(|name| !name.is_empty());
        let data = borrowed.data.take().unwrap_or(&self.data);
        if !data.is_empty() && !self.skipping {
            sink(Item::Event {
                name,
                data,
                end_offset,
            });
        }
        if self.has_data || self.has_name {
            self.reset();
        }
    }

    fn reset(&mut self) {
        self.data.clear();
        if self.data.capacity() > KEEP_BYTES {
            self.data = Vec::new();
        }
        self.name.clear();
        self.has_data = false;
        self.has_name = false;
        self.skipping = false;
        self.head_len = 0;
        self.line = Line::Head;
    }
}
