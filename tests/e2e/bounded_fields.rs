//! What a client sends is cut before it becomes a field of a record or a log, and never becomes a metric's label.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::support::child::{Child, run_with};
use crate::support::client::{Ask, Client};
use crate::support::proxy::{Setup, admin_text};
use crate::support::reply::{Reply, ms};
use crate::support::upstream::Script;
use crate::support::{PATIENCE, within};

const KEY: &str = "ek-client-5f1d7a93c2";
/// What the values are made of: found wherever one was written.
const MARK: &str = "qzq";
/// Bytes that a field may hold of what a client sent.
const MOST: usize = 128;

fn mark(bytes: usize) -> String {
    MARK.repeat(bytes.div_ceil(MARK.len()))[..bytes].to_owned()
}

/// Requests with such a value wherever a client may put one, and the status of each; all make records.
fn asks(value: &str) -> Vec<(Ask, u16)> {
    let body = format!("{{\"model\":\"{value}\",\"stream\":true,\"messages\":[]}}");
    let form = format!(
        "--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\n{value}\r\n--b--\r\n"
    );
    let form = Ask::post("/v1/audio/transcriptions", form);
    vec![
        (Ask::chat().id(value), 200),
        (Ask::chat().header("user-agent", value), 200),
        (Ask::chat().header("x-evenkeel-instance", value), 200),
        (Ask::post("/v1/chat/completions", body), 200),
        (
            form.header("content-type", "multipart/form-data; boundary=b"),
            200,
        ),
        (
            Ask::post(&format!("/v1/chat/completions?{value}"), "{}"),
            200,
        ),
        (Ask::post(&format!("/{value}"), "{}"), 404),
        (Ask::get(&format!("/v1/responses/{value}")), 404),
        (Ask::chat().method(value), 405),
    ]
}

/// Asks all, as one who has the key or as one who has a wrong one (401, where there are keys); how many.
async fn ask_all(addr: SocketAddr, value: &str, known: bool) -> usize {
    let asks = asks(value);
    let count = asks.len();
    for (ask, status) in asks {
        let key = if known { KEY } else { value };
        let ask = ask.header("authorization", &format!("Bearer {key}"));
        let answer = Client::ask(addr, &ask).await;
        let fits = answer.status() == status || (!known && answer.status() == 401);
        assert!(fits, "{}: {}", answer.status(), answer.text());
    }
    count
}

/// Every series of `/metrics`: name and labels.
async fn series(child: &Child) -> BTreeSet<String> {
    let text = admin_text(child.admin, "/metrics").await;
    assert!(!text.contains(MARK), "a client's value in /metrics");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let names = lines.filter_map(|line| line.rsplit_once(' '));
    names.map(|(name, _)| name.to_owned()).collect()
}

async fn recorded(child: &Child, count: usize) {
    let all = async {
        while child.records().len() < count {
            tokio::time::sleep(ms(5)).await;
        }
    };
    within("the records of all requests", PATIENCE, all).await;
}

#[tokio::test]
async fn what_a_client_sends_is_bounded_in_fields_and_becomes_no_label() {
    let (_, hash, _) = run_with(&["hash-key"], KEY);
    let keys = format!("[[keys]]\nname = \"a\"\nsha256 = \"{}\"\n", hash.trim());
    for (format, keys) in [("json", ""), ("json", &keys), ("text", &keys)] {
        let upstream = Script::new(|_| Reply::chat("x")).start();
        let access = format!("access = {{ format = \"{format}\" }}");
        let setup = Setup::one(&upstream).set("log", &access).and(keys);
        let mut child = Child::serve_with(&setup, |command, dir| {
            let log = std::fs::File::create(dir.join("stderr.log")).unwrap();
            command.stderr(log);
        });
        // keys or none, each kind of request has its series once it was seen
        let who = [true, false];
        let mut asked = 0;
        for known in who {
            asked += ask_all(child.addr, MARK, known).await;
        }
        recorded(&child, asked).await;
        let before = series(&child).await;
        for bytes in [MOST + 1, 4 * 1024, 10 * 1024] {
            for known in who {
                asked += ask_all(child.addr, &mark(bytes), known).await;
            }
        }
        recorded(&child, asked).await;
        assert_eq!(series(&child).await, before, "new series");

        child.signal("TERM");
        assert!(child.wait().success());
        let log = std::fs::read_to_string(child.dir().join("stderr.log")).unwrap();
        let records = child.records();
        assert_eq!(records.len(), asked);
        let records: String = records.iter().map(|record| format!("{record}\n")).collect();
        for (what, text) in [("the log", log), ("the records", records)] {
            assert!(text.contains(MARK), "nothing in {what}: this shows nothing");
            let over = text.find(&mark(MOST + 1));
            assert_eq!(over, None, "more than {MOST} bytes of a value in {what}");
        }
    }
}
