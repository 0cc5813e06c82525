//! The words of a script: what a fake upstream writes, when, and how it ends.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::http1::{LAST_CHUNK, chunk};

/// An answer, step by step. Times count from when the upstream has the whole request.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    /// what is written, in order
    pub steps: Vec<Step>,
    /// what becomes of the connection afterwards
    pub end: End,
}

/// One thing an upstream does.
#[derive(Debug, Clone)]
pub enum Step {
    /// write `bytes` at a time
    Write { at: Duration, bytes: Bytes },
    /// write `bytes` `count` times, at `from`, `from + every`, ...
    Repeat {
        from: Duration,
        every: Duration,
        count: u32,
        bytes: Bytes,
    },
    /// write each piece once the far end is known to have the one before
    Lockstep {
        pieces: Vec<Bytes>,
        arrived: watch::Receiver<u64>,
    },
    /// go on when the gate is open
    Wait(Gate),
}

/// What an upstream does with the connection after its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum End {
    /// serves the next request
    #[default]
    KeepAlive,
    /// closes (FIN)
    Close,
    /// resets (RST)
    Reset,
    /// says nothing more, until the other side closes
    Hold,
    /// the same, and reads nothing either
    HoldDeaf,
}

/// A gate that a test opens.
#[derive(Debug, Clone)]
pub struct Gate(watch::Receiver<bool>);

/// The test's hand on a gate.
#[derive(Debug)]
pub struct GateKey(watch::Sender<bool>);

/// A closed gate.
pub fn gate() -> (GateKey, Gate) {
    let (sender, receiver) = watch::channel(false);
    (GateKey(sender), Gate(receiver))
}

impl GateKey {
    /// Lets everybody pass from now on.
    pub fn open(&self) {
        self.0.send_replace(true);
    }
}

impl Gate {
    /// Returns once the gate is open; never, if its key is gone unopened.
    pub async fn passed(&mut self) {
        if self.0.wait_for(|open| *open).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Milliseconds.
pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A head of a chunked event stream.
pub const SSE_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";

impl Reply {
    /// Nothing yet.
    pub fn new() -> Reply {
        Reply::default()
    }

    /// Writes raw bytes at a time.
    pub fn write(mut self, at: Duration, bytes: impl Into<Bytes>) -> Reply {
        let bytes = bytes.into();
        self.steps.push(Step::Write { at, bytes });
        self
    }

    /// Writes one HTTP chunk at a time.
    pub fn chunk(self, at: Duration, data: &[u8]) -> Reply {
        self.write(at, chunk(data))
    }

    /// Writes one HTTP chunk again and again.
    pub fn chunks(mut self, from: Duration, every: Duration, count: u32, data: &[u8]) -> Reply {
        let bytes = chunk(data);
        self.steps.push(Step::Repeat {
            from,
            every,
            count,
            bytes,
        });
        self
    }

    /// Waits for a gate.
    pub fn wait(mut self, gate: &Gate) -> Reply {
        self.steps.push(Step::Wait(gate.clone()));
        self
    }

    /// Ends a chunked body properly.
    pub fn last_chunk(self, at: Duration) -> Reply {
        self.write(at, LAST_CHUNK)
    }

    /// What happens to the connection afterwards.
    pub fn then(mut self, end: End) -> Reply {
        self.end = end;
        self
    }

    /// The head of a chunked event stream, at once.
    pub fn sse() -> Reply {
        Reply::new().write(Duration::ZERO, SSE_HEAD)
    }

    /// A whole answer with a length.
    pub fn whole(status: u16, content_type: &str, body: &[u8]) -> Reply {
        let mut bytes = format!(
            "HTTP/1.1 {status} Status\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        bytes.extend_from_slice(body);
        Reply::new().write(Duration::ZERO, bytes)
    }

    /// A whole JSON answer.
    pub fn json(status: u16, body: &str) -> Reply {
        Reply::whole(status, "application/json", body.as_bytes())
    }

    /// A whole short chat stream: role, one word, finish, `[DONE]`.
    pub fn chat(text: &str) -> Reply {
        Reply::sse()
            .chunk(Duration::ZERO, role_event().as_bytes())
            .chunk(Duration::ZERO, text_event(text).as_bytes())
            .chunk(Duration::ZERO, finish_event().as_bytes())
            .chunk(Duration::ZERO, DONE.as_bytes())
            .last_chunk(Duration::ZERO)
    }

    /// A chat stream of `count` words, `every` apart.
    pub fn paced_chat(count: u32, every: Duration) -> Reply {
        let end = every * (count + 1);
        Reply::sse()
            .chunk(Duration::ZERO, role_event().as_bytes())
            .chunks(every, every, count, text_event("word").as_bytes())
            .chunk(end, finish_event().as_bytes())
            .chunk(end, DONE.as_bytes())
            .last_chunk(end)
    }
}

/// The event that ends a stream.
pub const DONE: &str = "data: [DONE]\n\n";

fn chat_event(choice: &str) -> String {
    format!(
        "data: {{\"id\":\"c-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"m-small\",\"choices\":[{choice}]}}\n\n"
    )
}

/// A chat event that only names the role.
pub fn role_event() -> String {
    chat_event(
        "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}",
    )
}

/// A chat event with text.
pub fn text_event(text: &str) -> String {
    chat_event(&format!(
        "{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}"
    ))
}

/// A chat event with a finish reason.
pub fn finish_event() -> String {
    chat_event("{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}")
}

/// An event that says the engine failed.
pub fn error_event() -> String {
    "data: {\"error\":{\"message\":\"engine died\",\"type\":\"internal\",\"code\":500}}\n\n"
        .to_owned()
}
