//! `/v1/models` while instances are dead or hang: the others answer, in bounded time.

use crate::support::client::{Ask, Client};
use crate::support::proxy::Setup;
use crate::support::reply::{End, Reply};
use crate::support::upstream::{Refusing, Script, Upstream};
use crate::support::{PATIENCE, within};

fn lists(model: &str) -> Upstream {
    let list = format!("{{\"object\":\"list\",\"data\":[{{\"id\":\"{model}\"}}]}}");
    Script::new(move |_| Reply::json(200, &list)).start()
}

#[tokio::test]
async fn the_list_of_models_does_not_hang_on_dead_and_hanging_instances() {
    let hanging = Script::new(|_| Reply::new().then(End::Hold)).start();
    let half = Script::new(|_| Reply::sse().then(End::Hold)).start();
    let refusing = Refusing::new();
    let (alpha, beta) = (lists("alpha"), lists("beta"));
    // the waits for an answer are as long as by default: the list has a limit of its own
    let proxy = Setup::over(&[refusing.addr, hanging.addr, alpha.addr])
        .and_pool("q", "models = [\"beta\"]", &[half.addr, beta.addr])
        .and_pool("r", "models = [\"gamma\"]", &[refusing.addr])
        .start();
    let ask = Ask::get("/v1/models");
    let answer = within("the list", PATIENCE, Client::ask(proxy.addr, &ask)).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let list = answer.json();
    let models = list["data"].as_array().unwrap();
    let mut ids: Vec<_> = models.iter().map(|one| one["id"].as_str()).collect();
    ids.sort_unstable();
    // what is configured is listed even where no instance answers
    assert_eq!(ids, [Some("alpha"), Some("beta"), Some("gamma")]);
    // who was waited for in vain is let go
    for upstream in [&hanging, &half] {
        upstream.closed(0).await;
    }
}
