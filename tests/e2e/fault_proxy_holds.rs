//! The fault proxy does what its plan says, and nothing else.

use std::time::Instant;

use bytes::Bytes;

use crate::support::client::{Answer, Ask, BodyEnd, Client};
use crate::support::fault::{Act, At, Fault};
use crate::support::fault_pipe::Ending;
use crate::support::fault_proxy::{FaultProxy, Sighting};
use crate::support::reply::{End, Reply, ms, text_event};
use crate::support::upstream::{Left, Script, Upstream};

fn upstream() -> Upstream {
    Script::new(|_| Reply::chat("hello")).start()
}

fn before(upstream: &Upstream, fault: Fault) -> FaultProxy {
    FaultProxy::start(upstream.addr, move |_| fault.clone())
}

async fn ended(proxy: &FaultProxy, count: usize) -> Vec<Sighting> {
    proxy
        .until("the end of exchanges", |log| {
            let all = log.len() >= count && log.iter().all(|one| one.end.is_some());
            all.then(|| log.to_vec())
        })
        .await
}

async fn ask(proxy: &FaultProxy) -> Option<Answer> {
    let mut client = Client::connect(proxy.addr).await;
    let sent = client.try_send(&Ask::chat().id("x").bytes()).await;
    sent.ok()?;
    client.answer_if_any().await
}

#[tokio::test]
async fn without_a_fault_bytes_pass_and_connections_are_kept() {
    let upstream = upstream();
    let proxy = before(&upstream, Fault::none());
    let straight = Client::ask(upstream.addr, &Ask::chat()).await;
    let mut client = Client::connect(proxy.addr).await;
    for reuse in 0..3 {
        client.send_bytewise(&Ask::chat().id("x").bytes()).await;
        let answer = client.answer().await;
        assert_eq!(answer.end, BodyEnd::Clean);
        assert_eq!(answer.head.raw, straight.head.raw);
        assert_eq!(answer.body(), straight.body());
        let seen = ended(&proxy, reuse + 1).await;
        assert_eq!(seen[reuse].end, Some(Ending::Whole));
        assert_eq!((seen[reuse].reuse, seen[reuse].struck), (reuse, 0));
    }
    assert_eq!((proxy.connections(), proxy.open()), (1, 0));
    drop(client);
    proxy.idle().await;
}

#[tokio::test]
async fn delays_and_trickles_cost_time_and_no_byte() {
    let upstream = upstream();
    let straight = Client::ask(upstream.addr, &Ask::chat()).await;
    let trickle = Act::Trickle {
        bytes: 20,
        every: ms(1),
    };
    let slow = |act: Act| Fault::none().down(At::Body(5), act);
    let least = ms(straight.body().len() as u64 / 20 - 1);
    for (fault, least) in [
        (slow(Act::Delay(ms(40))), ms(40)),
        (slow(trickle), least),
        (Fault::none().up(At::Byte(9), Act::Delay(ms(40))), ms(40)),
    ] {
        let proxy = before(&upstream, fault);
        let begun = Instant::now();
        let answer = ask(&proxy).await.unwrap();
        assert_eq!(
            (answer.body(), answer.end),
            (straight.body(), BodyEnd::Clean)
        );
        assert!(begun.elapsed() >= least);
        assert_eq!(ended(&proxy, 1).await[0].struck, 1);
    }
}

#[tokio::test]
async fn an_answer_is_cut_or_reset_at_its_byte() {
    let upstream = upstream();
    let length = Client::ask(upstream.addr, &Ask::chat())
        .await
        .head
        .raw
        .len() as u64;
    for (act, end) in [(Act::Close, Ending::Closed), (Act::Reset, Ending::Reset)] {
        for at in [0, 10, length, length + 33] {
            let proxy = before(&upstream, Fault::none().down(At::Byte(at), act.clone()));
            let answer = ask(&proxy).await;
            assert_eq!(answer.is_some(), at >= length, "{act:?} at {at}");
            assert!(answer.is_none_or(|answer| answer.end != BodyEnd::Clean));
            let seen = &ended(&proxy, 1).await[0];
            assert_eq!((seen.end, seen.struck), (Some(end), 1));
            proxy.idle().await;
        }
    }
}

#[tokio::test]
async fn a_request_is_cut_at_its_byte_and_a_reset_reaches_the_instance() {
    let upstream = Script::new(|_| Reply::new().then(End::Hold)).start();
    let cut = before(&upstream, Fault::none().up(At::Byte(30), Act::Close));
    assert!(ask(&cut).await.is_none());
    assert_eq!(upstream.closed(0).await.how, Left::Fin);
    assert_eq!(upstream.requests().len(), 0);
    let reset = before(&upstream, Fault::none().up(At::End, Act::Reset));
    assert!(ask(&reset).await.is_none());
    assert_eq!(upstream.closed(1).await.how, Left::Reset);
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_half_close_ends_one_direction_only() {
    let upstream = Script::new(|_| Reply::new().then(End::Hold)).start();
    let proxy = before(&upstream, Fault::none().up(At::End, Act::HalfClose));
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().bytes()).await;
    assert_eq!(upstream.closed(0).await.how, Left::Fin);
    assert!(client.ends_within(ms(5000)).await, "it closed in return");

    let upstream = self::upstream();
    let proxy = before(&upstream, Fault::none().down(At::Body(9), Act::HalfClose));
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().bytes()).await;
    assert_eq!(client.answer().await.end, BodyEnd::Closed);
    assert_eq!(proxy.connections(), 1, "until the client closes too");
    drop(client);
    proxy.idle().await;
    assert_eq!(ended(&proxy, 1).await[0].end, Some(Ending::NearLeft));
}

#[tokio::test]
async fn a_black_hole_swallows_until_somebody_leaves() {
    for fault in [
        Fault::none().up(At::Byte(0), Act::BlackHole),
        Fault::none().up(At::Body(3), Act::BlackHole),
        Fault::none().down(At::Byte(0), Act::BlackHole),
        Fault::none().down(At::Body(3), Act::BlackHole),
    ] {
        let upstream = upstream();
        let proxy = before(&upstream, fault);
        let mut client = Client::connect(proxy.addr).await;
        client.send(&Ask::chat().bytes()).await;
        assert!(!client.ends_within(ms(40)).await);
        assert_eq!(proxy.open(), 1);
        drop(client);
        assert_eq!(ended(&proxy, 1).await[0].end, Some(Ending::NearLeft));
        proxy.idle().await;
    }
}

#[tokio::test]
async fn bytes_are_inserted_and_framing_is_garbled() {
    let upstream = upstream();
    let interim = Act::Insert(Bytes::from_static(b"HTTP/1.1 103 Early Hints\r\n\r\n"));
    let more = Act::Insert(Bytes::from_static(b"and more"));
    let fault = Fault::none().down(At::Byte(0), interim).down(At::End, more);
    let proxy = before(&upstream, fault);
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().bytes()).await;
    assert_eq!(client.any_head().await.status(), 103);
    assert_eq!(client.answer().await.end, BodyEnd::Clean);
    assert_eq!(ended(&proxy, 1).await[0].struck, 2);

    let proxy = before(&upstream, Fault::none().down(At::Body(0), Act::Garble));
    let addr = proxy.addr;
    // the client fails its test when a chunk's size is no number
    let broken = tokio::spawn(async move { Client::ask(addr, &Ask::chat()).await });
    assert!(broken.await.unwrap_err().is_panic());
    assert_eq!(proxy.sightings()[0].struck, 1);
}

#[tokio::test]
async fn it_answers_in_the_instances_place() {
    let upstream = upstream();
    let text = Bytes::from_static(b"HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\nno");
    let proxy = before(&upstream, Fault::none().up(At::Byte(0), Act::Answer(text)));
    let mut client = Client::connect(proxy.addr).await;
    for _ in 0..2 {
        client.send(&Ask::chat().bytes()).await;
        let answer = client.answer().await;
        assert_eq!((answer.status(), answer.text().as_str()), (503, "no"));
    }
    assert_eq!(upstream.requests().len(), 0);
}

#[tokio::test]
async fn instances_die_and_come_back() {
    let held = Script::new(|_| {
        Reply::sse()
            .chunk(ms(0), text_event("a").as_bytes())
            .then(End::Hold)
    })
    .start();
    let proxy = before(&held, Fault::none());
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().bytes()).await;
    let head = client.head().await;
    let mut body = client.body(&head);
    body.at_least(10).await;

    proxy.refuse().await;
    proxy.kill_connections();
    while body.next().await.is_some() {}
    assert_eq!(body.end(), Some(BodyEnd::Reset));
    assert_eq!(ended(&proxy, 1).await[0].end, Some(Ending::Killed));
    let refused = tokio::net::TcpStream::connect(proxy.addr).await;
    assert_eq!(
        refused.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );

    let upstream = upstream();
    proxy.set_target(upstream.addr);
    proxy.listen();
    assert_eq!(ask(&proxy).await.unwrap().end, BodyEnd::Clean);
    proxy.reset_accepted(true);
    assert!(ask(&proxy).await.is_none());
    proxy.reset_accepted(false);
    assert_eq!(ask(&proxy).await.unwrap().end, BodyEnd::Clean);
}
