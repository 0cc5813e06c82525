//! What a monitor would have read of a simulated fleet, at equal intervals of virtual time. Pure.

use super::generator::Generator;
use crate::engine::activity::Activity;
use crate::engine::model::Engine;
use crate::study::monitor::{Figures, Reading, Source};

/// Name of an instance in readings and records.
pub fn instance_name(instance: u32) -> String {
    format!("engine-{instance}")
}

/// The monitor, and what it saw.
pub(super) struct Looks {
    every_ns: u64,
    before: Vec<Activity>,
    generator_cpu_ns: u64,
    readings: Vec<Reading>,
}

impl Looks {
    pub(super) fn new(every_ns: u64, instances: usize) -> Self {
        Looks {
            every_ns: every_ns.max(1),
            before: vec![Activity::default(); instances],
            generator_cpu_ns: 0,
            readings: Vec::new(),
        }
    }

    pub(super) fn every_ns(&self) -> u64 {
        self.every_ns
    }

    pub(super) fn readings(self) -> Vec<Reading> {
        self.readings
    }

    pub(super) fn look(
        &mut self,
        now_ns: u64,
        engines: &[Engine],
        generator: &Generator,
        open: u64,
    ) {
        for (at, engine) in engines.iter().enumerate() {
            self.look_at(now_ns, at, engine);
        }
        let cpu_ns = generator.cpu_ns(now_ns);
        let used_ns = cpu_ns.saturating_sub(self.generator_cpu_ns);
        self.generator_cpu_ns = cpu_ns;
        let figures = Figures {
            cpu_use_share: Some(used_ns as f64 / self.every_ns as f64),
            cpu_seconds_total: Some(cpu_ns as f64 / 1e9),
            open_requests: Some(open as f64),
            ..Figures::default()
        };
        self.note(now_ns, Source::Generator, None, None, figures);
    }

    /// What the balancer has open on each instance: what it waits for there, in the engine's queue or before it.
    pub(super) fn look_at_balancer(&mut self, now_ns: u64, open_on: &[u32]) {
        for (at, open) in (0..).zip(open_on) {
            let figures = Figures {
                open_requests: Some(f64::from(*open)),
                ..Figures::default()
            };
            let name = instance_name(at);
            self.note(now_ns, Source::Proxy, Some(&name), None, figures);
        }
    }

    fn look_at(&mut self, now_ns: u64, at: usize, engine: &Engine) {
        let now = engine.activity(now_ns);
        let before = std::mem::replace(&mut self.before[at], now);
        let every_s = self.every_ns as f64 / 1e9;
        let share = |of: fn(&Activity) -> f64| Some(((of(&now) - of(&before)) / every_s).max(0.0));
        let name = instance_name(at as u32);
        let cpu_share = share(|activity| activity.cpu_s);
        let figures = Figures {
            cpu_seconds_total: Some(now.cpu_s),
            cpu_use_share: cpu_share,
            ..engine_figures(engine)
        };
        self.note(now_ns, Source::Engine, Some(&name), None, figures);
        let profile = engine.profile();
        if let Some(cpu) = profile.cpu {
            let figures = Figures {
                cpu_use_share: cpu_share.map(|share| (share / f64::from(cpu.cores)).min(1.0)),
                ..Figures::default()
            };
            self.note(now_ns, Source::Host, Some(&name), None, figures);
        }
        // A step's end is a whole nanosecond, so a busy second may come out a little too long.
        let gpu_share = |of| share(of).map(|share| share.min(1.0));
        let memory = profile.gpu_memory_bytes();
        let figures = Figures {
            gpu_use_share: gpu_share(|activity| activity.gpu_s),
            sm_active_share: gpu_share(|activity| activity.sm_s),
            dram_active_share: gpu_share(|activity| activity.dram_s),
            gpu_memory_used_bytes: memory.map(|(used, _)| used),
            gpu_memory_free_bytes: memory.map(|(_, free)| free),
            nvlink_sent_bytes_per_s: share(|activity| activity.link_sent_bytes)
                .filter(|_| profile.gpus > 1),
            ..Figures::default()
        };
        for gpu in 0..profile.gpus {
            self.note(now_ns, Source::Gpu, Some(&name), Some(gpu), figures.clone());
        }
    }

    fn note(
        &mut self,
        now_ns: u64,
        source: Source,
        instance: Option<&str>,
        gpu: Option<u32>,
        figures: Figures,
    ) {
        self.readings.push(Reading {
            at_s: now_ns as f64 / 1e9,
            source,
            instance: instance.map(str::to_owned),
            gpu: gpu.map(|gpu| gpu.to_string()),
            figures,
        });
    }
}

fn engine_figures(engine: &Engine) -> Figures {
    let stats = engine.stats();
    let blocks = f64::from(stats.kv_total_blocks.max(1));
    Figures {
        running: Some(f64::from(stats.running)),
        waiting: Some(f64::from(stats.waiting)),
        kv_used_share: Some(f64::from(stats.kv_used_blocks) / blocks),
        preemptions_total: Some(stats.preemptions as f64),
        prompt_tokens_total: Some(stats.prefill_tokens as f64),
        generation_tokens_total: Some(stats.generation_tokens as f64),
        ..Figures::default()
    }
}
