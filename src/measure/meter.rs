//! What the proxy drives for each response: bytes and stamps in, the answer's figures out.

use evenkeel_policies::shape::Api;
use smallvec::SmallVec;

use super::answer::Reader;
use super::answer::body::Body;
use super::chunk_log::{Chunk, ChunkLog};
use super::clock::Ns;
use super::gap_figures::GapFigures;
use super::gzip::Decoder;
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

/// The meter of one response.
#[derive(Debug)]
pub struct Meter {
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
        Meter {
            api,
            status,
            coding,
            content,
            reader,
            waiting: Waiting::default(),
        }
    }

    /// Chunks of a stream go to `log`.
    pub fn with_log(mut self, log: Option<ChunkLog>) -> Meter {
        self.waiting.log = log.filter(|_| self.reader.answer().streamed);
        self
    }

    /// One upstream read's body bytes. Nothing of `bytes` is kept by reference.
    pub fn read(&mut self, bytes: &[u8], at_ns: Ns) -> Progress {
        let answer = self.reader.answer_mut();
        answer.reads += u64::from(!bytes.is_empty());
        answer.body_bytes += bytes.len() as u64;
        let before = (answer.content_chunks, answer.first_answer_ns.is_some());
        self.take(bytes, at_ns);
        let answer = self.reader.answer_mut();
        let output_chunks = answer.content_chunks - before.0;
        answer.output_reads += u64::from(output_chunks > 0);
        Progress {
            output_chunks: u32::try_from(output_chunks).unwrap_or(u32::MAX),
            first_output: before.0 == 0 && output_chunks > 0,
            answer_started: !before.1 && answer.first_answer_ns.is_some(),
            ended: answer.done_marker,
        }
    }

    fn take(&mut self, bytes: &[u8], at_ns: Ns) {
        let Meter {
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

    /// All chunks read so far have been taken by the client's socket at that time.
    pub fn handed(&mut self, at_ns: Ns) {
        let answer = self.reader.answer_mut();
        self.waiting.handed(&mut answer.client_gaps, at_ns);
    }

    /// The body ended: `clean` if as its framing says.
    pub fn end(&mut self, clean: bool, at_ns: Ns) {
        let Meter {
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

    /// Output chunks so far.
    pub fn output_chunks(&self) -> u64 {
        self.reader.answer().content_chunks
    }

    /// Output tokens so far, where the engine has said.
    pub fn output_tokens_known(&self) -> Option<u64> {
        self.reader.answer().usage.output_tokens
    }

    /// What is known so far.
    pub fn answer(&self) -> &Answer {
        self.reader.answer()
    }

    /// The answer, and the chunk log where kept.
    pub fn finish(self) -> (Answer, Option<ChunkLog>) {
        let (answer, waiting) = self.finish_reading();
        (answer, waiting.into_log())
    }

    /// The answer, and the chunks whose hand-over may still come.
    pub fn finish_reading(self) -> (Answer, Waiting) {
        (self.reader.into_answer(), self.waiting)
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
