//! Instances and pools come and go while requests run: by the file, and by the admin API.

use super::*;

#[tokio::test]
async fn a_removed_instance_ends_its_streams_and_comes_back_with_them() {
    let (key, closed) = gate();
    let held = Script::new(move |_| Reply::sse().wait(&closed).last_chunk(ms(0))).start();
    let other = quick();
    let both = Setup::over(&[held.addr, other.addr]).set("reload", "watch = false");
    let proxy = both.start();
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().bytes()).await;
    let head = client.head().await;
    assert_eq!(head.header("x-evenkeel-instance"), Some("i0"));

    let left = proxy.post("/api/pools/p/instances/i0/remove", "").await;
    assert_eq!(left.json()["health"], "leaving", "{}", left.text());
    assert_eq!(left.json()["outstanding_requests"], 1);
    for _ in 0..10 {
        let answer = Client::ask(proxy.addr, &Ask::chat()).await;
        assert_eq!(answer.head.header("x-evenkeel-instance"), Some("i1"));
    }
    // the file still names it: a reload brings it back, with what it has open
    assert_taken(&proxy.post("/api/reload", "").await);
    let back = proxy.instance("i0").await;
    assert_eq!(
        (&back["health"], &back["outstanding_requests"]),
        (&"up".into(), &1.into())
    );
    proxy.post("/api/pools/p/instances/i0/remove", "").await;
    let metrics = proxy.admin_text("/metrics").await;
    let line = "evenkeel_instance_outstanding_requests{pool=\"p\",instance=\"i0\"} 1\n";
    assert!(metrics.contains(line), "{metrics}");

    key.open();
    let mut body = client.body(&head);
    while body.next().await.is_some() {}
    assert_eq!(body.end(), Some(BodyEnd::Clean), "its stream was cut");
    instance_until(proxy.admin, "i0", serde_json::Value::is_null).await;
    let metrics = proxy.admin_text("/metrics").await;
    assert!(!metrics.contains("evenkeel_instance_up{pool=\"p\",instance=\"i0\"}"));
    assert!(metrics.contains("evenkeel_requests_total{pool=\"p\",instance=\"i0\""));
}

#[tokio::test]
async fn instances_are_added_and_removed_by_the_admin_api_and_mistakes_are_told() {
    let (first, second) = (quick(), quick());
    let setup = Setup::one(&first).set("reload", "watch = false");
    let proxy = setup.start();
    let add = |body: String| {
        let proxy = &proxy;
        async move { proxy.post("/api/pools/p/instances", &body).await }
    };
    let url = second.url();
    let added = add(format!(
        "{{\"url\":\"{url}\",\"name\":\"new\",\"weight\":2.0}}"
    ))
    .await;
    assert_eq!(added.status(), 200, "{}", added.text());
    assert_eq!(added.json()["health"], "up");
    assert_eq!(proxy.instance("new").await["weight"], 2.0);
    while second.requests().is_empty() {
        assert_served(&Client::ask(proxy.addr, &Ask::chat()).await);
    }
    for (body, status, word) in [
        (format!("{{\"url\":\"{url}\"}}"), 409, "url"),
        (
            "{\"url\":\"http://e:1\",\"name\":\"new\"}".to_owned(),
            409,
            "name",
        ),
        ("{\"url\":\"ftp://e\"}".to_owned(), 422, "url"),
        (
            "{\"url\":\"http://e:1\",\"weight\":0}".to_owned(),
            422,
            "weight",
        ),
        (
            "{\"url\":\"http://e:1\",\"name\":\"a\\nb\"}".to_owned(),
            422,
            "name",
        ),
        ("{\"uri\":\"http://e:1\"}".to_owned(), 400, "uri"),
    ] {
        let answer = add(body.clone()).await;
        assert_eq!(answer.status(), status, "{body}: {}", answer.text());
        assert!(answer.text().contains(word), "{}", answer.text());
    }
    for (path, status, word) in [
        ("p/instances/i9/remove", 404, "i0, new"),
        ("q/instances/i0/remove", 404, "p"),
        ("q/instances", 404, "`q`"),
    ] {
        let body = "{\"url\":\"http://e:1\"}";
        let answer = proxy.post(&format!("/api/pools/{path}"), body).await;
        assert_eq!(answer.status(), status, "{}", answer.text());
        assert!(answer.text().contains(word), "{}", answer.text());
    }
    let gone = proxy.post("/api/pools/p/instances/i0/remove", "").await;
    assert_eq!(gone.json()["health"], "gone", "{}", gone.text());
    let last = proxy.post("/api/pools/p/instances/new/remove", "").await;
    assert_eq!(last.status(), 409, "{}", last.text());
    assert_served(&Client::ask(proxy.addr, &Ask::chat()).await);
    // the file knows nothing of all this
    let answer = proxy.post("/api/reload", "").await;
    let changes = &answer.json()["changes"];
    assert_eq!(changes["instances_added"], serde_json::json!(["p/i0"]));
    assert_eq!(changes["instances_removed"], serde_json::json!(["p/new"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_removing_and_adding_under_load_loses_nothing_and_a_drain_outlasts_a_reload() {
    let fleet: Vec<_> = (0..3).map(|_| paced()).collect();
    let addrs: Vec<_> = fleet.iter().map(|upstream| upstream.addr).collect();
    let setup = Setup::over(&addrs)
        .set("reload", "watch = false")
        .health("check_path = \"\", slow_start_s = 0.0");
    let proxy = setup.start();
    let load = Load::on(proxy.addr, 12);
    let post = async |path: &str, body: &str| {
        let answer = proxy.post(&format!("/api/pools/p/{path}"), body).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        answer.json()
    };
    for round in 0..6 {
        load.serves(12).await;
        post("instances/i1/drain", "").await;
        assert_taken(
            &proxy
                .reload(&setup.clone().set("retries", "busy = false"))
                .await,
        );
        assert_eq!(
            proxy.instance("i1").await["health"],
            "draining",
            "round {round}"
        );
        instance_until(proxy.admin, "i1", |one| one["outstanding_requests"] == 0).await;
        let had = fleet[1].requests().len();
        load.serves(12).await;
        assert_eq!(
            fleet[1].requests().len(),
            had,
            "it got a request while drained"
        );
        if round % 2 == 0 {
            assert_eq!(post("instances/i1/remove", "").await["health"], "gone");
            load.serves(12).await;
            let body = format!("{{\"url\":\"{}\",\"name\":\"i1\"}}", fleet[1].url());
            assert_eq!(post("instances", &body).await["health"], "up");
        } else {
            assert_eq!(post("instances/i1/undrain", "").await["health"], "up");
        }
        while fleet[1].requests().len() == had {
            tokio::time::sleep(ms(1)).await;
        }
    }
    let requests = load.end().await;
    proxy.settled().await;
    let records = proxy.stop();
    println!("{requests} requests around 6 drains, 3 removals and 6 reloads, 0 failed");
    assert_eq!(records.len(), requests);
    assert!(records.iter().all(|record| record["outcome"] == "ok"));
}

#[tokio::test]
async fn pools_and_models_come_and_go_and_an_open_stream_of_a_removed_pool_ends_well() {
    let (key, closed) = gate();
    let held = Script::new(move |_| Reply::sse().wait(&closed).last_chunk(ms(0))).start();
    let other = quick();
    let one = Setup::one(&other)
        .pool("models = [\"m-large\"]")
        .set("reload", "watch = false");
    let two = one
        .clone()
        .and_pool("q", "models = [\"m-small\"]", &[held.addr]);
    let proxy = two.start();
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().bytes()).await;
    let head = client.head().await;

    let answer = proxy.reload(&one).await;
    assert_taken(&answer);
    assert_eq!(
        answer.json()["changes"]["pools_removed"],
        serde_json::json!(["q"])
    );
    let gone = Client::ask(proxy.addr, &Ask::chat()).await;
    assert_eq!(
        (gone.status(), gone.error_code().as_str()),
        (404, "model_not_found")
    );
    let name = format!("q/{}", held.addr);
    assert_eq!(proxy.outstanding().await[&name].requests, 1);
    // back before its stream has ended: it is the same pool
    assert_taken(&proxy.reload(&two).await);
    assert_eq!(proxy.outstanding().await[&name].requests, 1);
    assert_taken(&proxy.reload(&one).await);

    key.open();
    let mut body = client.body(&head);
    while body.next().await.is_some() {}
    assert_eq!(body.end(), Some(BodyEnd::Clean), "its stream was cut");
    let idle = proxy.settled().await;
    assert!(idle < ms(1000));
    assert!(!proxy.outstanding().await.contains_key(&name));
    // the model is with the other pool now
    let moved = Setup::one(&other)
        .pool("models = [\"m-small\"]")
        .set("reload", "watch = false");
    assert_taken(&proxy.reload(&moved).await);
    assert_served(&Client::ask(proxy.addr, &Ask::chat()).await);
}
