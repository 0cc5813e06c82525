//! A raw HTTP/1.1 client: says what it likes in pieces of its choice, stamps what comes back, and
//! tells a clean end of a body from a cut one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::http1::{BodyReader, Head};
use super::{PATIENCE, within};

/// How a body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEnd {
    /// as its framing says
    Clean,
    /// the connection closed before
    Closed,
    /// the connection was reset before
    Reset,
}

/// A piece of a body.
#[derive(Debug, Clone)]
pub struct Piece {
    /// when its read returned
    pub at: Instant,
    /// the bytes
    pub bytes: Bytes,
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    /// the head
    pub head: Head,
    /// when the head was there
    pub head_at: Instant,
    /// the body as it arrived, out of its framing
    pub pieces: Vec<Piece>,
    /// how it ended
    pub end: BodyEnd,
    /// when it ended
    pub end_at: Instant,
}

impl Answer {
    /// The status.
    pub fn status(&self) -> u16 {
        self.head.status()
    }

    /// The whole body.
    pub fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for piece in &self.pieces {
            body.extend_from_slice(&piece.bytes);
        }
        body
    }

    /// The whole body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body()).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body())
            .unwrap_or_else(|error| panic!("no JSON ({error}): {}", self.text()))
    }

    /// `error.code` of an OpenAI-shaped error.
    pub fn error_code(&self) -> String {
        let json = self.json();
        let code = &json["error"]["code"];
        code.as_str()
            .map_or_else(|| code.to_string(), str::to_owned)
    }
}

/// A request to write down.
#[derive(Debug, Clone)]
pub struct Ask {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
    length: bool,
}

impl Ask {
    /// POST with a JSON body.
    pub fn post(path: &str, body: impl Into<Bytes>) -> Ask {
        Ask {
            method: "POST".to_owned(),
            path: path.to_owned(),
            headers: vec![("content-type".into(), "application/json".into())],
            body: body.into(),
            length: true,
        }
    }

    /// GET.
    pub fn get(path: &str) -> Ask {
        Ask {
            method: "GET".to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: Bytes::new(),
            length: false,
        }
    }

    /// A streamed chat request of a few words.
    pub fn chat() -> Ask {
        let body = r#"{"model":"m-small","stream":true,"max_tokens":8,"messages":[{"role":"user","content":"hello there"}]}"#;
        Ask::post("/v1/chat/completions", body)
    }

    /// Another method.
    pub fn method(mut self, method: &str) -> Ask {
        method.clone_into(&mut self.method);
        self
    }

    /// Sets a header, in place of one of the same name.
    pub fn header(mut self, name: &str, value: &str) -> Ask {
        self.headers.retain(|(key, _)| key != name);
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds a header, beside those of the same name.
    pub fn also(mut self, name: &str, value: &str) -> Ask {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Names the request, so that its record is found.
    pub fn id(self, id: &str) -> Ask {
        self.header("x-request-id", id)
    }

    /// Sends no Content-Length.
    pub fn without_length(mut self) -> Ask {
        self.length = false;
        self
    }

    /// Its head in bytes.
    pub fn head_bytes(&self) -> Vec<u8> {
        let mut out = format!("{} {} HTTP/1.1\r\nhost: test\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            out += &format!("{name}: {value}\r\n");
        }
        if self.length {
            out += &format!("content-length: {}\r\n", self.body.len());
        }
        out += "\r\n";
        out.into_bytes()
    }

    /// All of it in bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.head_bytes();
        out.extend_from_slice(&self.body);
        out
    }
}

/// A client connection.
#[derive(Debug)]
pub struct Client {
    socket: TcpStream,
    buffer: BytesMut,
    seen: Option<watch::Sender<u64>>,
}

impl Client {
    /// Connects.
    pub async fn connect(addr: SocketAddr) -> Client {
        let socket = within("a connection", PATIENCE, TcpStream::connect(addr));
        let socket = socket.await.unwrap();
        socket.set_nodelay(true).unwrap();
        Client {
            socket,
            buffer: BytesMut::new(),
            seen: None,
        }
    }

    /// Connects with a small receive buffer, so that an unread answer soon fills it.
    pub async fn connect_narrow(addr: SocketAddr, receive_bytes: u32) -> Client {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(receive_bytes).unwrap();
        let socket = socket.connect(addr).await.unwrap();
        socket.set_nodelay(true).unwrap();
        Client {
            socket,
            buffer: BytesMut::new(),
            seen: None,
        }
    }

    /// The same with small segments too, so that the kernel on the other side keeps little for this client.
    pub async fn connect_narrowest(addr: SocketAddr) -> Client {
        use nix::sys::socket::{setsockopt, sockopt::TcpMaxSeg};
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        setsockopt(&socket, TcpMaxSeg, &1024).unwrap();
        let socket = socket.connect(addr).await.unwrap();
        Client {
            socket,
            buffer: BytesMut::new(),
            seen: None,
        }
    }

    /// Connects, sends one request, reads its answer.
    pub async fn ask(addr: SocketAddr, ask: &Ask) -> Answer {
        let mut client = Client::connect(addr).await;
        client.send(&ask.bytes()).await;
        client.answer().await
    }

    /// Tells how many body bytes have come, to an upstream that goes in lockstep.
    pub fn tell(&mut self) -> watch::Receiver<u64> {
        let (sender, receiver) = watch::channel(0);
        self.seen = Some(sender);
        receiver
    }

    /// The same, to a channel that the upstream has already.
    pub fn tell_to(&mut self, sender: watch::Sender<u64>) {
        self.seen = Some(sender);
    }

    /// Sends bytes.
    pub async fn send(&mut self, bytes: &[u8]) {
        let sent = self.try_send(bytes).await;
        sent.unwrap();
    }

    /// Sends bytes, if the other side takes them.
    pub async fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        within("a write", PATIENCE, self.socket.write_all(bytes)).await
    }

    /// Sends each byte on its own.
    pub async fn send_bytewise(&mut self, bytes: &[u8]) {
        for byte in bytes.chunks(1) {
            self.send(byte).await;
            tokio::task::yield_now().await;
        }
    }

    /// Ends the sending side.
    pub async fn half_close(&mut self) {
        self.socket.shutdown().await.unwrap();
    }

    /// Resets the connection.
    pub fn abort(self) {
        self.socket.set_zero_linger().unwrap();
    }

    /// Reads a head; informational ones are passed over.
    pub async fn head(&mut self) -> Head {
        loop {
            let head = self.any_head().await;
            if head.status() >= 200 {
                return head;
            }
        }
    }

    /// Reads a head, be it informational.
    pub async fn any_head(&mut self) -> Head {
        self.try_head().await.expect("no head before the end")
    }

    /// Reads a head; `None` if the connection ends before.
    pub async fn try_head(&mut self) -> Option<Head> {
        loop {
            if let Some(head) = Head::take(&mut self.buffer) {
                return Some(head);
            }
            match self.read().await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Begins to read the body that follows `head`.
    pub fn body(&mut self, head: &Head) -> Body<'_> {
        Body {
            reader: BodyReader::new(head.response_framing(false)),
            total: 0,
            client: self,
            end: None,
        }
    }

    /// Reads a whole answer.
    pub async fn answer(&mut self) -> Answer {
        let head = self.head().await;
        self.answer_after(head).await
    }

    async fn answer_after(&mut self, head: Head) -> Answer {
        let head_at = Instant::now();
        let mut body = self.body(&head);
        let mut pieces = Vec::new();
        while let Some(piece) = body.next().await {
            pieces.push(piece);
        }
        let end = body.end.unwrap_or(BodyEnd::Clean);
        Answer {
            head,
            head_at,
            pieces,
            end,
            end_at: Instant::now(),
        }
    }

    /// Reads a whole answer; `None` if the connection ends before its head.
    pub async fn answer_if_any(&mut self) -> Option<Answer> {
        let head = self.try_head().await?;
        Some(self.answer_after(head).await)
    }

    /// Returns when bytes or an end have come, and takes none.
    pub async fn readable(&self) {
        if self.buffer.is_empty() {
            let _ = self.socket.peek(&mut [0]).await;
        }
    }

    /// Takes one byte from the socket, if any is there, and drops it.
    pub fn drop_a_byte(&self) -> bool {
        matches!(self.socket.try_read(&mut [0]), Ok(1))
    }

    /// Nothing has come that was not read.
    pub fn is_read_out(&self) -> bool {
        self.buffer.is_empty()
    }

    /// True if the other side ends the connection within `limit`.
    pub async fn ends_within(&mut self, limit: Duration) -> bool {
        let end = async { while !matches!(self.read().await, Ok(0) | Err(_)) {} };
        tokio::time::timeout(limit, end).await.is_ok()
    }

    /// True if the other side says something, or ends the connection, within `limit`.
    pub async fn hears_within(&mut self, limit: Duration) -> bool {
        !self.buffer.is_empty() || tokio::time::timeout(limit, self.read()).await.is_ok()
    }

    async fn read(&mut self) -> std::io::Result<usize> {
        let reading = async {
            loop {
                self.socket.readable().await?;
                self.buffer.reserve(64 * 1024);
                match self.socket.try_read_buf(&mut self.buffer) {
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    done => return done,
                }
            }
        };
        within("bytes of an answer", PATIENCE * 4, reading).await
    }
}

/// A body being read.
pub struct Body<'a> {
    client: &'a mut Client,
    reader: BodyReader,
    total: u64,
    end: Option<BodyEnd>,
}

impl Body<'_> {
    /// The next bytes, as they come; `None` at the end.
    pub async fn next(&mut self) -> Option<Piece> {
        let mut out = Vec::new();
        loop {
            self.reader.feed(&mut self.client.buffer, &mut out);
            if !out.is_empty() {
                self.total += out.len() as u64;
                if let Some(seen) = &self.client.seen {
                    seen.send_replace(self.total);
                }
                return Some(Piece {
                    at: Instant::now(),
                    bytes: out.into(),
                });
            }
            if self.reader.is_done() {
                self.end = Some(BodyEnd::Clean);
            }
            if self.end.is_some() {
                return None;
            }
            self.end = match self.client.read().await {
                Ok(0) if self.reader.ends_with_connection() => Some(BodyEnd::Clean),
                Ok(0) => Some(BodyEnd::Closed),
                Ok(_) => None,
                Err(_) => Some(BodyEnd::Reset),
            };
        }
    }

    /// How it ended, once `next` has said `None`.
    pub fn end(&self) -> Option<BodyEnd> {
        self.end
    }

    /// Reads on until `count` bytes have come in all.
    pub async fn at_least(&mut self, count: u64) {
        while self.total < count {
            let piece = self.next().await;
            assert!(piece.is_some(), "the body ended after {} bytes", self.total);
        }
    }
}
