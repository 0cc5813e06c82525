//! One connection through a fault proxy: two directions, each of which follows its framing and does
//! what the plan says at each byte.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc;

use super::fault::{Act, At, Step};
use super::fault_proxy::{Passing, Shared};
use super::http1::{BodyReader, Framing, Head, find};

/// How an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// the whole answer was passed on
    Whole,
    /// closed by the plan
    Closed,
    /// reset by the plan
    Reset,
    /// the instance's death took the connection along
    Killed,
    /// Evenkeel closed
    NearLeft,
    /// the instance closed
    FarLeft,
}

/// The exchange under way on a connection, as both directions see it.
#[derive(Default)]
struct Exchange {
    number: Option<usize>,
    down: VecDeque<Step>,
    head_only: bool,
    /// told the other direction that a new exchange began
    fresh: bool,
}

/// A connection.
pub(super) struct Pipe {
    shared: Arc<Shared>,
    connection: usize,
    exchange: Mutex<Exchange>,
}

impl Pipe {
    pub(super) fn new(shared: Arc<Shared>, connection: usize) -> Pipe {
        Pipe {
            shared,
            connection,
            exchange: Mutex::default(),
        }
    }

    /// Runs until one side or the plan ends it, or `killed` does.
    pub(super) async fn run(
        self,
        mut near: TcpStream,
        mut far: TcpStream,
        killed: impl Future<Output = ()>,
    ) {
        let (answers, inbox) = mpsc::unbounded_channel();
        let end = {
            let (near_read, near_write) = near.split();
            let (far_read, far_write) = far.split();
            let mut up = Up {
                pipe: &self,
                way: Way::new(far_write),
                answers,
                reuse: 0,
            };
            let mut down = Down {
                pipe: &self,
                way: Way::new(near_write),
                inbox,
            };
            tokio::select! {
                end = up.run(near_read) => end,
                end = down.run(far_read) => end,
                () = killed => Ending::Killed,
            }
        };
        if let Some(number) = self.exchange.lock().number {
            self.shared.end(number, end);
        }
        if matches!(end, Ending::Reset | Ending::Killed) {
            let _ = near.set_zero_linger();
            let _ = far.set_zero_linger();
        }
    }

    fn number(&self) -> Option<usize> {
        self.exchange.lock().number
    }
}

/// What a direction does next, beside writing.
enum Turn {
    On,
    End(Ending),
}

/// Where a direction is in the bytes of its exchange, and what is to happen to them.
struct Way<'a> {
    to: WriteHalf<'a>,
    steps: VecDeque<Step>,
    offset: u64,
    head_bytes: Option<u64>,
    trickle: Option<(usize, Duration)>,
    garble: bool,
    /// nothing more is passed on
    shut: bool,
    /// the request is not the instance's: answered in its place
    answer: Option<Bytes>,
    struck: usize,
}

impl<'a> Way<'a> {
    fn new(to: WriteHalf<'a>) -> Way<'a> {
        Way {
            to,
            steps: VecDeque::new(),
            offset: 0,
            head_bytes: None,
            trickle: None,
            garble: false,
            shut: false,
            answer: None,
            struck: 0,
        }
    }

    fn begin(&mut self, steps: VecDeque<Step>) {
        self.steps = steps;
        (self.offset, self.head_bytes, self.struck) = (0, None, 0);
        (self.trickle, self.garble, self.shut) = (None, false, false);
    }

    /// Passes bytes on, doing what is due before each of them.
    async fn pass(&mut self, mut bytes: &[u8]) -> Turn {
        loop {
            let due = self.steps.front().and_then(|step| self.place(step.at));
            let before = match due {
                Some(place) if place < self.offset + bytes.len() as u64 => {
                    place.saturating_sub(self.offset) as usize
                }
                _ => bytes.len(),
            };
            let (now, later) = bytes.split_at(before);
            if let Turn::End(end) = self.write(now).await {
                return Turn::End(end);
            }
            bytes = later;
            if bytes.is_empty() {
                return Turn::On;
            }
            if let Turn::End(end) = self.strike().await {
                return Turn::End(end);
            }
        }
    }

    /// The last byte was passed on: does what is due after it.
    async fn finish(&mut self) -> Turn {
        while self.steps.front().is_some_and(|step| step.at == At::End) {
            if let Turn::End(end) = self.strike().await {
                return Turn::End(end);
            }
        }
        Turn::On
    }

    /// Adds what is to be inserted after the last byte.
    fn take_inserts(&mut self, bytes: &mut BytesMut) {
        let inserts = |step: &mut Step| step.at == At::End && matches!(step.act, Act::Insert(_));
        while let Some(step) = self.steps.pop_front_if(inserts) {
            if let Act::Insert(more) = step.act {
                bytes.extend_from_slice(&more);
                self.struck += 1;
            }
        }
    }

    fn place(&self, at: At) -> Option<u64> {
        match at {
            At::Byte(n) => Some(n),
            At::Body(n) => Some(self.head_bytes? + n),
            At::End => None,
        }
    }

    async fn strike(&mut self) -> Turn {
        let Some(step) = self.steps.pop_front() else {
            return Turn::On;
        };
        // what is garbled counts once it is
        self.struck += usize::from(!matches!(step.act, Act::Garble));
        match step.act {
            Act::Delay(time) => tokio::time::sleep(time).await,
            Act::Trickle { bytes, every } => self.trickle = Some((bytes, every)),
            Act::Close => return Turn::End(Ending::Closed),
            Act::Reset => return Turn::End(Ending::Reset),
            Act::HalfClose => {
                let _ = self.to.shutdown().await;
                self.shut = true;
            }
            Act::BlackHole => self.shut = true,
            Act::Insert(bytes) => {
                let _ = self.to.write_all(&bytes).await;
            }
            Act::Garble => self.garble = true,
            Act::Answer(bytes) => (self.shut, self.answer) = (true, Some(bytes)),
        }
        Turn::On
    }

    async fn write(&mut self, bytes: &[u8]) -> Turn {
        self.offset += bytes.len() as u64;
        if self.shut || bytes.is_empty() {
            return Turn::On;
        }
        let garbled;
        let bytes = match self.garble.then(|| garble(bytes)).flatten() {
            Some(other) => {
                self.garble = false;
                self.struck += 1;
                garbled = other;
                &garbled[..]
            }
            None => bytes,
        };
        let (most, every) = self.trickle.unwrap_or((bytes.len(), Duration::ZERO));
        for (at, piece) in bytes.chunks(most).enumerate() {
            // not after the last piece: the next exchange may begin then
            if at > 0 && every.is_zero() {
                tokio::task::yield_now().await;
            } else if at > 0 {
                tokio::time::sleep(every).await;
            }
            if self.to.write_all(piece).await.is_err() {
                // whoever left is seen by the read of its side
                self.shut = true;
                return Turn::On;
            }
        }
        Turn::On
    }
}

/// The same bytes with a chunk's size that is none, if a later chunk begins in them.
fn garble(bytes: &[u8]) -> Option<Vec<u8>> {
    // an event ends in a line feed, then comes the chunk's own line end
    let at = find(bytes, b"\n\r\n")? + 3;
    let mut other = bytes.to_vec();
    *other.get_mut(at)? = b'z';
    Some(other)
}

/// From Evenkeel to the instance.
struct Up<'a> {
    pipe: &'a Pipe,
    way: Way<'a>,
    answers: mpsc::UnboundedSender<Bytes>,
    reuse: usize,
}

impl Up<'_> {
    async fn run(&mut self, mut from: ReadHalf<'_>) -> Ending {
        let mut buffer = BytesMut::new();
        let mut body: Option<BodyReader> = None;
        loop {
            if let Some(reader) = &mut body {
                let raw = take_body(reader, &mut buffer);
                if let Turn::End(end) = self.way.pass(&raw).await {
                    return end;
                }
                if reader.is_done() {
                    body = None;
                    if let Turn::End(end) = self.ended().await {
                        return end;
                    }
                    continue;
                }
            } else if let Some(head) = Head::take(&mut buffer) {
                body = Some(BodyReader::new(head.request_framing()));
                if let Turn::End(end) = self.head(head).await {
                    return end;
                }
                continue;
            }
            match from.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return Ending::NearLeft,
                Ok(_) => {}
            }
        }
    }

    async fn head(&mut self, head: Head) -> Turn {
        let (raw, head_only) = (head.raw.clone(), head.method() == "HEAD");
        let passing = Passing {
            connection: self.pipe.connection,
            reuse: self.reuse,
            head,
        };
        self.reuse += 1;
        let (number, fault) = self.pipe.shared.begin(&passing);
        *self.pipe.exchange.lock() = Exchange {
            number: Some(number),
            down: fault.down,
            head_only,
            fresh: true,
        };
        self.way.begin(fault.up);
        self.way.head_bytes = Some(raw.len() as u64);
        self.way.pass(&raw).await
    }

    async fn ended(&mut self) -> Turn {
        let turn = self.way.finish().await;
        self.note();
        if let Some(answer) = self.way.answer.take() {
            let _ = self.answers.send(answer);
        }
        turn
    }

    fn note(&self) {
        let struck = self.way.struck;
        if let Some(number) = self.pipe.number() {
            self.pipe.shared.note(number, |one| one.struck += struck);
        }
    }
}

/// From the instance to Evenkeel.
struct Down<'a> {
    pipe: &'a Pipe,
    way: Way<'a>,
    inbox: mpsc::UnboundedReceiver<Bytes>,
}

impl Down<'_> {
    async fn run(&mut self, mut from: ReadHalf<'_>) -> Ending {
        let mut buffer = BytesMut::new();
        let mut body: Option<BodyReader> = None;
        loop {
            self.begin_if_fresh();
            let turn = match &mut body {
                Some(reader) => {
                    let raw = take_body(reader, &mut buffer);
                    let done = reader.is_done();
                    let turn = self.body(&raw, done).await;
                    if done {
                        body = None;
                    }
                    (done || !raw.is_empty()).then_some(turn)
                }
                None => match Head::take(&mut buffer) {
                    Some(head) => {
                        let framing = head.response_framing(self.pipe.exchange.lock().head_only);
                        let interim = head.status() < 200;
                        body = (!interim).then(|| BodyReader::new(framing));
                        let bodiless = framing == Framing::Length(0) && !interim;
                        let turn = self.head(&head, interim).await;
                        if bodiless {
                            body = None;
                            Some(match turn {
                                Turn::On => self.body(&[], true).await,
                                end => end,
                            })
                        } else {
                            Some(turn)
                        }
                    }
                    None => None,
                },
            };
            match turn {
                Some(Turn::End(end)) => return end,
                Some(Turn::On) => continue,
                None => {}
            }
            tokio::select! {
                Some(answer) = self.inbox.recv() => buffer.extend_from_slice(&answer),
                read = from.read_buf(&mut buffer) => match read {
                    Ok(0) | Err(_) if self.way.shut => std::future::pending().await,
                    Ok(0) | Err(_) => return Ending::FarLeft,
                    Ok(_) => {}
                },
            }
        }
    }

    fn begin_if_fresh(&mut self) {
        let mut exchange = self.pipe.exchange.lock();
        if std::mem::take(&mut exchange.fresh) {
            let steps = std::mem::take(&mut exchange.down);
            drop(exchange);
            self.way.begin(steps);
        }
    }

    async fn head(&mut self, head: &Head, interim: bool) -> Turn {
        let turn = self.way.pass(&head.raw).await;
        if matches!(turn, Turn::On) && !interim {
            self.way.head_bytes = Some(self.way.offset);
        }
        self.note();
        turn
    }

    async fn body(&mut self, raw: &[u8], done: bool) -> Turn {
        let mut raw = BytesMut::from(raw);
        if done {
            // in one write with the end: once they are apart, no client can tell whose they are
            self.way.take_inserts(&mut raw);
        }
        let mut turn = self.way.pass(&raw).await;
        self.note();
        if let (true, false, Turn::On, Some(number)) =
            (done, self.way.shut, &turn, self.pipe.number())
        {
            self.pipe.shared.end(number, Ending::Whole);
        }
        if done && matches!(turn, Turn::On) {
            turn = self.way.finish().await;
            self.note();
        }
        turn
    }

    /// Brings the log up to date.
    fn note(&self) {
        let Some(number) = self.pipe.number() else {
            return;
        };
        let way = &self.way;
        self.pipe.shared.note(number, |one| {
            one.struck = one.struck.max(way.struck);
            if !way.shut {
                (one.down_bytes, one.head_bytes) = (way.offset, way.head_bytes);
            }
        });
    }
}

/// The raw bytes of a body that lie in `buffer`, taken off it.
fn take_body(reader: &mut BodyReader, buffer: &mut BytesMut) -> Bytes {
    let mut left = buffer.clone();
    reader.feed(&mut left, &mut Vec::new());
    buffer.split_to(buffer.len() - left.len()).freeze()
}
