//! The test's own parts, one against the other: a wrong fake would make every other test lie.

use std::time::{Duration, Instant};

use crate::support::client::{Ask, BodyEnd, Client};
use crate::support::client_h2::{ClientH2, whole};
use crate::support::reply::{DONE, End, Reply, Step, gate, ms, text_event};
use crate::support::upstream::{Left, Refusing, Script};

#[tokio::test]
async fn a_request_is_recorded_to_the_byte() {
    let upstream = Script::new(|_| Reply::json(200, "{}")).start();
    let ask = Ask::post("/x", "{\"a\":1}")
        .also("x-a", "1")
        .also("x-a", "2");
    let mut client = Client::connect(upstream.addr).await;
    client.send_bytewise(&ask.bytes()).await;
    assert_eq!(client.answer().await.text(), "{}");
    client.send(&ask.bytes()).await;
    assert_eq!(client.answer().await.status(), 200);

    let (first, second) = (upstream.request(0).await, upstream.request(1).await);
    let mut raw = first.head.raw.to_vec();
    raw.extend_from_slice(&first.body);
    assert_eq!(raw, ask.bytes());
    assert_eq!(first.head.all("x-a"), ["1", "2"]);
    assert_eq!((first.connection, first.reuse), (0, 0));
    assert_eq!((second.connection, second.reuse), (0, 1));
}

#[tokio::test]
async fn chunked_requests_and_expect_are_understood() {
    let upstream = Script::new(|_| Reply::json(200, "{}")).start();
    let mut client = Client::connect(upstream.addr).await;
    client
        .send(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n")
        .await;
    assert_eq!(client.any_head().await.status(), 100);
    client
        .send_bytewise(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nt: v\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.status(), 200);
    assert_eq!(&upstream.request(0).await.body[..], b"abcde");
}

#[tokio::test]
async fn writes_keep_their_absolute_times() {
    let upstream = Script::new(|_| {
        Reply::sse()
            .chunk(ms(40), b"a")
            .chunks(ms(60), ms(20), 3, b"b")
            .last_chunk(ms(120))
    })
    .start();
    let answer = Client::ask(upstream.addr, &Ask::chat()).await;
    assert_eq!(answer.end, BodyEnd::Clean);
    assert_eq!(answer.body(), b"abbb");
    let request = upstream.request(0).await;
    let written = upstream.answered(0).await;
    assert_eq!(written.at.len(), 6);
    for (at, due) in written.at.iter().zip([0, 40, 60, 80, 100, 120]) {
        assert!(*at - request.at >= ms(due), "a write came too early");
    }
    let first = answer.pieces[0].at - request.at;
    assert!(first >= ms(40) && first < ms(60), "{first:?}");
}

#[tokio::test]
async fn the_ways_an_answer_ends_are_told_apart() {
    let cut = Reply::sse().chunk(Duration::ZERO, b"half");
    for (reply, end) in [
        (cut.clone().then(End::Close), BodyEnd::Closed),
        (
            cut.clone().last_chunk(Duration::ZERO).then(End::Close),
            BodyEnd::Clean,
        ),
        (cut.then(End::Reset), BodyEnd::Reset),
    ] {
        let (key, gate) = gate();
        let mut reply = reply;
        reply.steps.push(Step::Wait(gate));
        let upstream = Script::new(move |_| reply.clone()).start();
        let mut client = Client::connect(upstream.addr).await;
        client.send(&Ask::chat().bytes()).await;
        let head = client.head().await;
        let mut body = client.body(&head);
        body.at_least(4).await;
        key.open();
        assert!(body.next().await.is_none());
        assert_eq!(body.end(), Some(end));
    }
}

#[tokio::test]
async fn an_upstream_that_answers_nothing_sees_the_client_go() {
    let upstream = Script::new(|_| Reply::new().then(End::Hold)).start();
    let mut client = Client::connect(upstream.addr).await;
    client.send(&Ask::chat().bytes()).await;
    upstream.open(1).await;
    let left = Instant::now();
    client.abort();
    let closed = upstream.closed(0).await;
    assert_eq!(closed.how, Left::Reset);
    assert!(closed.at - left < ms(100));
    upstream.open(0).await;

    let mut client = Client::connect(upstream.addr).await;
    client.send(&Ask::chat().bytes()).await;
    upstream.open(1).await;
    client.half_close().await;
    assert_eq!(upstream.closed(1).await.how, Left::Fin);
}

#[tokio::test]
async fn lockstep_brings_one_byte_a_read() {
    let text = format!("{}{DONE}", text_event("x"));
    let pieces: Vec<_> = text.bytes().map(|byte| vec![byte]).collect();
    let (sender, arrived) = std::sync::mpsc::channel();
    let arrived = std::sync::Mutex::new(arrived);
    let upstream = Script::new(move |_| {
        let mut reply = Reply::sse();
        let chunks = pieces
            .iter()
            .map(|piece| crate::support::http1::chunk(piece));
        reply.steps.push(Step::Lockstep {
            pieces: chunks.collect(),
            arrived: arrived.lock().unwrap().recv().unwrap(),
        });
        reply.last_chunk(Duration::ZERO)
    })
    .start();
    let mut client = Client::connect(upstream.addr).await;
    sender.send(client.tell()).unwrap();
    client.send(&Ask::chat().bytes()).await;
    let answer = client.answer().await;
    assert_eq!(answer.text(), text);
    assert!(answer.pieces.iter().all(|piece| piece.bytes.len() == 1));
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_a_refusing_port_refuses() {
    let upstream = Script::new(|_| Reply::json(200, "{}"))
        .idle_close(ms(30))
        .start();
    let mut client = Client::connect(upstream.addr).await;
    client.send(&Ask::chat().bytes()).await;
    assert_eq!(client.answer().await.status(), 200);
    assert!(client.ends_within(ms(2000)).await);
    assert_eq!(upstream.closed(0).await.how, Left::Us);

    let refusing = Refusing::new();
    let error = tokio::net::TcpStream::connect(refusing.addr).await;
    let error = error.expect_err("nobody listens");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn the_http2_client_speaks_to_an_http2_server() {
    use http_body_util::Full;
    use hyper::service::service_fn;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let service = service_fn(|request: http::Request<hyper::body::Incoming>| async move {
            let path = request.uri().path().to_owned();
            Ok::<_, std::convert::Infallible>(http::Response::new(Full::<bytes::Bytes>::from(path)))
        });
        let executor = hyper_util::rt::TokioExecutor::new();
        let io = hyper_util::rt::TokioIo::new(socket);
        let server = hyper::server::conn::http2::Builder::new(executor);
        let _ = server.serve_connection(io, service).await;
    });
    let client = ClientH2::connect(addr, 65_535).await;
    let mut answer = client.post("/v1/x", "r-1", "{}").await;
    let (body, error) = whole(answer.body_mut()).await;
    assert_eq!(body, b"/v1/x");
    assert!(error.is_none());
}
