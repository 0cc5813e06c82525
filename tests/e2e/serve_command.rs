//! `evenkeel serve` as a user meets it: the line it prints, how it stops, what it says of bad files.

use crate::support::child::{Child, run};
use crate::support::client::{Ask, BodyEnd, Client};
use crate::support::proxy::{Dir, Setup};
use crate::support::reply::{Reply, ms};
use crate::support::upstream::Script;

#[tokio::test]
async fn it_prints_where_it_listens_and_drains_on_sigterm() {
    let upstream = Script::new(|_| Reply::paced_chat(20, ms(20))).start();
    let mut child = Child::serve(&Setup::one(&upstream).set("timeouts", "drain_s = 30"));
    let line = format!("listening server={} admin={}\n", child.addr, child.admin);
    assert_eq!(child.line, line);
    assert_ne!(child.addr.port(), 0);

    let mut client = Client::connect(child.addr).await;
    client.send(&Ask::chat().id("open").bytes()).await;
    let head = client.head().await;
    child.signal("TERM");
    let mut body = client.body(&head);
    while body.next().await.is_some() {}
    assert_eq!(body.end(), Some(BodyEnd::Clean), "an open stream was cut");
    let status = tokio::task::spawn_blocking(move || {
        let status = child.wait();
        (status, child.records())
    });
    let (status, records) = status.await.unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(records.len(), 1, "the record was not written");
    assert_eq!(records[0]["outcome"], "ok");
}

#[test]
fn a_missing_file_is_named() {
    let (status, out, err) = run(&["serve", "--config", "/nowhere/at-all.toml"]);
    assert!(!status.success());
    assert!(err.contains("/nowhere/at-all.toml"), "{err}");
    assert!(!err.contains("panicked"), "{err}");
    assert_eq!(out, "");
}

#[test]
fn a_bad_file_is_explained_by_file_line_and_key() {
    let dir = Dir::new();
    let file = dir.0.join("bad.toml");
    let good = "[server]\nlisten = \"127.0.0.1:0\"\n[[pools]]\nname = \"p\"\npolicy = { kind = \"round_robin\" }\n[[pools.instances]]\nurl = \"http://127.0.0.1:1\"\n";
    for (text, line, word) in [
        (good.replace("listen", "lisen"), ":2", "lisen"),
        (
            good.replace("round_robin", "round_robbin"),
            ":5",
            "round_robin",
        ),
        (good.replace("http://127.0.0.1:1", "ftp://x"), ":7", "url"),
        (good.replace("[server]", "[server"), ":1", "]"),
    ] {
        std::fs::write(&file, text).unwrap();
        for command in [&["serve", "--config"][..], &["check"]] {
            let mut args = command.to_vec();
            args.push(file.to_str().unwrap());
            let (status, out, err) = run(&args);
            let said = format!("{out}{err}");
            assert!(!status.success(), "{args:?} took it:\n{said}");
            for expected in ["bad.toml", line, word] {
                assert!(said.contains(expected), "no {expected:?} in\n{said}");
            }
            assert!(!said.contains("panicked"), "{said}");
        }
    }
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let dir = Dir::new();
    let file = dir.0.join("c.toml");
    let text = format!(
        "[server]\nlisten = \"{addr}\"\n[[pools]]\nname = \"p\"\npolicy = {{ kind = \"round_robin\" }}\n[[pools.instances]]\nurl = \"http://127.0.0.1:1\"\n"
    );
    std::fs::write(&file, text).unwrap();
    let (status, _, err) = run(&["serve", "--config", file.to_str().unwrap()]);
    assert!(!status.success());
    assert!(err.contains(&addr), "{err}");
}
