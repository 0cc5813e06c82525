//! What the monitor saw of engines, GPUs and hosts within the part of a run that counts. Pure.
//!
//! A share at a look is of the time before it, so looks in (from, until] are taken. What no look told is absent.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::study::monitor::{Figures, Reading, Source};
use crate::study::point::Point;

/// A gauge over the looks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gauge {
    /// mean
    pub mean: f64,
    /// greatest
    pub max: f64,
}

/// One instance, or all of them together.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct InstanceWatch {
    /// sequences in the batch
    pub running: Option<Gauge>,
    /// sequences in the engine's queue
    pub waiting: Option<Gauge>,
    /// share of KV blocks in use
    pub kv_used_share: Option<Gauge>,
    /// preemptions in the window
    pub preemptions: Option<f64>,
    /// preemptions a second
    pub preemptions_per_s: Option<f64>,
    /// tokens generated a second, by the engine's count
    pub generation_tokens_per_s: Option<f64>,
    /// share of time in which the GPUs ran any kernel
    pub gpu_use_share: Option<Gauge>,
    /// share of time in which SMs had work
    pub sm_active_share: Option<Gauge>,
    /// share of time in which GPU memory was read or written
    pub dram_active_share: Option<Gauge>,
    /// share of GPU memory in use
    pub gpu_memory_used_share: Option<Gauge>,
    /// bytes a second that a GPU sent over NVLink
    pub nvlink_sent_bytes_per_s: Option<f64>,
    /// CPU of the engine's process, in cores
    pub engine_cpu_cores: Option<Gauge>,
    /// share of all cores of the instance's host
    pub host_cpu_share: Option<Gauge>,
}

/// All that was watched.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Watched {
    /// looks in the window, all sources together
    pub looks: u64,
    /// by instance
    pub each: BTreeMap<String, InstanceWatch>,
    /// the fleet: gauges are means of the instances' means, and the greatest of their greatest; rates are sums
    pub fleet: InstanceWatch,
    /// share of one core that the generator's process used
    pub generator_cpu_share: Option<Gauge>,
}

type Of = fn(&Figures) -> Option<f64>;

impl Watched {
    /// Of a point's window; nothing where it has none.
    pub fn of(point: &Point) -> Watched {
        let Some(window) = point.window else {
            return Watched::default();
        };
        let (from_s, until_s) = (point.at_s(window.from_ns), point.at_s(window.until_ns));
        let inside = |look: &&Reading| look.at_s > from_s && look.at_s <= until_s;
        let looks: Vec<&Reading> = point.monitor.iter().filter(inside).collect();
        let mut by_instance: BTreeMap<String, Vec<&Reading>> = BTreeMap::new();
        for look in &looks {
            if let Some(name) = &look.instance {
                by_instance.entry(name.clone()).or_default().push(look);
            }
        }
        let each: BTreeMap<String, InstanceWatch> = by_instance
            .into_iter()
            .map(|(name, looks)| (name, watch(&looks)))
            .collect();
        Watched {
            looks: looks.len() as u64,
            fleet: fleet(each.values()),
            each,
            generator_cpu_share: gauge(&looks, Source::Generator, |figures| figures.cpu_use_share),
        }
    }
}

fn watch(looks: &[&Reading]) -> InstanceWatch {
    let engine = |of: Of| gauge(looks, Source::Engine, of);
    let gpu = |of: Of| gauge(looks, Source::Gpu, of);
    let rate = |source, of: Of| {
        let (grown, seconds) = growth(looks, source, of)?;
        Some(grown / seconds)
    };
    InstanceWatch {
        running: engine(|figures| figures.running),
        waiting: engine(|figures| figures.waiting),
        kv_used_share: engine(|figures| figures.kv_used_share),
        preemptions: growth(looks, Source::Engine, |figures| figures.preemptions_total)
            .map(|(grown, _)| grown),
        preemptions_per_s: rate(Source::Engine, |figures| figures.preemptions_total),
        generation_tokens_per_s: rate(Source::Engine, |figures| figures.generation_tokens_total),
        gpu_use_share: gpu(|figures| figures.gpu_use_share),
        sm_active_share: gpu(|figures| figures.sm_active_share),
        dram_active_share: gpu(|figures| figures.dram_active_share),
        gpu_memory_used_share: gpu(|figures| {
            let used = figures.gpu_memory_used_bytes?;
            let all = used + figures.gpu_memory_free_bytes?;
            (all > 0.0).then(|| used / all)
        }),
        nvlink_sent_bytes_per_s: gpu(|figures| figures.nvlink_sent_bytes_per_s)
            .map(|gauge| gauge.mean),
        engine_cpu_cores: cpu_cores(looks),
        host_cpu_share: gauge(looks, Source::Host, |figures| figures.cpu_use_share),
    }
}

/// As told, else from the growth of CPU time.
fn cpu_cores(looks: &[&Reading]) -> Option<Gauge> {
    gauge(looks, Source::Engine, |figures| figures.cpu_use_share).or_else(|| {
        let (grown, seconds) = growth(looks, Source::Engine, |figures| figures.cpu_seconds_total)?;
        let mean = grown / seconds;
        Some(Gauge { mean, max: mean })
    })
}

fn gauge(looks: &[&Reading], source: Source, of: Of) -> Option<Gauge> {
    let values = looks
        .iter()
        .filter(|look| look.source == source)
        .filter_map(|look| of(&look.figures));
    mean_and_max(values.map(|value| (value, value)))
}

fn mean_and_max(values: impl Iterator<Item = (f64, f64)>) -> Option<Gauge> {
    let (mut count, mut sum, mut max) = (0_u64, 0.0, f64::NEG_INFINITY);
    for (mean, greatest) in values {
        count += 1;
        sum += mean;
        max = max.max(greatest);
    }
    (count > 0).then(|| Gauge {
        mean: sum / count as f64,
        max,
    })
}

/// Growth of a total and the seconds it took, per series of one GPU or engine, averaged; a total that fell was begun
/// anew, and counts from there.
fn growth(looks: &[&Reading], source: Source, of: Of) -> Option<(f64, f64)> {
    let mut series: BTreeMap<Option<&str>, Vec<(f64, f64)>> = BTreeMap::new();
    for look in looks.iter().filter(|look| look.source == source) {
        if let Some(total) = of(&look.figures) {
            let its = series.entry(look.gpu.as_deref()).or_default();
            its.push((look.at_s, total));
        }
    }
    let (mut grown, mut seconds) = (0.0, 0.0);
    let count = series.len() as f64;
    for its in series.values() {
        for pair in its.windows(2) {
            let (before, after) = (pair[0], pair[1]);
            grown += if after.1 >= before.1 {
                after.1 - before.1
            } else {
                after.1
            };
            seconds += after.0 - before.0;
        }
    }
    (seconds > 0.0).then(|| (grown / count, seconds / count))
}

fn fleet<'a>(each: impl Iterator<Item = &'a InstanceWatch> + Clone) -> InstanceWatch {
    let gauge = |of: fn(&InstanceWatch) -> Option<Gauge>| {
        mean_and_max(
            each.clone()
                .filter_map(of)
                .map(|gauge| (gauge.mean, gauge.max)),
        )
    };
    let sum = |of: fn(&InstanceWatch) -> Option<f64>| {
        each.clone().filter_map(of).reduce(|sum, value| sum + value)
    };
    let mean = |of: fn(&InstanceWatch) -> Option<f64>| {
        let values = each.clone().filter_map(of);
        mean_and_max(values.map(|value| (value, value))).map(|gauge| gauge.mean)
    };
    InstanceWatch {
        running: gauge(|watch| watch.running),
        waiting: gauge(|watch| watch.waiting),
        kv_used_share: gauge(|watch| watch.kv_used_share),
        preemptions: sum(|watch| watch.preemptions),
        preemptions_per_s: sum(|watch| watch.preemptions_per_s),
        generation_tokens_per_s: sum(|watch| watch.generation_tokens_per_s),
        gpu_use_share: gauge(|watch| watch.gpu_use_share),
        sm_active_share: gauge(|watch| watch.sm_active_share),
        dram_active_share: gauge(|watch| watch.dram_active_share),
        gpu_memory_used_share: gauge(|watch| watch.gpu_memory_used_share),
        nvlink_sent_bytes_per_s: mean(|watch| watch.nvlink_sent_bytes_per_s),
        engine_cpu_cores: gauge(|watch| watch.engine_cpu_cores),
        host_cpu_share: gauge(|watch| watch.host_cpu_share),
    }
}
