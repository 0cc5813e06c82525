#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::sync::Arc;

use evenkeel_policies::shape::{Api, RequestShape};

use super::*;
use crate::fleet::Fleet;

fn pool() -> Arc<Pool> {
    let text = "[server]\nlisten = \"127.0.0.1:0\"\n[[pools]]\nname = \"p\"\nmodels = [\"m\"]\n\
        policy = { kind = \"round_robin\" }\n\
        [[pools.instances]]\nurl = \"http://127.0.0.1:1\"\n\
        [[pools.instances]]\nurl = \"http://127.0.0.1:2\"\n";
    let config = crate::config::parse(text, "test.toml").unwrap();
    Fleet::new(&config).unwrap().pools[0].clone()
}

/// The integrals' present load is what the scheduler counts, for every instance.
fn agreed_tokens(pool: &Pool) -> Vec<u64> {
    let members = pool.members();
    let inner = pool.inner.lock();
    let tokens = members.instances.iter().map(|instance| {
        let tokens = inner.outstanding_tokens(instance.id);
        assert_eq!(instance.load.lock().tokens(), tokens as f64);
        tokens
    });
    tokens.collect()
}

fn shape(prompt_tokens: u32, output_tokens: u32) -> RequestShape {
    RequestShape {
        prompt_tokens,
        predicted_output_tokens: output_tokens,
        api: Api::Chat,
        model: 0,
        cached_tokens: 0,
        max_output_tokens: None,
        choices: 1,
        stream: true,
        body_bytes: 500,
        session: None,
    }
}

async fn lease(pool: &Arc<Pool>) -> Lease {
    pool.admit(&shape(100, 50), To::AnyBut(&[]))
        .await
        .ok()
        .unwrap()
}

#[tokio::test]
async fn the_token_integral_follows_arrive_first_output_progress_and_finish() {
    let pool = pool();
    let mut one = lease(&pool).await;
    let two = lease(&pool).await;
    assert_eq!(agreed_tokens(&pool), [150, 150]);
    one.first_output();
    assert_eq!(agreed_tokens(&pool), [50, 150]);
    one.progress(16, 0, |chunks| chunks);
    assert_eq!(agreed_tokens(&pool), [34, 150]);
    one.progress(1000, 0, |chunks| chunks);
    assert_eq!(agreed_tokens(&pool), [0, 150]);
    drop(two);
    assert_eq!(agreed_tokens(&pool), [0, 0]);
    drop(one);
    assert_eq!(agreed_tokens(&pool), [0, 0]);
    let now = crate::measure::clock::now_ns();
    let settled = |instance: &Arc<Instance>| instance.load.lock().token_seconds(now);
    let before: Vec<f64> = pool.members().instances.iter().map(settled).collect();
    assert!(before.iter().all(|token_seconds| *token_seconds > 0.0));
    let later = |instance: &Arc<Instance>| instance.load.lock().token_seconds(now + 1_000_000_000);
    let after: Vec<f64> = pool.members().instances.iter().map(later).collect();
    assert_eq!(before, after, "an idle instance gathers no load");
}

#[tokio::test]
async fn the_leases_own_parts_add_up_to_the_instances_load() {
    let pool = pool();
    let mut leases = Vec::new();
    for _ in 0..6 {
        leases.push(lease(&pool).await);
    }
    for lease in &mut leases[..4] {
        lease.first_output();
        lease.progress(20, 0, |chunks| chunks);
    }
    drop(leases);
    let now = crate::measure::clock::now_ns();
    let laid: f64 = pool
        .members()
        .instances
        .iter()
        .map(|one| one.load.lock().token_seconds(now))
        .sum();
    let spread = pool.inner.lock().token_seconds;
    assert_eq!(spread.count(), 6);
    // a lease begins to count a moment after the lock that granted it
    let parts = spread.mean() * 6.0;
    assert!(parts > 0.0 && parts <= laid, "{parts} of {laid}");
}
