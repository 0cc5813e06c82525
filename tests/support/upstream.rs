//! A scripted inference server on raw sockets: records each request to the byte, answers on a
//! schedule, fails in every way a script names. It lives on a thread of its own, so that nothing a
//! test does on its runtime delays it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

use super::http1::{BodyReader, Head};
use super::reply::{End, Reply, Step};
use super::{PATIENCE, within};

/// A request as it came.
#[derive(Debug)]
pub struct Request {
    /// the how many-th request of this upstream, from 0
    pub number: usize,
    /// the connection it came on, from 0
    pub connection: usize,
    /// how many requests came on that connection before it
    pub reuse: usize,
    /// the head
    pub head: Head,
    /// the body, out of its framing
    pub body: Bytes,
    /// when all of it was there
    pub at: Instant,
}

/// How the other side left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// it closed
    Fin,
    /// it reset
    Reset,
    /// it did not: this side closed
    Us,
}

/// The end of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Closed {
    /// when it was seen
    pub at: Instant,
    /// by whom and how
    pub how: Left,
}

/// What has been written of an answer.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// bytes the socket took
    pub bytes: u64,
    /// when each of the script's writes was taken
    pub at: Vec<Instant>,
    /// the script was played to its end, or the connection ended
    pub over: bool,
}

#[derive(Debug, Default)]
struct Seen {
    connections: usize,
    heads: Vec<(usize, Head)>,
    body_bytes: BTreeMap<usize, u64>,
    requests: Vec<Arc<Request>>,
    written: Vec<Written>,
    closed: BTreeMap<usize, Closed>,
}

type OnHead = dyn Fn(&Head) -> Option<Reply> + Send + Sync;
type OnRequest = dyn Fn(&Request) -> Reply + Send + Sync;

/// How an upstream behaves.
#[derive(Clone)]
pub struct Script {
    on_request: Arc<OnRequest>,
    on_head: Option<Arc<OnHead>>,
    idle_close: Option<Duration>,
    close_lag: Duration,
    reset_on_accept: bool,
    writes_kept: usize,
}

impl Script {
    /// Answers each request, once all of it is there, with what `on_request` says.
    pub fn new(on_request: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Script {
        Script {
            on_request: Arc::new(on_request),
            on_head: None,
            idle_close: None,
            close_lag: Duration::ZERO,
            reset_on_accept: false,
            writes_kept: 4096,
        }
    }

    /// May answer when the head is there and the body is not.
    pub fn on_head(mut self, f: impl Fn(&Head) -> Option<Reply> + Send + Sync + 'static) -> Script {
        self.on_head = Some(Arc::new(f));
        self
    }

    /// Closes a connection that has been idle for that long after an answer.
    pub fn idle_close(mut self, after: Duration) -> Script {
        self.idle_close = Some(after);
        self
    }

    /// That close takes so long to arrive, as on a long way: what is sent meanwhile is lost.
    pub fn close_lag(mut self, lag: Duration) -> Script {
        self.close_lag = lag;
        self
    }

    /// Resets each connection as soon as it is accepted.
    pub fn reset_on_accept(mut self) -> Script {
        self.reset_on_accept = true;
        self
    }

    /// Keeps no stamps of single writes (for tests of many streams).
    pub fn forgetful(mut self) -> Script {
        self.writes_kept = 0;
        self
    }

    /// Starts it on a port of the kernel's choice.
    pub fn start(self) -> Upstream {
        Upstream::start(self)
    }
}

struct Shared {
    script: Script,
    seen: Mutex<Seen>,
    changed: watch::Sender<()>,
}

impl Shared {
    fn note<T>(&self, f: impl FnOnce(&mut Seen) -> T) -> T {
        let value = f(&mut self.seen.lock());
        self.changed.send_replace(());
        value
    }
}

/// A running upstream; it ends when dropped.
pub struct Upstream {
    /// where it listens
    pub addr: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Seen {
    fn open_requests(&self) -> usize {
        self.written.iter().filter(|written| !written.over).count()
    }
}

impl Upstream {
    fn start(script: Script) -> Upstream {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script,
            seen: Mutex::default(),
            changed: watch::Sender::new(()),
        });
        let (stop, stopped) = oneshot::channel();
        let accepting = shared.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, accepting) => {}
                    _ = stopped => {}
                }
            });
        });
        Upstream {
            addr,
            shared,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// `http://ADDR`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.seen.lock().connections
    }

    /// Requests that came whole so far.
    pub fn requests(&self) -> Vec<Arc<Request>> {
        self.shared.seen.lock().requests.clone()
    }

    /// Bytes of request bodies read on a connection so far.
    pub fn body_bytes(&self, connection: usize) -> u64 {
        let seen = self.shared.seen.lock();
        seen.body_bytes.get(&connection).copied().unwrap_or(0)
    }

    /// What has been written of the answer to the `number`-th request.
    pub fn written(&self, number: usize) -> Written {
        self.shared.seen.lock().written[number].clone()
    }

    /// Bytes written of all answers.
    pub fn written_bytes(&self) -> u64 {
        let seen = self.shared.seen.lock();
        seen.written.iter().map(|written| written.bytes).sum()
    }

    /// Requests that came whole and whose answer is not over.
    pub fn open_requests(&self) -> usize {
        self.shared.seen.lock().open_requests()
    }

    /// The `number`-th request, when it has come whole.
    pub async fn request(&self, number: usize) -> Arc<Request> {
        self.until("a request", |seen| seen.requests.get(number).cloned())
            .await
    }

    /// The `number`-th request's head and its connection, when it has come.
    pub async fn head(&self, number: usize) -> (usize, Head) {
        self.until("a request's head", |seen| seen.heads.get(number).cloned())
            .await
    }

    /// The end of a connection, when it has come.
    pub async fn closed(&self, connection: usize) -> Closed {
        self.until("the end of a connection", |seen| {
            seen.closed.get(&connection).copied()
        })
        .await
    }

    /// Returns when the answer to the `number`-th request is over.
    pub async fn answered(&self, number: usize) -> Written {
        self.until("the end of an answer", |seen| {
            seen.written.get(number).filter(|w| w.over).cloned()
        })
        .await
    }

    /// Returns when exactly `count` requests are open.
    pub async fn open(&self, count: usize) {
        self.open_where(|open| open == count).await;
    }

    /// Returns once so many requests or more are open, which cannot be missed as an exact number can.
    pub async fn open_at_least(&self, count: usize) {
        self.open_where(|open| open >= count).await;
    }

    async fn open_where(&self, holds: impl Fn(usize) -> bool) {
        self.until("a number of open requests", |seen| {
            holds(seen.open_requests()).then_some(())
        })
        .await
    }

    async fn until<T>(&self, what: &str, f: impl Fn(&Seen) -> Option<T>) -> T {
        let mut changed = self.shared.changed.subscribe();
        within(what, PATIENCE, async {
            loop {
                changed.borrow_and_update();
                if let Some(value) = f(&self.shared.seen.lock()) {
                    return value;
                }
                changed.changed().await.unwrap();
            }
        })
        .await
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An address where nobody listens, for as long as the value lives.
pub struct Refusing {
    /// the address
    pub addr: SocketAddr,
    _socket: socket2::Socket,
}

impl Refusing {
    /// Takes a port without listening on it, so that nobody else can.
    pub fn new() -> Refusing {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        socket.bind(&any.into()).unwrap();
        let addr = socket.local_addr().unwrap().as_socket().unwrap();
        Refusing {
            addr,
            _socket: socket,
        }
    }
}

async fn accept(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let listener = TcpListener::from_std(listener).unwrap();
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            continue;
        };
        let number = shared.note(|seen| {
            seen.connections += 1;
            seen.connections - 1
        });
        if shared.script.reset_on_accept {
            let _ = socket.set_zero_linger();
            continue;
        }
        socket.set_nodelay(true).unwrap();
        let connection = Connection {
            socket,
            number,
            buffer: BytesMut::new(),
            shared: shared.clone(),
        };
        tokio::spawn(connection.serve());
    }
}

struct Connection {
    socket: TcpStream,
    number: usize,
    buffer: BytesMut,
    shared: Arc<Shared>,
}

impl Connection {
    async fn serve(mut self) {
        let how = self.serve_requests().await;
        let (number, at) = (self.number, Instant::now());
        self.shared.note(|seen| {
            seen.closed.insert(number, Closed { at, how });
        });
    }

    async fn serve_requests(&mut self) -> Left {
        let mut reuse = 0;
        loop {
            let idle = if reuse == 0 {
                None
            } else {
                self.shared.script.idle_close
            };
            let (number, reply) = match self.read_request(reuse, idle).await {
                Ok(read) => read,
                Err(how) => return how,
            };
            let played = self.play(number, &reply).await;
            self.shared.note(|seen| seen.written[number].over = true);
            if let Err(how) = played {
                return how;
            }
            match reply.end {
                End::KeepAlive => reuse += 1,
                End::Close => return Left::Us,
                End::Reset => {
                    let _ = self.socket.set_zero_linger();
                    return Left::Us;
                }
                End::Hold | End::HoldDeaf => unreachable!("played until the other side left"),
            }
        }
    }

    async fn read_request(
        &mut self,
        reuse: usize,
        idle: Option<Duration>,
    ) -> Result<(usize, Reply), Left> {
        let head = match idle {
            None => self.read_head().await?,
            Some(idle) => match tokio::time::timeout(idle, self.read_head()).await {
                Ok(head) => head?,
                Err(_) => {
                    tokio::time::sleep(self.shared.script.close_lag).await;
                    return Err(Left::Us);
                }
            },
        };
        let connection = self.number;
        self.shared
            .note(|seen| seen.heads.push((connection, head.clone())));
        let early = self.shared.script.on_head.clone();
        let early = early.and_then(|on_head| on_head(&head));
        let body = match early {
            Some(_) => Bytes::new(),
            None => self.read_body(&head).await?,
        };
        let request = self.shared.note(|seen| {
            let request = Arc::new(Request {
                number: seen.requests.len(),
                connection,
                reuse,
                head,
                body,
                at: Instant::now(),
            });
            seen.requests.push(request.clone());
            seen.written.push(Written::default());
            request
        });
        let reply = early.unwrap_or_else(|| (self.shared.script.on_request)(&request));
        Ok((request.number, reply))
    }

    async fn read_head(&mut self) -> Result<Head, Left> {
        loop {
            if let Some(head) = Head::take(&mut self.buffer) {
                return Ok(head);
            }
            self.read().await?;
        }
    }

    async fn read_body(&mut self, head: &Head) -> Result<Bytes, Left> {
        let mut reader = BodyReader::new(head.request_framing());
        let mut body = Vec::new();
        if head.header("expect").is_some() && self.buffer.is_empty() {
            self.write_all(None, b"HTTP/1.1 100 Continue\r\n\r\n")
                .await?;
        }
        loop {
            reader.feed(&mut self.buffer, &mut body);
            let (connection, total) = (self.number, body.len() as u64);
            self.shared.note(|seen| {
                seen.body_bytes.insert(connection, total);
            });
            if reader.is_done() {
                return Ok(body.into());
            }
            self.read().await?;
        }
    }

    async fn read(&mut self) -> Result<(), Left> {
        read(&self.socket, &mut self.buffer).await
    }

    async fn play(&mut self, number: usize, reply: &Reply) -> Result<(), Left> {
        let start = Instant::now();
        let deaf = reply.end == End::HoldDeaf;
        for step in &reply.steps {
            match step {
                Step::Write { at, bytes } => {
                    self.wait(deaf, tokio::time::sleep_until((start + *at).into()))
                        .await?;
                    self.write_all(Some(number), bytes).await?;
                }
                Step::Repeat {
                    from,
                    every,
                    count,
                    bytes,
                } => {
                    for i in 0..*count {
                        let due = start + *from + *every * i;
                        if due > Instant::now() {
                            self.wait(deaf, tokio::time::sleep_until(due.into()))
                                .await?;
                        }
                        self.write_all(Some(number), bytes).await?;
                    }
                }
                Step::Lockstep { pieces, arrived } => {
                    let mut arrived = arrived.clone();
                    for (i, piece) in pieces.iter().enumerate() {
                        let before = async {
                            let _ = arrived.wait_for(|count| *count >= i as u64).await;
                        };
                        self.wait(deaf, before).await?;
                        self.write_all(Some(number), piece).await?;
                    }
                }
                Step::Wait(gate) => {
                    let mut gate = gate.clone();
                    self.wait(deaf, gate.passed()).await?;
                }
            }
        }
        if matches!(reply.end, End::Hold | End::HoldDeaf) {
            self.wait(deaf, std::future::pending::<()>()).await?;
        }
        Ok(())
    }

    /// Waits for `event`, looking out for the other side's leaving unless `deaf`.
    async fn wait(&mut self, deaf: bool, event: impl Future<Output = ()>) -> Result<(), Left> {
        tokio::pin!(event);
        loop {
            tokio::select! {
                biased;
                () = &mut event => return Ok(()),
                read = self.read(), if !deaf => read?,
            }
        }
    }

    async fn write_all(&mut self, number: Option<usize>, mut bytes: &[u8]) -> Result<(), Left> {
        while !bytes.is_empty() {
            match self.socket.try_write(bytes) {
                Ok(count) => {
                    bytes = &bytes[count..];
                    if let Some(number) = number {
                        self.shared.seen.lock().written[number].bytes += count as u64;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    tokio::select! {
                        ready = self.socket.writable() => ready.map_err(|_| Left::Reset)?,
                        gone = read(&self.socket, &mut self.buffer) => gone?,
                    }
                }
                Err(_) => return Err(Left::Reset),
            }
        }
        if let Some(number) = number {
            let kept = self.shared.script.writes_kept;
            let written = &mut self.shared.seen.lock().written[number].at;
            if written.len() < kept {
                written.push(Instant::now());
            }
        }
        Ok(())
    }
}

/// Reads once; an error is the end of the connection.
async fn read(socket: &TcpStream, buffer: &mut BytesMut) -> Result<(), Left> {
    loop {
        let ready = socket.readable().await;
        ready.map_err(|_| Left::Reset)?;
        buffer.reserve(16 * 1024);
        match socket.try_read_buf(buffer) {
            Ok(0) => return Err(Left::Fin),
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(Left::Reset),
        }
    }
}
