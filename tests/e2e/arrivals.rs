//! When an instance's bytes are said to have come, while the proxy is kept from reading them.
#![cfg(target_os = "linux")]

use std::time::Duration;

use evenkeel::config::checked::ArrivalStamp;
use evenkeel::proxy::arrival::Stamping;
use serde_json::Value;

use crate::support::child::Child;
use crate::support::client::{Ask, Client};
use crate::support::proxy::Setup;
use crate::support::reply::{DONE, Reply, SSE_HEAD, gate, ms, text_event};
use crate::support::upstream::Script;
use crate::support::{PATIENCE, within};

/// So long the proxy is stopped after the instance has written its output.
const HELD_MS: f64 = 500.0;

/// The record of a request whose output came while the proxy was stopped, and the arrival of that output, ms.
async fn held_from_reading(arrival: &str) -> (Value, f64) {
    let ((stopped, when_stopped), (taken, when_taken)) = (gate(), gate());
    let upstream = Script::new(move |_| {
        Reply::sse()
            .wait(&when_stopped)
            .chunk(ms(0), text_event("tide").as_bytes())
            // a read of its own, for one has one stamp
            .wait(&when_taken)
            .chunk(ms(0), DONE.as_bytes())
            .last_chunk(ms(0))
    })
    .start();
    let setup = Setup::one(&upstream)
        .set("measure", &format!("arrival = \"{arrival}\""))
        .set("records", "chunks = \"all\"");
    let mut child = Child::serve(&setup);
    let mut client = Client::connect(child.addr).await;
    client.send(&Ask::chat().id("held").bytes()).await;
    upstream.request(0).await;
    child.stop().await;
    stopped.open();
    let written = async {
        while upstream.written_bytes() <= SSE_HEAD.len() as u64 {
            tokio::time::sleep(ms(1)).await;
        }
    };
    within("the output to be written", PATIENCE, written).await;
    tokio::time::sleep(Duration::from_secs_f64(HELD_MS / 1e3)).await;
    child.signal("CONT");
    let head = client.head().await;
    let mut body = client.body(&head);
    body.at_least(1).await;
    taken.open();
    while body.next().await.is_some() {}
    child.signal("TERM");
    let read = move || {
        assert!(child.wait().success());
        (child.records().remove(0), child.chunk_lines().remove(0))
    };
    let (record, chunks) = tokio::task::spawn_blocking(read).await.unwrap();
    let came_us = chunks["chunks"][0][0].as_f64().unwrap();
    (record, came_us / 1e3)
}

fn figure(record: &Value, name: &str) -> f64 {
    let value = &record[name];
    value.as_f64().unwrap_or_else(|| panic!("{name}: {value}"))
}

/// The stages are the time outside the engine, to the rounding of each.
fn assert_stages_add_up(record: &Value) {
    let stages = record["stages"].as_object().unwrap().values();
    let sum_ms: f64 = stages.map(|stage| stage.as_f64().unwrap()).sum();
    let outside_ms = figure(record, "client_ttft_ms") - figure(record, "server_ttft_ms");
    assert!((sum_ms - outside_ms).abs() < 0.01, "{record:#}");
}

#[tokio::test]
async fn the_kernel_stamps_what_a_held_up_proxy_cannot_read() {
    // the kernel begins to stamp a little after it was asked first
    let _stamping = Stamping::begin(ArrivalStamp::Kernel);
    tokio::time::sleep(ms(200)).await;
    let (record, came_ms) = held_from_reading("kernel").await;
    let [server_ms, client_ms, wait_ms] =
        ["server_ttft_ms", "client_ttft_ms", "read_wait_ms"].map(|name| figure(&record, name));
    assert!(server_ms <= client_ms - HELD_MS, "{record:#}");
    assert!((came_ms - server_ms).abs() < 0.01, "{came_ms} ms");
    // the time until the read is Evenkeel's own, and told
    assert!(wait_ms >= HELD_MS, "{record:#}");
    assert!(
        wait_ms <= figure(&record["stages"], "relay_ms"),
        "{record:#}"
    );
    assert_stages_add_up(&record);
}

#[tokio::test]
async fn a_read_is_stamped_when_it_is_done() {
    let (record, came_ms) = held_from_reading("read").await;
    assert!(came_ms >= HELD_MS, "{came_ms} ms");
    assert!(figure(&record, "server_ttft_ms") >= HELD_MS, "{record:#}");
    assert_eq!(record["read_wait_ms"], Value::Null);
    assert_stages_add_up(&record);
}

#[tokio::test]
async fn bodies_pass_whole_and_unchanged_under_the_kernels_stamps() {
    // more than a read takes, and more than a socket holds
    let long: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let body = long.clone();
    let upstream = Script::new(move |request| match request.head.path() {
        "/v1/embeddings" => Reply::whole(200, "application/json", &body),
        _ => Reply::paced_chat(2000, ms(0)),
    })
    .start();
    let proxy = Setup::one(&upstream)
        .set("server", "workers = 1")
        .set("measure", "arrival = \"kernel\"")
        .start();
    for _ in 0..3 {
        let answer = Client::ask(proxy.addr, &Ask::post("/v1/embeddings", "{}")).await;
        assert!(answer.body() == long, "{} bytes", answer.body().len());
        let answer = Client::ask(proxy.addr, &Ask::chat()).await;
        assert!(answer.text().ends_with(DONE), "{}", answer.text());
    }
    assert_eq!(upstream.connections(), 1, "it was not used again");
}
