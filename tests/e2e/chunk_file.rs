//! The chunk file: every output chunk of a request, when it came and when the client's socket took it.

use crate::support::client::{Ask, Client};
use crate::support::proxy::{Proxy, Setup};
use crate::support::reply::{DONE, Reply, finish_event, ms, role_event, text_event};
use crate::support::upstream::{Script, Upstream};

fn start(reply: Reply) -> (Upstream, Proxy) {
    let upstream = Script::new(move |_| reply.clone()).start();
    let proxy = Setup::one(&upstream)
        .set("records", "chunks = \"all\"")
        .start();
    (upstream, proxy)
}

/// The chunks of the one request that was made: arrival and hand-over, µs.
/// Chunks of one read past the 64th have no hand-over.
async fn chunks(proxy: &Proxy) -> Vec<(i64, Option<i64>)> {
    let answer = Client::ask(proxy.addr, &Ask::chat().header("x-request-id", "one")).await;
    assert_eq!(answer.status(), 200);
    proxy.record("one").await;
    let lines = proxy.chunk_lines();
    assert_eq!(lines[0]["request_id"], "one");
    let chunks = lines[0]["chunks"].as_array().unwrap().iter();
    chunks
        .map(|chunk| (chunk[0].as_i64().unwrap(), chunk[3].as_i64()))
        .collect()
}

#[tokio::test]
async fn chunks_that_come_with_the_end_have_a_hand_over_too() {
    let words: String = (0..5).map(|_| text_event("word")).collect();
    let body = format!("{}{words}{}{DONE}", role_event(), finish_event());
    let (_upstream, proxy) = start(Reply::whole(200, "text/event-stream", body.as_bytes()));
    let chunks = chunks(&proxy).await;
    assert_eq!(chunks.len(), 5);
    let handed = |(came, taken): &(i64, Option<i64>)| taken.is_some_and(|taken| *came <= taken);
    assert!(chunks.iter().all(handed), "{chunks:?}");
}

#[tokio::test]
async fn a_long_stream_is_there_to_its_last_chunk() {
    let (_upstream, proxy) = start(Reply::paced_chat(2000, ms(0)));
    let chunks = chunks(&proxy).await;
    assert_eq!(chunks.len(), 2000, "more than a log holds in memory");
    assert!(chunks.windows(2).all(|pair| pair[0].0 <= pair[1].0));
}
