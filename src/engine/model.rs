//! Continuous batching on a virtual clock, after vLLM's V1 scheduler. Pure: time and lengths come
//! as arguments.
//!
//! A step takes the running sequences in order of admission (so decodes come before the one prompt
//! still being computed), each with the tokens it lacks up to the step's token budget, then admits
//! from the queue, first come first served. If a running sequence finds no KV block, the latest
//! admitted one is preempted: its blocks go, it waits at the head of the queue, and it is
//! recomputed, prompt and output so far, before it yields its next token.
//!
//! With static batching the queue is admitted only once a whole batch has ended. With a [`CpuCost`](super::cost::CpuCost)
//! a request first waits for a core that tokenizes it; it is in no queue of the engine until then.

use std::collections::VecDeque;

use super::activity::{Activity, Progress, Step};
use super::cost::StepWork;
use super::kv::{Held, KvCache, NumberMap};
use super::prepare::Preparing;
use super::profile::{Batching, Profile};

/// A sequence to generate.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The caller's name for it, unique among live requests.
    pub id: u64,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Chained hashes of the prompt's full blocks; may be shorter, or empty for no prefix cache.
    pub block_hashes: Vec<u64>,
    /// Tokens it will generate, at least 1.
    pub output_tokens: u32,
}

/// Why a request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Prompt and output exceed the longest sequence of the model.
    #[error("prompt and output exceed the model's length")]
    TooLong,
    /// No prompt or no output.
    #[error("prompt and output must have at least one token")]
    Empty,
    /// The id is live already.
    #[error("the id is in use")]
    Duplicate,
}

/// A token that left the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emission {
    /// The request's id.
    pub request: u64,
    /// From 0.
    pub token_index: u32,
    /// This is the last one.
    pub finished: bool,
    /// When the request first left the queue, in ns of the caller's clock.
    pub scheduled_ns: u64,
    /// Prompt tokens that were found in the prefix cache at first admission.
    pub cached_tokens: u32,
}

/// Gauges and counters of an instance.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stats {
    /// Sequences in the batch.
    pub running: u32,
    /// Sequences in the queue.
    pub waiting: u32,
    /// KV blocks held by sequences.
    pub kv_used_blocks: u32,
    /// All KV blocks.
    pub kv_total_blocks: u32,
    /// Steps begun.
    pub steps: u64,
    /// Tokens computed that were not decodes, recomputation included.
    pub prefill_tokens: u64,
    /// Tokens emitted.
    pub generation_tokens: u64,
    /// Prompt tokens looked up in the prefix cache.
    pub prefix_queries_tokens: u64,
    /// Of these, found.
    pub prefix_hits_tokens: u64,
    /// Sequences preempted.
    pub preemptions: u64,
}

#[derive(Debug)]
struct Sequence {
    request: Request,
    arrived_ns: u64,
    scheduled_ns: Option<u64>,
    generated: u32,
    computed: u32,
    cached_tokens: u32,
    held: Held,
    aborted: bool,
}

impl Sequence {
    fn total(&self) -> u32 {
        self.request.prompt_tokens + self.generated
    }
}

/// One instance.
#[derive(Debug)]
pub struct Engine {
    profile: Profile,
    speed_factor: f64,
    kv: KvCache,
    sequences: Vec<Option<Sequence>>,
    vacant: Vec<usize>,
    by_id: NumberMap<usize>,
    /// Requests before the queue; `None` where the profile has no CPU.
    preparing: Option<Preparing>,
    waiting: VecDeque<usize>,
    running: Vec<usize>,
    /// Under static batching: places of the batch that are not taken yet.
    batch_open: usize,
    /// The step under way: sequence and tokens it computes.
    plan: Vec<(usize, u32)>,
    step: Option<Step>,
    stats: Stats,
    /// Of the steps that ended.
    activity: Activity,
}

impl Engine {
    /// An idle instance.
    pub fn new(profile: Profile) -> Self {
        let kv = KvCache::new(profile.kv_blocks);
        Engine {
            preparing: profile.cpu.map(|cpu| Preparing::new(cpu.cores)),
            profile,
            speed_factor: 1.0,
            kv,
            sequences: Vec::new(),
            vacant: Vec::new(),
            by_id: NumberMap::default(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            batch_open: 0,
            plan: Vec::new(),
            step: None,
            stats: Stats::default(),
            activity: Activity::default(),
        }
    }

    /// Makes later steps last `factor` times as long (1.6: 1.6 times slower). Ignored unless
    /// finite and above 0.
    pub fn set_speed_factor(&mut self, factor: f64) {
        if factor.is_finite() && factor > 0.0 {
            self.speed_factor = factor;
        }
    }

    /// What the instance is.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Queues a request.
    pub fn submit(&mut self, now_ns: u64, mut request: Request) -> Result<(), Refused> {
        if request.prompt_tokens == 0 || request.output_tokens == 0 {
            return Err(Refused::Empty);
        }
        let total = u64::from(request.prompt_tokens) + u64::from(request.output_tokens);
        if total > u64::from(self.profile.max_model_len_tokens) {
            return Err(Refused::TooLong);
        }
        if self.by_id.contains_key(&request.id) {
            return Err(Refused::Duplicate);
        }
        let full = request.prompt_tokens / self.profile.block_size_tokens;
        request.block_hashes.truncate(full as usize);
        let (id, prompt_tokens) = (request.id, request.prompt_tokens);
        let sequence = Sequence {
            request,
            arrived_ns: now_ns,
            scheduled_ns: None,
            generated: 0,
            computed: 0,
            cached_tokens: 0,
            held: Held::default(),
            aborted: false,
        };
        let key = match self.vacant.pop() {
            Some(key) => {
                self.sequences[key] = Some(sequence);
                key
            }
            None => {
                self.sequences.push(Some(sequence));
                self.sequences.len() - 1
            }
        };
        self.by_id.insert(id, key);
        match (&mut self.preparing, self.profile.cpu) {
            (Some(preparing), Some(cpu)) => {
                preparing.push(now_ns, key, cpu.prepare_ns(prompt_tokens));
            }
            _ => self.waiting.push_back(key),
        }
        Ok(())
    }

    /// Drops a request: at once, or at the end of the step it is in. False if it is not live.
    pub fn abort(&mut self, id: u64) -> bool {
        let Some(key) = self.by_id.remove(&id) else {
            return false;
        };
        self.running.retain(|other| *other != key);
        self.waiting.retain(|other| *other != key);
        if let Some(preparing) = &mut self.preparing {
            preparing.forget(key);
        }
        let in_step = self.step.is_some() && self.plan.iter().any(|(k, _)| *k == key);
        match (&mut self.sequences[key], in_step) {
            (Some(sequence), true) => sequence.aborted = true,
            _ => self.forget(key),
        }
        true
    }

    /// Plans and begins a step at `now_ns`; its end, or `None` if there is nothing to compute (see
    /// [`Engine::next_ready_ns`]) or a step is under way.
    pub fn start_step(&mut self, now_ns: u64) -> Option<u64> {
        if self.step.is_some() {
            return None;
        }
        if let Some(preparing) = &mut self.preparing {
            preparing.ready(now_ns, &mut self.waiting);
        }
        self.plan.clear();
        let budget = self.profile.max_num_batched_tokens;
        let (budget, preempted) = self.plan_running(budget);
        if !preempted {
            self.plan_waiting(now_ns, budget);
        }
        if self.plan.is_empty() {
            return None;
        }
        let step = self.planned_step(now_ns);
        self.step = Some(step);
        self.stats.steps += 1;
        Some(step.end_ns)
    }

    /// When a request that is being prepared may be ready for a step; `None` if there is none.
    pub fn next_ready_ns(&self) -> Option<u64> {
        self.preparing.as_ref()?.next_ns()
    }

    /// Ends the step under way; the tokens it made are pushed to `out`.
    pub fn finish_step(&mut self, out: &mut Vec<Emission>) {
        let Some(step) = self.step.take() else {
            return;
        };
        self.activity = self.activity.plus(&step.activity, 1.0);
        let plan = std::mem::take(&mut self.plan);
        let mut any_finished = false;
        for &(key, tokens) in &plan {
            any_finished |= self.finish_sequence(key, tokens, out);
        }
        if any_finished {
            let sequences = &self.sequences;
            self.running.retain(|key| sequences[*key].is_some());
        }
        self.plan = plan;
    }

    /// Gauges and counters now.
    pub fn stats(&self) -> Stats {
        Stats {
            running: self.running.len() as u32,
            waiting: self.waiting.len() as u32,
            kv_used_blocks: self.kv.used(),
            kv_total_blocks: self.profile.kv_blocks,
            ..self.stats
        }
    }

    /// What GPUs and CPU did until `now_ns`, the step under way in part.
    pub fn activity(&self, now_ns: u64) -> Activity {
        self.progress(now_ns).at(now_ns)
    }

    /// The same, to be told of later instants too while this step lasts.
    pub fn progress(&self, now_ns: u64) -> Progress {
        let preparing = self.preparing.as_ref();
        let prepared_ns = preparing.map_or(0, |preparing| preparing.cpu_ns(now_ns));
        let mut ended = self.activity;
        ended.cpu_s += prepared_ns as f64 / 1e9;
        Progress {
            ended,
            step: self.step,
        }
    }

    /// When a live request was submitted.
    pub fn arrived_ns(&self, id: u64) -> Option<u64> {
        let key = *self.by_id.get(&id)?;
        self.sequences[key]
            .as_ref()
            .map(|sequence| sequence.arrived_ns)
    }

    /// Running sequences; what is left of the budget, and whether one was preempted.
    fn plan_running(&mut self, mut budget: u32) -> (u32, bool) {
        let mut preempted = false;
        let mut at = 0;
        while at < self.running.len() && budget > 0 {
            let key = self.running[at];
            let block = self.profile.block_size_tokens;
            let Some(sequence) = &mut self.sequences[key] else {
                break;
            };
            let tokens = (sequence.total() - sequence.computed).min(budget);
            let wanted = (sequence.computed + tokens).div_ceil(block);
            let lacking = wanted.saturating_sub(sequence.held.blocks());
            if lacking == 0 || self.kv.grow(&mut sequence.held, lacking) {
                self.plan.push((key, tokens));
                budget -= tokens;
                at += 1;
            } else {
                // The latest admitted goes; it is at or after `at`, so not in the plan yet.
                preempted = true;
                self.preempt_latest();
            }
        }
        (budget, preempted)
    }

    fn preempt_latest(&mut self) {
        let Some(key) = self.running.pop() else {
            return;
        };
        if let Some(sequence) = &mut self.sequences[key] {
            self.kv.release(&mut sequence.held);
            sequence.computed = 0;
        }
        self.waiting.push_front(key);
        self.batch_open += 1;
        self.stats.preemptions += 1;
    }

    fn plan_waiting(&mut self, now_ns: u64, mut budget: u32) {
        let places = self.profile.max_num_seqs as usize;
        if self.running.is_empty() {
            self.batch_open = self.waiting.len().min(places);
        }
        let closed =
            |engine: &Engine| engine.profile.batching == Batching::Static && engine.batch_open == 0;
        while budget > 0 && self.running.len() < places && !closed(self) {
            let Some(&key) = self.waiting.front() else {
                return;
            };
            let Some(tokens) = self.admit(now_ns, key, budget) else {
                self.close_batch_before(key);
                return;
            };
            self.waiting.pop_front();
            self.running.push(key);
            self.batch_open = self.batch_open.saturating_sub(1);
            self.plan.push((key, tokens));
            budget -= tokens;
        }
    }

    /// A static batch is what fits: who never ran waits for the next one, and only a preempted one may come back.
    fn close_batch_before(&mut self, key: usize) {
        let never_ran = |sequence: &Sequence| sequence.scheduled_ns.is_none();
        if self.sequences[key].as_ref().is_some_and(never_ran) {
            self.batch_open = 0;
        }
    }

    /// Gives a waiting sequence its first blocks; tokens it computes now, or `None` if none are free.
    fn admit(&mut self, now_ns: u64, key: usize, budget: u32) -> Option<u32> {
        let block = self.profile.block_size_tokens;
        let sequence = self.sequences[key].as_mut()?;
        // At least one token must be computed to have a next one.
        let usable = ((sequence.total() - 1) / block) as usize;
        let hashes = &sequence.request.block_hashes;
        let hits = self.kv.hits(&hashes[..usable.min(hashes.len())]);
        let cached = hits * block;
        let tokens = (sequence.total() - cached).min(budget);
        let private = (cached + tokens).div_ceil(block) - hits;
        if !self.kv.admit(&mut sequence.held, hashes, hits, private) {
            return None;
        }
        sequence.computed = cached;
        if sequence.scheduled_ns.is_none() {
            sequence.scheduled_ns = Some(now_ns);
            sequence.cached_tokens = cached;
            self.stats.prefix_queries_tokens += u64::from(sequence.request.prompt_tokens);
            self.stats.prefix_hits_tokens += u64::from(cached);
        }
        Some(tokens)
    }

    fn planned_step(&mut self, now_ns: u64) -> Step {
        let mut work = StepWork {
            sequences: self.plan.len() as u64,
            ..StepWork::default()
        };
        for &(key, tokens) in &self.plan {
            let Some(sequence) = &self.sequences[key] else {
                continue;
            };
            work.kv_tokens += u64::from(sequence.computed);
            if sequence.computed >= sequence.request.prompt_tokens && tokens == 1 {
                work.decode_sequences += 1;
            } else {
                work.prefill_tokens += u64::from(tokens);
            }
        }
        self.stats.prefill_tokens += work.prefill_tokens;
        let profile = &self.profile;
        let parts = profile.step.parts(
            work,
            profile.gpus,
            profile.link.as_ref(),
            profile.cpu.as_ref(),
        );
        if let Some(preparing) = &mut self.preparing {
            let host_us = parts.host_us * self.speed_factor;
            preparing.take_core(now_ns, (host_us * 1e3) as u64);
        }
        let step_ns = ((parts.ns() as f64 * self.speed_factor) as u64).max(1);
        Step {
            begun_ns: now_ns,
            end_ns: now_ns + step_ns,
            activity: Activity::of_step(&parts, self.speed_factor),
        }
    }

    /// True if the sequence is gone.
    fn finish_sequence(&mut self, key: usize, tokens: u32, out: &mut Vec<Emission>) -> bool {
        let Some(sequence) = &mut self.sequences[key] else {
            return false;
        };
        if sequence.aborted {
            self.forget(key);
            return true;
        }
        let was_prefill = sequence.computed < sequence.request.prompt_tokens;
        sequence.computed += tokens;
        if was_prefill && !sequence.request.block_hashes.is_empty() {
            let full = sequence.computed / self.profile.block_size_tokens;
            self.kv
                .share(&mut sequence.held, &sequence.request.block_hashes, full);
        }
        if sequence.computed < sequence.total() {
            return false;
        }
        let token_index = sequence.generated;
        sequence.generated += 1;
        let finished = sequence.generated >= sequence.request.output_tokens;
        out.push(Emission {
            request: sequence.request.id,
            token_index,
            finished,
            scheduled_ns: sequence.scheduled_ns.unwrap_or(sequence.arrived_ns),
            cached_tokens: sequence.cached_tokens,
        });
        self.stats.generation_tokens += 1;
        if finished {
            let id = sequence.request.id;
            self.by_id.remove(&id);
            self.forget(key);
        }
        finished
    }

    fn forget(&mut self, key: usize) {
        if let Some(mut sequence) = self.sequences[key].take() {
            self.kv.release(&mut sequence.held);
            self.vacant.push(key);
        }
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
