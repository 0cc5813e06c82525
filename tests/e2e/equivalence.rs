//! The code that chooses in production is the code that is simulated: the events of a live run,
//! replayed into a scheduler of the same configuration, give the same decisions, changes of the pool among them.

use std::collections::VecDeque;

use evenkeel::fleet::pool::scheduler;
use evenkeel_policies::scheduler::{Action, Arrival, Decision, EventLog, Scheduler};
use tokio::task::JoinSet;

use crate::support::client::{Ask, Client};
use crate::support::proxy::Setup;
use crate::support::reply::{Reply, finish_event, ms, role_event, text_event};
use crate::support::upstream::Script;

const REQUESTS: usize = 120;
const POLICIES: [&str; 4] = [
    "{ kind = \"random\" }",
    "{ kind = \"round_robin\" }",
    "{ kind = \"least_outstanding_tokens\" }",
    "{ kind = \"lanes\", slots_per_instance = 4, lanes = [{ name = \"short\", max_tokens = 300, reserve = 0.25 }, { name = \"long\" }], queue = { max_requests = 200, max_wait_s = 30 } }",
];

/// Replays the events of `log` into `scheduler`; gives what it decides, in order.
fn replayed(mut scheduler: Scheduler, log: &EventLog) -> Vec<Decision> {
    scheduler.record_events(true);
    let mut actions: Vec<Action> = Vec::new();
    for event in &log.events {
        let _: Option<Arrival> = scheduler.apply(event, &mut actions);
        actions.clear();
    }
    scheduler.take_events().unwrap().decisions
}

#[tokio::test]
async fn a_live_run_replayed_gives_the_same_choices_under_every_policy() {
    for policy in POLICIES {
        let upstreams: VecDeque<_> = (0..3_u64)
            .map(|n| {
                let reply = move |_: &_| {
                    let begun = Reply::sse().chunk(ms(1), role_event().as_bytes());
                    let text = begun.chunk(ms(2 + n), text_event("a").as_bytes());
                    text.chunk(ms(6 + 3 * n), finish_event().as_bytes())
                        .last_chunk(ms(6 + 3 * n))
                };
                Script::new(reply).start()
            })
            .collect();
        let addrs: Vec<_> = upstreams.iter().map(|upstream| upstream.addr).collect();
        let proxy = Setup::over(&addrs).policy(policy).start();
        let generation = proxy.shared().generation();
        let pool = &generation.fleet.pools[0];
        pool.record_events();
        let mut clients = JoinSet::new();
        for n in 0..REQUESTS {
            let addr = proxy.addr;
            clients.spawn(async move {
                let text = "word ".repeat(1 + (n % 7) * 60);
                let body = format!(
                    "{{\"model\":\"m\",\"stream\":true,\"max_tokens\":{},\"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}]}}",
                    10 + n % 5 * 40
                );
                Client::ask(addr, &Ask::post("/v1/chat/completions", body)).await.status()
            });
        }
        // an instance leaves, and another policy takes over for a while, in the midst of it
        let gone = proxy.post("/api/pools/p/instances/i2/remove", "").await;
        assert_eq!(gone.status(), 200, "{}", gone.text());
        for other in ["{ kind = \"least_requests\" }", policy] {
            let taken = proxy.reload(&Setup::over(&addrs).policy(other)).await;
            assert_eq!(taken.status(), 200, "{}", taken.text());
        }
        while let Some(status) = clients.join_next().await {
            assert_eq!(status.unwrap(), 200, "{policy}");
        }
        proxy.settled().await;
        let log = pool.take_events().unwrap();
        let config = &generation.config;
        let fresh = scheduler(config, &config.pools[0], 0, 1).unwrap();
        let again = replayed(fresh, &log);
        assert_eq!(log.decisions.len(), REQUESTS, "{policy}");
        assert_eq!(again, log.decisions, "{policy}");
    }
}
