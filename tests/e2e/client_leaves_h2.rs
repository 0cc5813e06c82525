//! C19 on HTTP/2: a reset or a lost connection is a cancel at any stage, the end of a request never is.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::support::client_h2::{ClientH2, next_piece, whole};
use crate::support::proxy::{Proxy, Setup};
use crate::support::reply::{DONE, End, Reply, gate, ms};
use crate::support::upstream::{Script, Upstream};

const PATH: &str = "/v1/chat/completions";
const BODY: &str =
    r#"{"model":"m-small","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
const WINDOW: u32 = 65_535;
const LIMIT: Duration = ms(100);

/// The instance was told in time, the load is gone, the records say why.
async fn assert_cancelled(proxy: &Proxy, upstream: &Upstream, left: Instant, ids: &[&str]) {
    for connection in 0..upstream.connections() {
        let took = upstream.closed(connection).await.at;
        let took = took.saturating_duration_since(left);
        assert!(took < LIMIT, "an instance was told after {took:?}");
    }
    let freed = proxy.settled().await;
    assert!(freed < LIMIT, "the load was freed after {freed:?}");
    for id in ids {
        let record = proxy.record(id).await;
        assert_eq!(record["outcome"], "client_cancelled", "{record}");
    }
}

/// A body that begins and never ends.
struct Unfinished(Option<Bytes>);

impl Body for Unfinished {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.0.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None => Poll::Pending,
        }
    }
}

/// Begins a request whose body stays unfinished; dropping the task resets its stream.
async fn begin(proxy: &Proxy, id: &str, bytes: usize) -> tokio::task::JoinHandle<()> {
    let socket = TcpStream::connect(proxy.addr).await.unwrap();
    let (mut send, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://test{PATH}"))
        .header("x-request-id", id)
        .header("content-type", "application/json")
        .body(Unfinished(Some(vec![b' '; bytes].into())))
        .unwrap();
    tokio::spawn(async move {
        let _ = send.send_request(request).await;
    })
}

fn silent() -> Upstream {
    Script::new(|_| Reply::new().then(End::Hold)).start()
}

#[tokio::test]
async fn between_the_head_and_the_first_event() {
    let upstream = Script::new(|_| Reply::sse().then(End::Hold)).start();
    let proxy = Setup::one(&upstream).start();
    let client = ClientH2::connect(proxy.addr, WINDOW).await;
    let answer = client.post(PATH, "b", BODY).await;
    assert_eq!(answer.status(), 200);
    let left = Instant::now();
    drop(answer);
    assert_cancelled(&proxy, &upstream, left, &["b"]).await;
    let record = proxy.record("b").await;
    assert!(record["server_ttft_ms"].is_null(), "{record}");
}

#[tokio::test]
async fn while_a_held_body_is_being_sent() {
    let upstream = silent();
    let proxy = Setup::one(&upstream).start();
    // an answer came: the core's own tasks are there
    let first = ClientH2::connect(proxy.addr, WINDOW).await;
    assert_eq!(first.post("/none", "first", BODY).await.status(), 404);
    let before = proxy.shared().tasks();
    let sending = begin(&proxy, "d", 1000).await;
    // the connection's task, and the request's
    while proxy.shared().tasks() < before + 2 {
        tokio::time::sleep(ms(1)).await;
    }
    sending.abort();
    let record = proxy.record("d").await;
    assert_eq!(record["outcome"], "client_cancelled", "{record}");
    assert_eq!(upstream.connections(), 0, "nothing was to be sent");
    proxy.settled().await;
}

#[tokio::test]
async fn while_a_streamed_body_is_being_sent() {
    const HELD_BYTES: usize = 16 << 10;
    let upstream = silent();
    let proxy = Setup::one(&upstream)
        .set("limits", &format!("hold_bytes = {HELD_BYTES}"))
        .start();
    let sending = begin(&proxy, "d", 2 * HELD_BYTES).await;
    upstream.head(0).await;
    while upstream.body_bytes(0) < HELD_BYTES as u64 {
        tokio::time::sleep(ms(1)).await;
    }
    let left = Instant::now();
    sending.abort();
    assert_cancelled(&proxy, &upstream, left, &["d"]).await;
}

#[tokio::test]
async fn a_lost_connection_cancels_all_its_streams() {
    let upstream = Script::new(|_| Reply::paced_chat(1000, ms(10))).start();
    let proxy = Setup::one(&upstream).start();
    // on a runtime of its own, which takes the connection along without a word
    let addr = proxy.addr;
    let streams = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let client = ClientH2::connect(addr, WINDOW).await;
            for id in ["s0", "s1", "s2"] {
                let mut answer = client.post(PATH, id, BODY).await;
                next_piece(answer.body_mut()).await.unwrap().unwrap();
                // not dropped: that would reset the stream
                std::mem::forget(answer);
            }
        });
        Instant::now()
    });
    let left = tokio::task::spawn_blocking(|| streams.join().unwrap());
    assert_cancelled(&proxy, &upstream, left.await.unwrap(), &["s0", "s1", "s2"]).await;
}

#[tokio::test]
async fn the_end_of_a_request_is_no_cancel_whatever_half_close_says() {
    for half_close in [false, true] {
        let (key, gate) = gate();
        let upstream = Script::new(move |_| {
            let mut reply = Reply::new().wait(&gate);
            reply.steps.extend(Reply::chat("late").steps);
            reply
        })
        .start();
        let proxy = Setup::one(&upstream)
            .set("client", &format!("half_close = {half_close}"))
            .start();
        let client = ClientH2::connect(proxy.addr, WINDOW).await;
        let asked = tokio::spawn(async move {
            let mut answer = client.post(PATH, "e", BODY).await;
            whole(answer.body_mut()).await
        });
        // END_STREAM has come, and the instance is silent for a while
        upstream.request(0).await;
        assert_eq!(upstream.open_requests(), 1);
        key.open();
        let (body, error) = asked.await.unwrap();
        assert!(error.is_none() && body.ends_with(DONE.as_bytes()));
        assert_eq!(proxy.record("e").await["outcome"], "ok");
        proxy.settled().await;
    }
}
