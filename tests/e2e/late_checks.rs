//! C26 for bytes that no meter reads: an instance that sends anything at all is alive, whatever its checks say.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::support::client::{Ask, BodyEnd, Client};
use crate::support::proxy::Setup;
use crate::support::reply::{Reply, SSE_HEAD, ms};
use crate::support::upstream::{Script, Upstream};

const CHUNKED_JSON: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";

/// Refuses its checks, and answers with a byte every 50 ms for two seconds.
fn trickling(head: &'static [u8]) -> Upstream {
    let bytes = move |_: &_| {
        let begun = Reply::new().write(Duration::ZERO, head);
        begun.chunks(ms(50), ms(50), 40, b" ").last_chunk(ms(2_050))
    };
    Script::new(bytes)
        .on_head(|head| {
            let is_check = head.path().ends_with("/health");
            is_check.then(|| Reply::json(503, "{}"))
        })
        .start()
}

async fn stays_in(head: &'static [u8], path: &'static str, measured: bool) {
    let upstreams = [trickling(head), trickling(head)];
    let proxy = Setup::over(&[upstreams[0].addr, upstreams[1].addr])
        .health("check_interval_s = 0.3, check_timeout_s = 0.2")
        .set("measure", &format!("enabled = {measured}"))
        .start();
    let mut asks = JoinSet::new();
    for _ in 0..4 {
        let addr = proxy.addr;
        asks.spawn(async move { Client::ask(addr, &Ask::post(path, "{\"model\":\"m\"}")).await });
    }
    // some six checks each, all refused
    for answer in asks.join_all().await {
        assert_eq!((answer.status(), answer.end), (200, BodyEnd::Clean));
    }
    let metrics = proxy.admin_text("/metrics").await;
    let taken_out = |line: &&str| {
        line.starts_with("evenkeel_instance_ejections_total") && !line.ends_with(" 0")
    };
    assert_eq!(metrics.lines().find(taken_out), None, "{path}");
}

#[tokio::test]
async fn refused_checks_leave_in_what_answers_without_streaming() {
    stays_in(CHUNKED_JSON, "/v1/chat/completions", true).await;
}

#[tokio::test]
async fn refused_checks_leave_in_what_answers_with_embeddings() {
    stays_in(CHUNKED_JSON, "/v1/embeddings", true).await;
}

#[tokio::test]
async fn refused_checks_leave_in_what_streams_while_nothing_is_measured() {
    stays_in(SSE_HEAD, "/v1/chat/completions", false).await;
}
