//! HTTP/2 in bare frames, for what no well-behaved client sends.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{PATIENCE, within};

/// What a client with prior knowledge sends first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

/// The fields of a chat request, and its body.
pub const POST: [(&str, &str); 4] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/v1/chat/completions"),
    (":authority", "t"),
];
pub const BODY: &str =
    r#"{"model":"m-small","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

/// On SETTINGS and PING: the other side's has come.
pub const ACK: u8 = 1;
/// On HEADERS and DATA: no more of this stream follows.
pub const END_STREAM: u8 = 1;
/// On HEADERS and CONTINUATION: the head ends here.
pub const END_HEADERS: u8 = 4;

/// A frame.
#[derive(Debug, Clone)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// The error's number, of a reset or a goodbye.
    pub fn error(&self) -> Option<u32> {
        let at = match self.kind {
            RST_STREAM => 0,
            GOAWAY => 4,
            _ => return None,
        };
        let bytes = self.payload.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_be_bytes(bytes))
    }

    /// The status of an answer's head, which is its first field.
    pub fn status(&self) -> Option<u16> {
        const INDEXED: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
        match *self.payload.first()? {
            first @ 0x88..=0x8e => Some(INDEXED[usize::from(first - 0x88)]),
            // a literal, its name from the static table
            0x08 | 0x18 | 0x48 => {
                let length = *self.payload.get(1)?;
                let value = self.payload.get(2..2 + usize::from(length & 0x7f))?;
                let text = match length & 0x80 {
                    0 => String::from_utf8_lossy(value).into_owned(),
                    _ => huffman_digits(value),
                };
                text.parse().ok()
            }
            _ => None,
        }
    }

    /// The settings, by number.
    pub fn settings(&self) -> Vec<(u16, u32)> {
        let one = |bytes: &[u8]| {
            let id = u16::from_be_bytes([bytes[0], bytes[1]]);
            let value = u32::from_be_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]);
            (id, value)
        };
        self.payload.chunks_exact(6).map(one).collect()
    }
}

/// Digits in HPACK's Huffman code: 0 to 2 take five bits, the others six.
fn huffman_digits(bytes: &[u8]) -> String {
    let bits = bytes.len() * 8;
    let at = |from: usize, count: usize| {
        (from..from + count).fold(0_u32, |value, bit| {
            value << 1 | u32::from(bytes[bit / 8] >> (7 - bit % 8) & 1)
        })
    };
    let (mut text, mut from) = (String::new(), 0);
    while from + 5 <= bits {
        let digit = match at(from, 5) {
            short @ 0..=2 => short,
            _ if from + 6 > bits => break,
            _ => match at(from, 6) {
                long @ 0b01_1001..=0b01_1111 => long - 0b01_1001 + 3,
                _ => break,
            },
        };
        from += if digit <= 2 { 5 } else { 6 };
        text += &digit.to_string();
    }
    text
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut out = length[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// Fields as HPACK writes them without a table and without Huffman's code; each name and value under 127 bytes.
pub fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            assert!(text.len() < 127, "{text}");
            out.push(text.len() as u8);
            out.extend(text.as_bytes());
        }
    }
    out
}

/// A chat request on a stream of its own.
pub fn request(stream: u32) -> Vec<u8> {
    let head = frame(HEADERS, END_HEADERS, stream, &fields(&POST));
    [head, frame(DATA, END_STREAM, stream, BODY.as_bytes())].concat()
}

/// A connection of which every byte is the test's own.
pub struct Frames {
    socket: TcpStream,
}

impl Frames {
    /// Connects and says the preface, with settings that say nothing.
    pub async fn connect(addr: SocketAddr) -> Frames {
        let mut frames = Frames::connect_silent(addr).await;
        let hello = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
        assert!(frames.send(&hello).await, "closed at the preface");
        frames
    }

    /// Connects and says nothing.
    pub async fn connect_silent(addr: SocketAddr) -> Frames {
        let socket = TcpStream::connect(addr).await.unwrap();
        socket.set_nodelay(true).unwrap();
        Frames { socket }
    }

    /// Sends; false once the other side has closed.
    pub async fn send(&mut self, bytes: &[u8]) -> bool {
        let sent = within("a write", PATIENCE, self.socket.write_all(bytes));
        sent.await.is_ok()
    }

    /// The next frame; none once the other side has closed.
    pub async fn next(&mut self) -> Option<Frame> {
        within("a frame", PATIENCE, self.read()).await
    }

    async fn read(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.socket.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.socket.read_exact(&mut payload).await.ok()?;
        Some(Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        })
    }

    /// The next frame of a kind.
    pub async fn next_of(&mut self, kinds: &[u8]) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if kinds.contains(&frame.kind) {
                return Some(frame);
            }
        }
    }

    /// Reads to the end; what the other side said at its goodbye.
    pub async fn goodbye(&mut self) -> Option<u32> {
        let mut said = None;
        while let Some(frame) = self.next().await {
            if frame.kind == GOAWAY {
                said = frame.error();
            }
        }
        said
    }
}
