//! What the model must hold, whatever it is given.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn profile() -> Profile {
    Profile::load("test-fast").unwrap()
}

fn request(id: u64, prompt_tokens: u32, output_tokens: u32) -> Request {
    Request {
        id,
        prompt_tokens,
        output_tokens,
        block_hashes: Vec::new(),
    }
}

/// Runs until idle; each request's emissions as (end of step, emission).
fn drain(engine: &mut Engine, mut now: u64) -> HashMap<u64, Vec<(u64, Emission)>> {
    let mut all: HashMap<u64, Vec<(u64, Emission)>> = HashMap::new();
    let mut out = Vec::new();
    let mut steps = 0;
    while let Some(end) = engine.start_step(now) {
        let stats = engine.stats();
        assert!(stats.kv_used_blocks <= stats.kv_total_blocks);
        assert!(stats.running <= engine.profile().max_num_seqs);
        engine.finish_step(&mut out);
        for emission in out.drain(..) {
            all.entry(emission.request)
                .or_default()
                .push((end, emission));
        }
        now = end;
        steps += 1;
        assert!(steps < 1_000_000, "does not come to an end");
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_request_gets_exactly_its_tokens_and_leaves_nothing_behind(
        jobs in prop::collection::vec((1u32..200, 1u32..60, 0u64..4), 1..60),
        kv_blocks in 17u32..64,
        seqs in 1u32..20,
        budget in 20u32..300,
    ) {
        let mut profile = profile();
        profile.max_model_len_tokens = 260;
        (profile.kv_blocks, profile.max_num_seqs) = (kv_blocks, seqs);
        profile.max_num_batched_tokens = budget;
        let mut engine = Engine::new(profile);
        for (id, (prompt, output, family)) in jobs.iter().enumerate() {
            let mut request = request(id as u64, *prompt, *output);
            request.block_hashes = (0..13).map(|block| family * 1000 + block).collect();
            engine.submit(0, request).unwrap();
        }
        let all = drain(&mut engine, 0);
        for (id, (_, output, _)) in jobs.iter().enumerate() {
            let indexes: Vec<u32> = all[&(id as u64)].iter().map(|(_, e)| e.token_index).collect();
            prop_assert_eq!(indexes, (0..*output).collect::<Vec<_>>());
            prop_assert!(all[&(id as u64)].last().unwrap().1.finished);
        }
        let stats = engine.stats();
        prop_assert_eq!((stats.running, stats.waiting, stats.kv_used_blocks), (0, 0, 0));
        let wanted: u64 = jobs.iter().map(|job| u64::from(job.1)).sum();
        prop_assert_eq!(stats.generation_tokens, wanted);
    }

    #[test]
    fn aborts_at_any_step_free_all_they_held(
        jobs in prop::collection::vec((1u32..200, 1u32..60, 0u64..30, any::<bool>()), 1..40),
    ) {
        let mut engine = Engine::new(profile());
        for (id, (prompt, output, _, _)) in jobs.iter().enumerate() {
            engine.submit(0, request(id as u64, *prompt, *output)).unwrap();
        }
        let mut out = Vec::new();
        for step in 0..30u64 {
            let began = engine.start_step(step).is_some();
            for (id, (_, _, at, inside)) in jobs.iter().enumerate() {
                if *at == step && *inside { engine.abort(id as u64); }
            }
            if began { engine.finish_step(&mut out); }
            for (id, (_, _, at, inside)) in jobs.iter().enumerate() {
                if *at == step && !*inside { engine.abort(id as u64); }
            }
        }
        let stats = engine.stats();
        prop_assert_eq!((stats.running, stats.waiting, stats.kv_used_blocks), (0, 0, 0));
    }
}

#[test]
fn tokens_take_longer_in_a_larger_batch() {
    let tpot = |batch: u64| {
        let mut engine = Engine::new(profile());
        for id in 0..batch {
            engine.submit(0, request(id, 16, 20)).unwrap();
        }
        let tokens = &drain(&mut engine, 0)[&0];
        (tokens[19].0 - tokens[0].0) as f64 / 19.0
    };
    assert!(tpot(2) > tpot(1));
    assert!(tpot(48) > 1.1 * tpot(1));
}

#[test]
fn a_speed_factor_stretches_every_step() {
    let end = |factor: f64| {
        let mut engine = Engine::new(profile());
        engine.set_speed_factor(factor);
        engine.submit(0, request(1, 100, 50)).unwrap();
        drain(&mut engine, 0)[&1].last().unwrap().0 as f64
    };
    assert!((end(1.6) / end(1.0) - 1.6).abs() < 0.001);
}

#[test]
fn a_full_cache_preempts_the_latest_and_it_recovers() {
    let mut profile = profile();
    (profile.max_model_len_tokens, profile.kv_blocks) = (256, 20);
    let mut engine = Engine::new(profile);
    engine.submit(0, request(1, 100, 120)).unwrap();
    engine.submit(0, request(2, 100, 120)).unwrap();
    let all = drain(&mut engine, 0);
    assert!(engine.stats().preemptions > 0);
    assert_eq!((all[&1].len(), all[&2].len()), (120, 120));
    let longest_gap = |id: u64| all[&id].windows(2).map(|w| w[1].0 - w[0].0).max().unwrap();
    assert!(
        longest_gap(2) > 10 * longest_gap(1),
        "the first is never the one preempted"
    );
}

#[test]
fn a_known_prefix_shortens_prefill() {
    let mut engine = Engine::new(profile());
    let with_hashes = |id: u64| Request {
        block_hashes: (100..200).collect(),
        ..request(id, 1600, 1)
    };
    engine.submit(0, with_hashes(1)).unwrap();
    let cold = drain(&mut engine, 0)[&1][0];
    engine.submit(0, with_hashes(2)).unwrap();
    let warm = drain(&mut engine, 0)[&2][0];
    assert_eq!((cold.1.cached_tokens, warm.1.cached_tokens), (0, 1584));
    assert!(warm.0 < cold.0 / 2, "{} against {}", warm.0, cold.0);
    assert_eq!(engine.stats().prefix_hits_tokens, 1584);
}

#[test]
fn the_prefix_used_longest_ago_is_evicted_first() {
    let mut engine = Engine::new(profile()); // 512 blocks
    let family = |id: u64, first: u64| Request {
        block_hashes: (first..first + 100).collect(),
        ..request(id, 1601, 1)
    };
    for (id, first) in [
        (1, 1000),
        (2, 2000),
        (3, 3000),
        (4, 4000),
        (5, 5000),
        (6, 1000),
    ] {
        engine.submit(0, family(id, first)).unwrap();
        drain(&mut engine, 0);
    }
    assert_eq!(
        engine.stats().prefix_hits_tokens,
        1600,
        "family 1000 was still there"
    );
    engine.submit(0, family(7, 7000)).unwrap(); // needs room: 2000 is the oldest now
    drain(&mut engine, 0);
    engine.submit(0, family(8, 1000)).unwrap();
    drain(&mut engine, 0);
    assert_eq!(engine.stats().prefix_hits_tokens, 3200);
    engine.submit(0, family(9, 2000)).unwrap();
    let again = drain(&mut engine, 0)[&9][0];
    assert!(again.1.cached_tokens < 1600);
}

#[test]
fn a_long_prompt_is_computed_in_chunks_beside_decodes() {
    let mut profile = profile();
    profile.max_num_batched_tokens = 128;
    let mut engine = Engine::new(profile);
    engine.submit(0, request(1, 10, 40)).unwrap();
    let mut out = Vec::new();
    engine.start_step(0).unwrap();
    engine.finish_step(&mut out);
    engine.submit(0, request(2, 1270, 1)).unwrap();
    let all = drain(&mut engine, 0);
    let answered = all[&2][0].0;
    let beside = all[&1].iter().filter(|(end, _)| *end <= answered).count();
    assert_eq!(beside, 10, "1270 tokens by 127 a step, one decode in each");
}

#[test]
fn what_can_never_fit_is_refused() {
    let mut engine = Engine::new(profile());
    assert_eq!(
        engine.submit(0, request(1, 2000, 100)),
        Err(Refused::TooLong)
    );
    assert_eq!(engine.submit(0, request(1, 0, 1)), Err(Refused::Empty));
    engine.submit(0, request(1, 5, 5)).unwrap();
    assert_eq!(engine.submit(0, request(1, 5, 5)), Err(Refused::Duplicate));
    assert!(engine.abort(1));
    assert!(!engine.abort(1));
}
