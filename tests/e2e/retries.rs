//! C23: an instance without room is left alone as long as it asks, and another one takes the request.

use crate::support::client::{Ask, Client};
use crate::support::proxy::Setup;
use crate::support::reply::{Reply, ms};
use crate::support::upstream::{Refusing, Script, Upstream};

fn busy(retry_after: Option<&'static str>) -> Upstream {
    let body = "{\"error\":{\"message\":\"full\"}}";
    let line = retry_after.map_or(String::new(), |wait| format!("retry-after: {wait}\r\n"));
    Script::new(move |_| {
        let head = format!(
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n{line}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        Reply::new().write(ms(0), head)
    })
    .start()
}

fn healthy() -> Upstream {
    Script::new(|_| Reply::chat("hello")).start()
}

#[tokio::test]
async fn a_busy_instance_is_passed_over_and_then_left_alone() {
    let (full, good) = (busy(Some("7")), healthy());
    let proxy = Setup::over(&[full.addr, good.addr])
        .health("check_path = \"\"")
        .start();
    for _ in 0..20 {
        assert_eq!(Client::ask(proxy.addr, &Ask::chat()).await.status(), 200);
    }
    assert_eq!(full.requests().len(), 1, "it asked for 7 s of rest");
    let records = proxy.stop();
    let tried: Vec<_> = records
        .iter()
        .filter_map(|record| record["failed_attempts"].as_array())
        .flatten()
        .collect();
    assert_eq!(tried.len(), 1);
    assert_eq!(
        (
            &tried[0]["instance"],
            &tried[0]["cause"],
            &tried[0]["status"]
        ),
        (&"i0".into(), &"busy".into(), &503.into())
    );
    assert!(records.iter().all(|record| record["outcome"] == "ok"));
}

#[tokio::test]
async fn busy_is_no_failure_and_without_retry_after_the_instance_stays_in() {
    let (full, good) = (busy(None), healthy());
    let proxy = Setup::over(&[full.addr, good.addr])
        .health("check_path = \"\"")
        .start();
    for _ in 0..20 {
        assert_eq!(Client::ask(proxy.addr, &Ask::chat()).await.status(), 200);
    }
    assert!(
        full.requests().len() >= 10,
        "each second request goes there first"
    );
}

#[tokio::test]
async fn if_all_are_busy_the_client_gets_their_answer() {
    let (one, other) = (busy(Some("7")), busy(Some("7")));
    let proxy = Setup::over(&[one.addr, other.addr])
        .health("check_path = \"\"")
        .start();
    let answer = Client::ask(proxy.addr, &Ask::chat()).await;
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.head.header("retry-after"), Some("7"));
    assert!(answer.text().contains("full"));
    assert_eq!((one.requests().len(), other.requests().len()), (1, 1));
}

#[tokio::test]
async fn with_retries_for_busy_off_the_first_answer_goes_on() {
    let (full, good) = (busy(Some("7")), healthy());
    let proxy = Setup::over(&[full.addr, good.addr])
        .health("check_path = \"\"")
        .set("retries", "busy = false")
        .start();
    let first = Client::ask(proxy.addr, &Ask::chat()).await.status();
    let second = Client::ask(proxy.addr, &Ask::chat()).await.status();
    let mut both = [first, second];
    both.sort_unstable();
    assert_eq!(both, [200, 503]);
}

#[tokio::test]
async fn a_dead_instance_costs_no_request_but_the_budget_bounds_second_tries() {
    let (dead, good) = (Refusing::new(), healthy());
    let setup =
        Setup::over(&[dead.addr, good.addr]).health("check_path = \"\", failures_in_a_row = 0");
    let proxy = setup.clone().start();
    for _ in 0..20 {
        assert_eq!(Client::ask(proxy.addr, &Ask::chat()).await.status(), 200);
    }
    let proxy = setup
        .set("retries", "budget_share = 0.0")
        .set("retries", "budget_least = 0")
        .start();
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(Client::ask(proxy.addr, &Ask::chat()).await.status());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 502, 502], "no budget, no second try");
}
