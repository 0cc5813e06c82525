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

fn cpu(cores: u32, request_us: f64, step_us: f64) -> crate::engine::cost::CpuCost {
    crate::engine::cost::CpuCost {
        cores,
        request_us,
        prompt_token_us: 0.0,
        step_us,
        step_sequence_us: 0.0,
    }
}

#[test]
fn a_static_batch_takes_nobody_in_until_its_last_sequence_ends() {
    let started = |batching: Batching| {
        let mut engine = Engine::new(Profile {
            batching,
            ..profile()
        });
        engine.submit(0, request(1, 20, 5)).unwrap();
        engine.submit(0, request(2, 20, 50)).unwrap();
        let first_step_ns = engine.start_step(0).unwrap();
        engine.submit(1, request(3, 20, 5)).unwrap();
        engine.finish_step(&mut Vec::new());
        let all = drain(&mut engine, first_step_ns);
        (all[&3][0].1.scheduled_ns, all[&2].last().unwrap().0)
    };
    let (joined_ns, other_ended_ns) = started(Batching::Continuous);
    assert!(joined_ns < other_ended_ns / 10);
    let (joined_ns, other_ended_ns) = started(Batching::Static);
    assert_eq!(joined_ns, other_ended_ns);
}

#[test]
fn a_static_batch_that_does_not_fit_the_cache_is_cut_and_still_ends() {
    let mut engine = Engine::new(Profile {
        batching: Batching::Static,
        max_model_len_tokens: 256,
        kv_blocks: 20,
        ..profile()
    });
    for id in 0..12 {
        engine.submit(0, request(id, 100, 120)).unwrap();
    }
    let all = drain(&mut engine, 0);
    assert!((0..12).all(|id| all[&id].len() == 120));
    assert!(engine.stats().preemptions > 0);
}

#[test]
fn gpus_make_steps_shorter_and_the_cache_larger_until_the_link_takes_it_back() {
    let h100 = Profile::load("h100-llama3-8b").unwrap();
    let end = |profile: Profile| {
        let mut engine = Engine::new(profile);
        for id in 0..32 {
            engine.submit(0, request(id, 500, 50)).unwrap();
        }
        drain(&mut engine, 0)[&31].last().unwrap().0 as f64
    };
    let four = h100.on_gpus(4).unwrap();
    // 4 x 24,800 + 3 x 16.06 GB / (16 x 131,072 B)
    assert_eq!(four.kv_blocks, 99_200 + 22_974);
    let speedup = end(h100.clone()) / end(four.clone());
    assert!((1.8..4.0).contains(&speedup), "{speedup}");
    let slow = |link: &mut crate::engine::cost::Link| link.latency_us = 60.0;
    let mut joined_badly = four;
    joined_badly.link.iter_mut().for_each(slow);
    assert!(end(joined_badly) > end(h100));
}

#[test]
fn a_request_waits_for_a_core_before_it_is_in_the_queue() {
    let mut engine = Engine::new(Profile {
        cpu: Some(cpu(1, 5_000.0, 0.0)),
        ..profile()
    });
    engine.submit(0, request(1, 10, 1)).unwrap();
    engine.submit(0, request(2, 10, 1)).unwrap();
    assert_eq!(engine.start_step(0), None);
    assert_eq!(
        (engine.stats().waiting, engine.next_ready_ns()),
        (0, Some(5_000_000))
    );
    engine.start_step(5_000_000).unwrap();
    assert_eq!(
        engine.stats().running,
        1,
        "the second is still being prepared"
    );
    assert!(engine.abort(2) && engine.next_ready_ns().is_none());
}

#[test]
fn a_gpu_that_waits_for_its_host_is_idle_while_the_cpu_is_busy() {
    let shares = |step_us: f64| {
        let mut engine = Engine::new(Profile {
            cpu: Some(cpu(1, 0.0, step_us)),
            ..profile()
        });
        engine.submit(0, request(1, 10, 100)).unwrap();
        let mut now = 0;
        while let Some(end) = engine.start_step(now) {
            engine.finish_step(&mut Vec::new());
            now = end;
        }
        let activity = engine.activity(now);
        let seconds = now as f64 / 1e9;
        (activity.gpu_s / seconds, activity.cpu_s / seconds)
    };
    let (gpu, cpu) = shares(0.0);
    assert!(gpu > 0.9 && cpu < 0.1, "{gpu} {cpu}");
    let (gpu, cpu) = shares(3_000.0);
    assert!(gpu < 0.3 && cpu > 0.7, "{gpu} {cpu}");
}

#[test]
fn prompts_keep_the_sms_at_work_and_decodes_the_memory() {
    let mut engine = Engine::new(Profile::load("h100-llama3-8b").unwrap());
    engine.submit(0, request(1, 8000, 100)).unwrap();
    let prefilled = engine.start_step(0).unwrap();
    let half = engine.activity(prefilled / 2);
    engine.finish_step(&mut Vec::new());
    let prompt = engine.activity(prefilled);
    assert!(
        (half.gpu_s / prompt.gpu_s - 0.5).abs() < 0.01,
        "a step counts in part"
    );
    let end = engine.start_step(prefilled).unwrap();
    let decode = engine.activity(end);
    let (sm, dram) = (decode.sm_s - prompt.sm_s, decode.dram_s - prompt.dram_s);
    assert!(prompt.sm_s > 3.0 * prompt.dram_s && dram > sm);
}

#[test]
fn memory_in_use_is_weights_and_the_whole_pool() {
    let h100 = Profile::load("h100-llama3-8b").unwrap();
    let (used, free) = h100.gpu_memory_bytes().unwrap();
    assert!((used / 80e9 - 0.9).abs() < 0.005 && (used + free - 80e9).abs() < 1.0);
    let (used_of_four, _) = h100.on_gpus(4).unwrap().gpu_memory_bytes().unwrap();
    assert!((used_of_four - used).abs() < 1e7, "{used_of_four} {used}");
}
