//! What is planned for each request, by seed and number: what is asked, what goes wrong with it on the
//! way, and how its client behaves.

use std::time::Duration;

use bytes::Bytes;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::support::client::Ask;
use crate::support::fault::{Act, At, Fault};
use crate::support::reply::{DONE, ms, role_event, text_event};

/// What goes wrong between Evenkeel and the instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    None,
    DelayedRequest,
    DelayedHead,
    DelayedBody,
    TrickledHead,
    TrickledBody,
    InterimHeads,
    CloseBeforeHead,
    ResetBeforeHead,
    CloseInHead,
    ResetInHead,
    GarbageHead,
    HugeHead,
    CloseInBody,
    ResetInBody,
    HalfCloseInBody,
    HalfCloseOfRequest,
    RequestCut,
    RequestReset,
    SwallowedRequest,
    SwallowedHead,
    SwallowedBody,
    GarbledChunk,
    SecondAnswer,
    CloseAfterAnswer,
    Status500,
    Status400,
    BusyOnce,
    BusyEverywhere,
    ErrorEvent,
}

/// How often each kind is drawn, in parts of their sum.
const KINDS: [(Kind, u32); 30] = [
    (Kind::None, 300),
    (Kind::DelayedRequest, 30),
    (Kind::DelayedHead, 30),
    (Kind::DelayedBody, 30),
    (Kind::TrickledHead, 30),
    (Kind::TrickledBody, 30),
    (Kind::InterimHeads, 30),
    (Kind::CloseBeforeHead, 30),
    (Kind::ResetBeforeHead, 30),
    (Kind::CloseInHead, 15),
    (Kind::ResetInHead, 15),
    (Kind::GarbageHead, 15),
    (Kind::HugeHead, 10),
    (Kind::CloseInBody, 40),
    (Kind::ResetInBody, 40),
    (Kind::HalfCloseInBody, 20),
    (Kind::HalfCloseOfRequest, 20),
    (Kind::RequestCut, 20),
    (Kind::RequestReset, 20),
    // each of these takes a whole timeout
    (Kind::SwallowedRequest, 3),
    (Kind::SwallowedHead, 3),
    (Kind::SwallowedBody, 5),
    (Kind::GarbledChunk, 30),
    (Kind::SecondAnswer, 40),
    (Kind::CloseAfterAnswer, 40),
    (Kind::Status500, 20),
    (Kind::Status400, 20),
    (Kind::BusyOnce, 30),
    (Kind::BusyEverywhere, 10),
    (Kind::ErrorEvent, 20),
];

/// How the client behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Conduct {
    /// reads to the end
    Stay,
    /// the same, with pauses
    ReadSlowly,
    /// closes as soon as the request is written
    LeaveAtOnce,
    /// closes while its request body is not whole
    LeaveInRequest,
    /// closes when the request has reached an instance, which stays silent
    LeaveBeforeHead,
    /// ends its writing side then
    HalfClose,
    /// closes after some of the body, the rest of which does not come
    LeaveMidStream,
    /// closes at some byte of the body, while more may come
    LeaveSomewhere,
    /// waits, with a silent instance, until it is told to leave
    Hold,
}

const CONDUCTS: [(Conduct, u32); 8] = [
    (Conduct::Stay, 760),
    (Conduct::ReadSlowly, 40),
    (Conduct::LeaveAtOnce, 25),
    (Conduct::LeaveInRequest, 25),
    (Conduct::LeaveBeforeHead, 40),
    (Conduct::HalfClose, 20),
    (Conduct::LeaveMidStream, 50),
    (Conduct::LeaveSomewhere, 40),
];

/// Different prompts; each has its own answer.
pub const PROMPTS: usize = 48;
/// Body bytes after which nothing comes, where a client leaves in mid-stream: inside the first events.
const HOLE_BYTES: u64 = 260;
/// Body bytes after which that client leaves.
pub const LEAVE_BYTES: u64 = 200;

/// The plan of one request.
#[derive(Debug, Clone)]
pub struct Plan {
    pub id: String,
    pub http2: bool,
    pub stream: bool,
    pub prompt: usize,
    pub kind: Kind,
    pub conduct: Conduct,
    /// an offset, for kinds and conducts that need one
    pub offset: u64,
    /// the client closes by RST, or drops the whole HTTP/2 connection
    pub roughly: bool,
}

impl Plan {
    /// The plan of request `number`.
    pub fn of(seed: u64, number: usize) -> Plan {
        let http2 = number % 5 == 4;
        let mix = seed ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(mix);
        let mut conduct = draw(&mut rng, &CONDUCTS);
        if http2 && matches!(conduct, Conduct::LeaveInRequest | Conduct::HalfClose) {
            conduct = Conduct::LeaveBeforeHead;
        }
        let kind = match conduct {
            Conduct::Stay => draw(&mut rng, &KINDS),
            _ => Kind::None,
        };
        Plan {
            id: format!("chaos-{number}"),
            http2,
            // an error event, and a body of some length, need a stream
            stream: rng.random_ratio(3, 4)
                || kind == Kind::ErrorEvent
                || conduct == Conduct::LeaveMidStream,
            prompt: rng.random_range(0..PROMPTS),
            kind,
            conduct,
            offset: rng.random_range(0..2000),
            roughly: rng.random(),
        }
    }

    /// A request that is held until its client is told to leave.
    pub fn held(number: usize) -> Plan {
        Plan {
            conduct: Conduct::Hold,
            kind: Kind::None,
            ..Plan::of(0, number)
        }
    }

    /// The request.
    pub fn ask(&self) -> Ask {
        Ask::post("/v1/chat/completions", self.body()).id(&self.id)
    }

    /// Its body.
    pub fn body(&self) -> String {
        body(self.prompt, self.stream)
    }

    /// What befalls it when it comes through a fault proxy for the `time`-th time, from 0.
    pub fn fault(&self, time: usize) -> Fault {
        let none = Fault::none;
        match self.conduct {
            Conduct::LeaveBeforeHead | Conduct::HalfClose | Conduct::Hold => {
                return none().down(At::Byte(0), Act::BlackHole);
            }
            Conduct::LeaveMidStream => {
                return none().down(At::Body(HOLE_BYTES), Act::BlackHole);
            }
            _ => {}
        }
        let in_head = At::Byte(1 + self.offset % 60);
        let in_body = At::Body(self.offset);
        // the shortest request is longer
        let in_request = At::Byte(1 + self.offset % 200);
        let wait = Act::Delay(ms(1 + self.offset % 8));
        let answer = |text: String| none().up(At::Byte(0), Act::Answer(text.into()));
        match self.kind {
            Kind::None => none(),
            Kind::DelayedRequest => none().up(in_request, wait),
            Kind::DelayedHead => none().down(At::Byte(0), wait),
            Kind::DelayedBody => none().down(in_body, wait),
            Kind::TrickledHead => none().down(At::Byte(0), trickle(7, 0)),
            Kind::TrickledBody => none().down(At::Body(0), trickle(150, 1)),
            Kind::InterimHeads => none().down(At::Byte(0), Act::Insert(INTERIM)),
            Kind::CloseBeforeHead => none().up(At::End, Act::Close),
            Kind::ResetBeforeHead => none().up(At::End, Act::Reset),
            Kind::CloseInHead => none().down(in_head, Act::Close),
            Kind::ResetInHead => none().down(in_head, Act::Reset),
            Kind::GarbageHead => answer_raw("SMTP/9 220 hello\r\nwhat: ever\r\n\r\n".to_owned()),
            Kind::HugeHead => answer_raw(huge_head()),
            Kind::CloseInBody => none().down(in_body, Act::Close),
            Kind::ResetInBody => none().down(in_body, Act::Reset),
            Kind::HalfCloseInBody => none().down(in_body, Act::HalfClose),
            Kind::HalfCloseOfRequest => none().up(At::End, Act::HalfClose),
            Kind::RequestCut => none().up(in_request, Act::Close),
            Kind::RequestReset => none().up(in_request, Act::Reset),
            Kind::SwallowedRequest => none().up(in_request, Act::BlackHole),
            Kind::SwallowedHead => none().down(At::Byte(0), Act::BlackHole),
            Kind::SwallowedBody => none().down(At::Body(self.offset % 400), Act::BlackHole),
            Kind::GarbledChunk => none().down(in_body, Act::Garble),
            Kind::SecondAnswer => none().down(At::End, Act::Insert(second_answer())),
            Kind::CloseAfterAnswer => none().down(At::End, Act::Close),
            Kind::Status500 => answer(status("500 Internal Server Error")),
            Kind::Status400 => answer(status("400 Bad Request")),
            Kind::BusyOnce if time > 0 => none(),
            Kind::BusyOnce => answer(status("503 Service Unavailable")),
            Kind::BusyEverywhere => answer(status("429 Too Many Requests")),
            Kind::ErrorEvent => answer(self.error_stream()),
        }
    }

    /// A stream that says in its midst that the engine failed, and ends clean.
    fn error_stream(&self) -> String {
        let error = "data: {\"error\":{\"message\":\"planned\",\"code\":500}}\n\n".to_owned();
        let mut text = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
        for event in [role_event(), text_event("a"), error, DONE.to_owned()] {
            text += &format!("{:x}\r\n{event}\r\n", event.len());
        }
        text + "0\r\n\r\n"
    }
}

/// The body of a request with that prompt.
pub fn body(prompt: usize, stream: bool) -> String {
    let tokens = 1 + prompt % 12;
    let padding = "and so on ".repeat(1 + prompt % 5 * 10);
    format!(
        "{{\"model\":\"test-fast\",\"stream\":{stream},\"ignore_eos\":true,\"max_tokens\":{tokens},\"messages\":[{{\"role\":\"user\",\"content\":\"prompt {prompt} {padding}\"}}]}}"
    )
}

const INTERIM: Bytes = Bytes::from_static(
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n",
);

fn trickle(bytes: usize, every_ms: u64) -> Act {
    let every = Duration::from_millis(every_ms);
    Act::Trickle { bytes, every }
}

fn status(line: &str) -> String {
    let body = "{\"error\":{\"message\":\"planned\"}}";
    let length = body.len();
    format!(
        "HTTP/1.1 {line}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// Bytes in place of a head; the instance is not asked.
fn answer_raw(text: String) -> Fault {
    Fault::none().up(At::Byte(0), Act::Answer(text.into()))
}

fn huge_head() -> String {
    format!(
        "HTTP/1.1 200 OK\r\nx-padding: {}\r\n\r\n",
        "x".repeat(64 << 10)
    )
}

/// An answer nobody asked for, of a kind that would be believed.
fn second_answer() -> Bytes {
    let body = "{\"id\":\"spliced\"}";
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into()
}

fn draw<T: Copy>(rng: &mut Xoshiro256PlusPlus, weighed: &[(T, u32)]) -> T {
    let sum = weighed.iter().map(|(_, weight)| weight).sum();
    let mut at = rng.random_range(0..sum);
    for (value, weight) in weighed {
        if at < *weight {
            return *value;
        }
        at -= weight;
    }
    weighed[0].0
}
