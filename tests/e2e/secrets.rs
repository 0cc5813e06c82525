//! Secrets stay secret: a run at the most talkative level, and everything it wrote, searched.

use std::path::Path;

use crate::support::child::{Child, PROGRAM, run, run_with};
use crate::support::client::{Ask, Client};
use crate::support::client_h2::{ClientH2, whole};
use crate::support::proxy::{Dir, Setup};
use crate::support::reply::{End, Reply, ms};
use crate::support::upstream::Script;

const KEY: &str = "ek-client-5f1d7a93c2";
const WRONG: &str = "ek-wrong-77aa01be55";
const ENGINE: &str = "sk-engine-9b0c44d2e8";
const TOKEN: &str = "admin-token-31337c0de";
/// What `Ask::chat` asks, and what it is told: nobody's business but the client's.
const PROMPT: &str = "hello there";
const ANSWER: &str = "saffron lighthouse";

fn files(dir: &Path, into: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, into);
        } else {
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            into.push((path.display().to_string(), text));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_run_writes_holds_a_secret() {
    // the last of four breaks off, so that errors are told too
    let upstream = Script::new(|request| match request.number {
        3 => Reply::sse().write(ms(0), "zz\r\n").then(End::Close),
        _ => Reply::chat(ANSWER),
    })
    .start();
    let (_, hash, _) = run_with(&["hash-key"], KEY);
    let setup = Setup::one(&upstream)
        .pool("engine_key = \"env:ENGINE_KEY\"")
        .set("admin", "token = \"env:ADMIN_TOKEN\"")
        .set("log", "access = { format = \"text\" }")
        .set("records", "chunks = \"all\"")
        .and(&format!(
            "[[keys]]\nname = \"a\"\nsha256 = \"{}\"",
            hash.trim()
        ));
    let mut child = Child::serve_with(&setup, |command, dir| {
        let log = std::fs::File::create(dir.join("stderr.log")).unwrap();
        command
            .env("EVENKEEL_LOG", "trace")
            .env("ENGINE_KEY", ENGINE)
            .env("ADMIN_TOKEN", TOKEN)
            .stderr(log);
    });
    let with = |ask: Ask, key: &str| ask.header("authorization", &format!("Bearer {key}"));
    let mut said = vec![child.line.clone()];
    assert!(String::from_utf8_lossy(&Ask::chat().bytes()).contains(PROMPT));
    for ask in [
        with(Ask::chat(), KEY),
        Ask::chat().header("x-api-key", KEY),
        with(Ask::chat(), WRONG),
        Ask::chat().header("x-api-key", WRONG),
        with(Ask::get("/v1/models"), KEY),
        with(Ask::chat(), KEY),
    ] {
        let answer = Client::ask(child.addr, &ask).await;
        said.push(String::from_utf8_lossy(&answer.head.raw).into_owned() + &answer.text());
    }
    let h2 = ClientH2::connect(child.addr, 65_535).await;
    for key in [KEY, WRONG] {
        let body = r#"{"model":"m","messages":[]}"#;
        let mut answer = h2.post_as(key, "/v1/chat/completions", body).await;
        let (text, _) = whole(answer.body_mut()).await;
        said.push(String::from_utf8_lossy(&text).into_owned());
    }
    for token in [TOKEN, WRONG] {
        let ask = with(
            Ask::post("/api/fleet", "{}").header("connection", "close"),
            token,
        );
        let answer = Client::ask(child.admin, &ask).await;
        assert_eq!(answer.status(), if token == TOKEN { 405 } else { 401 });
        said.push(answer.text());
    }
    for path in ["/metrics", "/api/fleet", "/api/stats"] {
        said.push(crate::support::proxy::admin_text(child.admin, path).await);
    }
    child.signal("TERM");
    child.wait();
    let mut written = Vec::new();
    files(child.dir(), &mut written);
    let log = written
        .iter()
        .find(|(path, _)| path.ends_with("stderr.log"));
    let log = &log.unwrap().1;
    assert!(
        log.contains("TRACE") && log.contains("key=a"),
        "the log tells too little:\n{log}"
    );
    assert!(written.iter().any(|(path, _)| path.contains("records-")));
    for (place, text) in &written {
        for words in [PROMPT, ANSWER] {
            assert!(!text.contains(words), "{words:?} is in {place}:\n{text}");
        }
    }
    written.extend(said.into_iter().map(|text| ("an answer".to_owned(), text)));
    for (place, text) in &written {
        for secret in [KEY, WRONG, ENGINE, TOKEN] {
            assert!(!text.contains(secret), "{secret} is in {place}:\n{text}");
        }
    }
}

/// Ends of a file, with a word of what is said of each.
fn misplaced() -> Vec<(String, &'static str)> {
    let end = |text: &str, word| (text.replace("SECRET", ENGINE), word);
    vec![
        end("engine_key = \"SECRET\"", "pools[0].engine_key"),
        end("[admin]\ntoken = \"SECRET\"", "admin.token"),
        end(
            "[[keys]]\nname = \"a\"\nsha256 = \"SECRET\"",
            "keys[0].sha256",
        ),
        // on the line that is shown
        end(
            "keys = [{ name = \"a\", sha256 = \"SECRET\" }]",
            "unknown key `keys`",
        ),
        end("engin_key = \"SECRET\"", "did you mean `engine_key`"),
        end("engine_key = [\"SECRET\"]", "must be a string"),
        end("engine_key = SECRET", "not TOML"),
        end("engine_key = \"SECRET", "not TOML"),
        end(
            "[[pools]]\nname = \"q\"\nmodels = [\"m\"]\npolicy = { kind = \"round_robin\" }\ninstances = [{ url = \"http://me:SECRET@host\" }]",
            "no user or password",
        ),
        end("share = -1.0 # was SECRET", "share"),
        end("tls = \"SECRET\"", "pools[0].tls"),
    ]
}

#[test]
fn a_secret_in_the_wrong_place_is_not_shown() {
    let dir = Dir::new();
    let file = dir.0.join("c.toml");
    let good = "[server]\nlisten = \"127.0.0.1:0\"\n[[pools]]\nname = \"p\"\npolicy = { kind = \"round_robin\" }\n\
                instances = [{ url = \"http://127.0.0.1:1\" }]\n";
    let at_the_top = [
        format!("admin = {{ token = \"{ENGINE}\" }}\n{good}"),
        format!("admin = \"{ENGINE}\"\n{good}"),
        format!("keys = [{{ name = \"a\", sha256 = \"{ENGINE}\" }}]\n{good}"),
    ];
    let misplaced = misplaced().into_iter();
    let texts = misplaced.map(|(end, word)| (format!("{good}{end}\n"), word));
    for (text, word) in texts.chain(at_the_top.map(|text| (text, "error"))) {
        std::fs::write(&file, &text).unwrap();
        let (status, out, err) = run(&["check", file.to_str().unwrap()]);
        assert!(
            !status.success() && err.contains(word),
            "{text}\n{out}{err}"
        );
        assert!(!err.contains(ENGINE), "{err}");
    }
}

#[tokio::test]
async fn a_reload_that_finds_a_secret_in_the_wrong_place_does_not_show_it() {
    let upstream = Script::new(|_| Reply::chat(ANSWER)).start();
    let setup = Setup::one(&upstream).set("reload", "watch = false");
    let proxy = setup.start();
    for line in [
        "engin_key = \"SECRET\"",
        "engine_key = SECRET",
        "engine_key = \"SECRET\"",
    ] {
        let answer = proxy
            .reload(&setup.clone().pool(&line.replace("SECRET", ENGINE)))
            .await;
        assert_eq!(answer.status(), 422, "{}", answer.text());
        assert!(!answer.text().contains(ENGINE), "{}", answer.text());
    }
}

#[test]
fn a_secret_that_is_not_there_stops_the_start_and_is_named() {
    let dir = Dir::new();
    let file = dir.0.join("c.toml");
    let text = "[server]\nlisten = \"127.0.0.1:0\"\n[[pools]]\nname = \"p\"\npolicy = { kind = \"round_robin\" }\n\
                engine_key = \"file:/nowhere/key\"\ninstances = [{ url = \"http://127.0.0.1:1\" }]\n";
    std::fs::write(&file, text).unwrap();
    let output = std::process::Command::new(PROGRAM)
        .args(["serve", "--config", file.to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    for word in ["/nowhere/key", "pool `p`", "engine_key"] {
        assert!(said.contains(word), "no {word} in {said}");
    }
}

#[test]
fn hash_key_takes_no_weak_key() {
    let (status, out, err) = run_with(&["hash-key"], "short");
    assert!(!status.success() && out.is_empty());
    assert!(err.contains("16 to 512"), "{err}");
}
