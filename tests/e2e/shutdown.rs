//! SIGTERM: load balancers in front are told, open streams end well within a deadline, who comes late is told so.

use std::time::Instant;

use crate::support::child::Child;
use crate::support::client::{Ask, BodyEnd, Client};
use crate::support::frames::{
    ACK, DATA, END_STREAM, Frame, Frames, GOAWAY, HEADERS, PING, RST_STREAM, frame, request,
};
use crate::support::proxy::{Dir, Setup};
use crate::support::reply::{End, GateKey, Reply, finish_event, gate, ms, text_event};
use crate::support::upstream::{Script, Upstream};
use crate::support::{PATIENCE, within};

/// The answer to a ping.
fn pong(ping: &Frame) -> Vec<u8> {
    frame(PING, ACK, 0, &ping.payload)
}

fn held() -> (GateKey, Upstream) {
    let (key, closed) = gate();
    let reply = move |_: &_| {
        let begun = Reply::sse().chunk(ms(0), text_event("a").as_bytes());
        let waited = begun.wait(&closed);
        waited
            .chunk(ms(0), finish_event().as_bytes())
            .last_chunk(ms(0))
    };
    (key, Script::new(reply).start())
}

async fn status(addr: std::net::SocketAddr, path: &str) -> u16 {
    let ask = Ask::get(path).header("connection", "close");
    Client::ask(addr, &ask).await.status()
}

/// Until what it says on `/ready` is that it stops.
async fn stopping(child: &Child) {
    let told = async {
        while status(child.admin, "/ready").await != 503 {
            tokio::time::sleep(ms(2)).await;
        }
    };
    within("/ready to say 503", PATIENCE, told).await;
}

async fn ended(mut child: Child) -> (std::process::ExitStatus, Vec<serde_json::Value>) {
    let ended = tokio::task::spawn_blocking(move || (child.wait(), child.records()));
    within("the program's end", PATIENCE, ended).await.unwrap()
}

#[tokio::test]
async fn who_comes_late_is_told_so_while_open_streams_end() {
    let (key, upstream) = held();
    let child = Child::serve(&Setup::one(&upstream).set("timeouts", "drain_s = 30"));
    let mut client = Client::connect(child.addr).await;
    client.send(&Ask::chat().id("open").bytes()).await;
    let head = client.head().await;
    assert_eq!(status(child.admin, "/ready").await, 200);
    child.signal("TERM");
    stopping(&child).await;
    // the acceptor may hand over one more before the cores hear of the end
    let late = async {
        loop {
            if status(child.addr, "/health").await == 503 {
                return;
            }
            tokio::time::sleep(ms(2)).await;
        }
    };
    within("/health to say 503", PATIENCE, late).await;
    for _ in 0..3 {
        let answer = Client::ask(child.addr, &Ask::chat().id("late")).await;
        assert_eq!(
            (answer.status(), answer.error_code().as_str()),
            (503, "draining")
        );
        assert_eq!(answer.head.header("connection"), Some("close"));
        assert_eq!(answer.head.header("retry-after"), Some("1"));
    }
    key.open();
    let mut body = client.body(&head);
    while body.next().await.is_some() {}
    assert_eq!(body.end(), Some(BodyEnd::Clean), "an open stream was cut");
    let (status, records) = ended(child).await;
    assert!(status.success(), "{status}");
    let of = |id: &str, outcome: &str| {
        let records = records.iter();
        records
            .filter(|one| one["request_id"] == id && one["outcome"] == outcome)
            .count()
    };
    assert_eq!((of("open", "ok"), of("late", "shed")), (1, 3));
    assert_eq!(upstream.requests().len(), 1, "a late one was passed on");
}

#[tokio::test]
async fn an_http2_client_is_told_to_go_and_gets_the_stream_it_has_to_its_end() {
    let (key, upstream) = held();
    let child = Child::serve(&Setup::one(&upstream).set("timeouts", "drain_s = 30"));
    let mut frames = Frames::connect(child.addr).await;
    assert!(frames.send(&request(1)).await);
    let head = frames.next_of(&[HEADERS]).await.unwrap();
    assert_eq!((head.stream, head.status()), (1, Some(200)));
    let mut body = frames.next_of(&[DATA]).await.unwrap().payload;
    child.signal("TERM");
    let told = frames.next_of(&[GOAWAY, RST_STREAM]).await.unwrap();
    assert_eq!((told.kind, told.error()), (GOAWAY, Some(0)), "{told:?}");
    key.open();
    loop {
        let next = frames.next_of(&[DATA, PING, GOAWAY, RST_STREAM]).await;
        let next = next.expect("closed before the stream's end");
        match next.kind {
            DATA => body.extend_from_slice(&next.payload),
            // a ping asks whether the goodbye has come
            PING => assert!(frames.send(&pong(&next)).await),
            GOAWAY => assert_eq!(next.error(), Some(0)),
            _ => panic!("an open stream was cut: {next:?}"),
        }
        if next.kind == DATA && next.flags & END_STREAM != 0 {
            break;
        }
    }
    let sent = format!("{}{}", text_event("a"), finish_event());
    assert_eq!(String::from_utf8_lossy(&body), sent);
    assert!(matches!(frames.goodbye().await, None | Some(0)));
    let (status, records) = ended(child).await;
    assert!(status.success(), "{status}");
    assert_eq!(records.len(), 1);
    assert_eq!(records[0]["outcome"], "ok", "{}", records[0]);
}

#[tokio::test]
async fn with_a_notice_requests_are_served_while_load_balancers_turn_away() {
    let upstream = Script::new(|_| Reply::chat("served")).start();
    let child = Child::serve(&Setup::one(&upstream).set("timeouts", "drain_notice_s = 1.0"));
    let mut kept = Client::connect(child.addr).await;
    kept.send(&Ask::chat().bytes()).await;
    assert_eq!(kept.answer().await.status(), 200);
    let begun = Instant::now();
    child.signal("TERM");
    stopping(&child).await;
    assert_eq!(status(child.addr, "/health").await, 503);
    kept.send(&Ask::chat().bytes()).await;
    assert_eq!(kept.answer().await.status(), 200);
    assert_eq!(Client::ask(child.addr, &Ask::chat()).await.status(), 200);
    let (status, records) = ended(child).await;
    assert!(status.success(), "{status}");
    assert!(begun.elapsed() >= ms(1000), "{:?}", begun.elapsed());
    assert_eq!(records.len(), 3);
}

#[tokio::test]
async fn what_is_open_at_the_deadline_is_cut_and_a_second_signal_does_not_wait_for_it() {
    for (drain_s, signals) in [("0.3", 1), ("600", 2)] {
        let upstream = Script::new(|_| Reply::sse().then(End::Hold)).start();
        let setup = Setup::one(&upstream).set("timeouts", &format!("drain_s = {drain_s}"));
        let child = Child::serve(&setup);
        let mut client = Client::connect(child.addr).await;
        client.send(&Ask::chat().bytes()).await;
        let head = client.head().await;
        child.signal("TERM");
        if signals == 2 {
            stopping(&child).await;
            child.signal("TERM");
        }
        let (status, _) = ended(child).await;
        assert_eq!(status.success(), signals == 1, "{status}");
        let mut body = client.body(&head);
        while body.next().await.is_some() {}
        assert_ne!(
            body.end(),
            Some(BodyEnd::Clean),
            "it ended clean though cut"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_lines_are_written_whoever_still_looks_at_the_server() {
    let dir = Dir::new();
    let file = dir.0.join("access.log");
    let access = format!(
        "access = {{ format = \"json\", path = \"{}\" }}",
        file.display()
    );
    let upstream = Script::new(|_| Reply::chat("served")).start();
    let proxy = Setup::one(&upstream).set("log", &access).start();
    let answer = Client::ask(proxy.addr, &Ask::chat().id("last")).await;
    assert_eq!(answer.status(), 200);
    let looking = proxy.shared().clone();
    assert_eq!(proxy.stop().len(), 1);
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.contains("\"request_id\":\"last\""), "{written}");
    drop(looking);
}
