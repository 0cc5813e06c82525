//! What the proxy drives for each response: bytes and stamps in, the answer's figures out.
//!
//! Usual chunks are noted ([`Recent`]) and told to the reader some at a time; all else goes to it at once, after them.

use evenkeel_policies::shape::Api;
use memchr::memmem;
use smallvec::SmallVec;

use super::answer::Reader;
use super::answer::body::Body;
use super::chunk_log::{Chunk, ChunkLog};
use super::clock::Ns;
use super::gap_figures::GapFigures;
use super::gzip::Decoder;
use super::recent::{Recent, Took, Usual};
use super::sse::{Item, Scanner};
use super::summary::{Answer, EngineError};

/// Output chunks that may wait for their hand-over stamp before they go to the log without it.
const WAITING_CHUNKS: usize = 64;

/// Limits of one stream's meter.
#[derive(Debug, Clone, Copy)]
pub struct MeterOptions {
    /// bytes held of one unfinished event
    pub scan_cap_bytes: usize,
    /// read the answer; else it is passed on unmeasured
    pub enabled: bool,
}

impl Default for MeterOptions {
    fn default() -> MeterOptions {
        MeterOptions {
            scan_cap_bytes: 4 << 20,
            enabled: true,
        }
    }
}

/// What one read brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// output chunks completed by this read
    pub output_chunks: u32,
    /// the first of the answer is among them
    pub first_output: bool,
    /// the first that is not reasoning is among them
    pub answer_started: bool,
    /// the end marker has been seen, in this read or before
    pub ended: bool,
}

#[derive(Debug)]
enum Coding {
    Plain,
    Packed(Box<Decoder>),
    /// a coding that cannot be read, or one that broke
    Closed,
}

#[derive(Debug)]
enum Content {
    Events(Box<Scanner>),
    Json(Body),
    Opaque,
}

/// Chunks read and not yet taken by the client's socket.
#[derive(Debug, Default)]
pub struct Waiting {
    chunks: SmallVec<[Chunk; 1]>,
    /// hand-over of the last chunk, by choice
    last_handed: SmallVec<[Option<Ns>; 1]>,
    log: Option<ChunkLog>,
}

/// The meter of one response. What every event touches lies together, before what few do.
#[derive(Debug)]
#[repr(C)]
pub struct Meter {
    recent: Recent,
    /// output chunks that the reader knows of
    told_chunks: u64,
    rest: Box<Rest>,
    /// the next byte begins an event, which may be a usual one
    at_event: bool,
    /// chunks wait in `rest` for their hand-over
    rest_waits: bool,
    /// the end marker has been seen
    ended: bool,
}

/// What is told of usual chunks some at a time.
#[derive(Debug)]
struct Rest {
    api: Api,
    status: u16,
    coding: Coding,
    content: Content,
    reader: Reader,
    waiting: Waiting,
}

fn is(content_type: Option<&[u8]>, wanted: &[u8]) -> bool {
    let Some(value) = content_type else {
        return false;
    };
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    value[..end].trim_ascii().eq_ignore_ascii_case(wanted)
}

fn is_json(content_type: Option<&[u8]>) -> bool {
    let Some(value) = content_type else {
        return false;
    };
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    let kind = value[..end].trim_ascii().to_ascii_lowercase();
    kind == b"application/json" || kind.ends_with(b"+json") || kind == b"text/json"
}

fn coding(content_encoding: Option<&[u8]>) -> Coding {
    let Some(value) = content_encoding else {
        return Coding::Plain;
    };
    match value.trim_ascii().to_ascii_lowercase().as_slice() {
        b"" | b"identity" => Coding::Plain,
        b"gzip" | b"x-gzip" => Coding::Packed(Box::new(Decoder::gzip())),
        b"deflate" => Coding::Packed(Box::new(Decoder::deflate())),
        _ => Coding::Closed,
    }
}

impl Meter {
    /// A meter for a response, which decides by the response alone whether it is a stream.
    pub fn new(
        api: Api,
        status: u16,
        content_type: Option<&[u8]>,
        content_encoding: Option<&[u8]>,
        options: &MeterOptions,
    ) -> Meter {
        let streamed = status < 400 && is(content_type, b"text/event-stream");
        let content = if streamed {
            Content::Events(Box::new(Scanner::new(options.scan_cap_bytes)))
        } else if status >= 400 || is_json(content_type) {
            Content::Json(Body::default())
        } else {
            Content::Opaque
        };
        let coding = if options.enabled {
            coding(content_encoding)
        } else {
            Coding::Closed
        };
        let mut reader = Reader::new(api);
        let answer = reader.answer_mut();
        answer.streamed = streamed;
        answer.status = Some(status);
        answer.unmeasured = matches!(coding, Coding::Closed);
        let rest = Rest {
            api,
            status,
            coding,
            content,
            reader,
            waiting: Waiting::default(),
        };
        Meter {
            recent: Recent::new(options.scan_cap_bytes),
            told_chunks: 0,
            rest: Box::new(rest),
            at_event: false,
            rest_waits: false,
            ended: false,
        }
    }

    /// Chunks of a stream go to `log`.
    pub fn with_log(mut self, log: Option<ChunkLog>) -> Meter {
        let streamed = self.rest.reader.answer().streamed;
        self.rest.waiting.log = log.filter(|_| streamed);
        self
    }

    /// The same meter without its shortcut.
    #[cfg(test)]
    pub fn in_full(mut self) -> Meter {
        self.recent = Recent::new(0);
        self
    }

    /// Chunks that the reader does not know of yet.
    #[cfg(test)]
    pub fn noted(&self) -> usize {
        self.recent.count()
    }

    /// One upstream read's body bytes. Nothing of `bytes` is kept by reference.
    #[inline]
    pub fn read(&mut self, bytes: &[u8], at_ns: Ns) -> Progress {
        let before = self.output_chunks();
        let usual_bytes = self.take_usual(bytes, at_ns);
        if usual_bytes < bytes.len() || bytes.is_empty() {
            return self.read_in_full(bytes, usual_bytes, before, at_ns);
        }
        self.recent.count_read(bytes.len());
        Progress {
            output_chunks: u32::try_from(self.output_chunks() - before).unwrap_or(u32::MAX),
            ended: self.ended,
            ..Progress::default()
        }
    }

    /// Notes the usual chunks that come first; gives their bytes.
    #[inline]
    fn take_usual(&mut self, bytes: &[u8], at_ns: Ns) -> usize {
        let mut from = 0;
        while self.at_event {
            match self.recent.take(&bytes[from..], at_ns) {
                Took::All => return bytes.len(),
                Took::UpTo(length) => return from + length,
                Took::Full(length) => {
                    from += length;
                    self.settle();
                }
            }
        }
        from
    }

    /// A read whose bytes from `from` on are not usual chunks alone; `before` output chunks came in earlier reads.
    #[inline(never)]
    fn read_in_full(&mut self, bytes: &[u8], from: usize, before: u64, at_ns: Ns) -> Progress {
        self.settle();
        let answer = self.rest.reader.answer_mut();
        answer.reads += u64::from(!bytes.is_empty());
        answer.body_bytes += bytes.len() as u64;
        let answered = answer.first_answer_ns.is_some();
        self.take_in_full(&bytes[from..], at_ns);
        let output_chunks = self.output_chunks() - before;
        let answer = self.rest.reader.answer_mut();
        answer.output_reads += u64::from(output_chunks > 0);
        Progress {
            output_chunks: u32::try_from(output_chunks).unwrap_or(u32::MAX),
            first_output: before == 0 && output_chunks > 0,
            answer_started: !answered && answer.first_answer_ns.is_some(),
            ended: self.ended,
        }
    }

    /// Takes an event in full, and goes on to usual ones where they follow.
    fn take_in_full(&mut self, mut bytes: &[u8], at_ns: Ns) {
        while !bytes.is_empty() {
            let length = self.unusual_bytes(bytes);
            self.settle();
            self.rest.take(&bytes[..length], at_ns);
            self.look_again();
            bytes = &bytes[length..];
            bytes = &bytes[self.take_usual(bytes, at_ns)..];
        }
    }

    /// Bytes up to where usual chunks may begin.
    fn unusual_bytes(&self, bytes: &[u8]) -> usize {
        if !self.recent.expects() {
            return bytes.len();
        }
        memmem::find(bytes, b"\n\n").map_or(bytes.len(), |at| at + 2)
    }

    /// Tells the reader of the usual chunks noted.
    fn settle(&mut self) {
        if self.recent.count() == 0 {
            return;
        }
        let Rest {
            reader, waiting, ..
        } = &mut *self.rest;
        let reads = self.recent.settle(|template, usual| {
            let Usual {
                arrival_ns,
                handed_ns,
            } = usual;
            reader.usual(template, arrival_ns, &mut |chunk| waiting.push(chunk));
            if let Some(handed_ns) = handed_ns {
                waiting.handed(&mut reader.answer_mut().client_gaps, handed_ns);
            }
        });
        let answer = reader.answer_mut();
        answer.reads += reads.count;
        answer.output_reads += reads.count;
        answer.body_bytes += reads.bytes;
        self.told_chunks = answer.content_chunks;
        self.rest_waits = !waiting.chunks.is_empty();
    }

    /// After `rest` took something: what is usual now.
    fn look_again(&mut self) {
        let Rest {
            coding,
            content,
            reader,
            waiting,
            ..
        } = &*self.rest;
        self.told_chunks = reader.answer().content_chunks;
        self.ended = reader.answer().done_marker;
        self.rest_waits = !waiting.chunks.is_empty();
        if let (Coding::Plain, Content::Events(scanner)) = (coding, content) {
            self.at_event = scanner.is_between_events();
            self.recent.expect(reader.template());
        }
    }

    /// All chunks read so far have been taken by the client's socket at that time.
    #[inline]
    pub fn handed(&mut self, at_ns: Ns) {
        if self.rest_waits || !self.recent.hand(at_ns) {
            self.settle();
            let answer = self.rest.reader.answer_mut();
            self.rest.waiting.handed(&mut answer.client_gaps, at_ns);
            self.rest_waits = false;
        }
    }

    /// The body ended: `clean` if as its framing says.
    pub fn end(&mut self, clean: bool, at_ns: Ns) {
        self.settle();
        self.rest.end(clean, at_ns);
        self.look_again();
        self.at_event = false;
    }

    /// Output chunks so far.
    #[inline]
    pub fn output_chunks(&self) -> u64 {
        self.told_chunks + self.recent.count() as u64
    }

    /// Output tokens so far, where the engine has said.
    pub fn output_tokens_known(&self) -> Option<u64> {
        self.rest.reader.answer().usage.output_tokens
    }

    /// What is known so far.
    pub fn answer(&mut self) -> &Answer {
        self.settle();
        self.rest.reader.answer()
    }

    /// The answer, and the chunk log where kept.
    pub fn finish(self) -> (Answer, Option<ChunkLog>) {
        let (answer, waiting) = self.finish_reading();
        (answer, waiting.into_log())
    }

    /// The answer, and the chunks whose hand-over may still come.
    pub fn finish_reading(mut self) -> (Answer, Waiting) {
        self.settle();
        let rest = *self.rest;
        (rest.reader.into_answer(), rest.waiting)
    }
}

impl Rest {
    fn take(&mut self, bytes: &[u8], at_ns: Ns) {
        let Rest {
            coding,
            content,
            reader,
            waiting,
            ..
        } = self;
        match coding {
            Coding::Plain => scan(content, reader, waiting, bytes, at_ns),
            Coding::Packed(decoder) => {
                let mut plain = |plain: &[u8]| scan(content, reader, waiting, plain, at_ns);
                if decoder.feed(bytes, &mut plain).is_err() {
                    reader.answer_mut().unmeasured = true;
                    *coding = Coding::Closed;
                }
            }
            Coding::Closed => {}
        }
    }

    fn end(&mut self, clean: bool, at_ns: Ns) {
        let Rest {
            api,
            status,
            coding,
            content,
            reader,
            waiting,
        } = self;
        reader.answer_mut().transport_clean = clean;
        match content {
            Content::Events(scanner) => {
                scanner.end(clean, &mut |item| take_item(reader, waiting, item, at_ns));
                end_stream(reader.answer_mut());
            }
            Content::Json(body) => {
                let readable = !matches!(coding, Coding::Closed);
                let read = if readable {
                    body.read(*api)
                } else {
                    Answer::default()
                };
                end_body(reader.answer_mut(), read, *status, clean);
            }
            Content::Opaque => reader.answer_mut().complete = clean,
        }
    }
}

impl Waiting {
    /// All these chunks have been taken by the client's socket at that time.
    pub fn handed(&mut self, client_gaps: &mut GapFigures, at_ns: Ns) {
        for mut chunk in self.chunks.drain(..) {
            let at = (chunk.choice as usize).min(super::answer::CHOICES - 1);
            if self.last_handed.len() <= at {
                self.last_handed.resize(at + 1, None);
            }
            if let Some(last) = self.last_handed[at].replace(at_ns) {
                client_gaps.record(at_ns.saturating_sub(last));
            }
            if let Some(log) = &mut self.log {
                chunk.handed_ns = Some(at_ns);
                log.push(chunk);
            }
        }
    }

    /// The log, with what still waits as not taken.
    pub fn into_log(mut self) -> Option<ChunkLog> {
        self.release();
        self.log
    }

    #[inline]
    fn push(&mut self, chunk: Chunk) {
        if self.chunks.len() == WAITING_CHUNKS {
            self.release();
        }
        self.chunks.push(chunk);
    }

    /// Logs the chunks under wait without a hand-over.
    fn release(&mut self) {
        for chunk in self.chunks.drain(..) {
            // The client's series has a hole: the next hand-over starts it anew.
            let at = (chunk.choice as usize).min(super::answer::CHOICES - 1);
            if let Some(last) = self.last_handed.get_mut(at) {
                *last = None;
            }
            if let Some(log) = &mut self.log {
                log.push(chunk);
            }
        }
    }
}

fn scan(
    content: &mut Content,
    reader: &mut Reader,
    waiting: &mut Waiting,
    bytes: &[u8],
    at_ns: Ns,
) {
    match content {
        Content::Events(scanner) => {
            scanner.feed(bytes, &mut |item| take_item(reader, waiting, item, at_ns));
            reader.answer_mut().unmeasured |= scanner.unmeasured();
        }
        Content::Json(body) => body.push(bytes),
        Content::Opaque => {}
    }
}

#[inline]
fn take_item(reader: &mut Reader, waiting: &mut Waiting, item: Item<'_>, at_ns: Ns) {
    match item {
        Item::Event { name, data, .. } => {
            reader.event(name, data, at_ns, &mut |chunk| waiting.push(chunk));
        }
        Item::Comment => reader.answer_mut().comments += 1,
    }
}

fn end_stream(answer: &mut Answer) {
    let mut seen = answer
        .choices
        .iter()
        .filter(|choice| choice.seen)
        .peekable();
    let finished = seen.peek().is_some() && seen.all(|choice| choice.finish.is_some());
    answer.complete = answer.error.is_none() && (answer.done_marker || finished);
}

fn end_body(answer: &mut Answer, read: Answer, status: u16, clean: bool) {
    answer.usage = read.usage;
    answer.choices = read.choices;
    answer.aborted = read.aborted;
    answer.error = read.error;
    if status >= 400 {
        let error = answer.error.get_or_insert(EngineError {
            code: None,
            kind: None,
        });
        error.code = error.code.or(Some(i64::from(status)));
    }
    answer.complete = clean && answer.error.is_none();
}
