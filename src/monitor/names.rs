//! From an exporter's names to the figures of a study: vLLM, DCGM, node-exporter, Evenkeel's own. Pure.

use std::collections::BTreeMap;

use super::exposition::Page;
use super::rates::CpuTimes;
use crate::study::monitor::Figures;

/// Both spellings of the share of KV blocks in use, the new one first.
const KV_USE: [&str; 2] = ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"];
const MIB: f64 = 1_048_576.0;
/// Modes in which a CPU does nothing.
const IDLE: [&str; 2] = ["idle", "iowait"];
/// Time that is in `user` already.
const GUEST: [&str; 2] = ["guest", "guest_nice"];

/// Where an engine has several series of a name, such as one a data-parallel rank, counts are added and shares averaged.
pub fn engine(page: &Page<'_>) -> Figures {
    Figures {
        running: sum(page, "vllm:num_requests_running"),
        waiting: sum(page, "vllm:num_requests_waiting"),
        kv_used_share: KV_USE.into_iter().find_map(|name| mean(page, name)),
        preemptions_total: sum(page, "vllm:num_preemptions_total"),
        prompt_tokens_total: sum(page, "vllm:prompt_tokens_total"),
        generation_tokens_total: sum(page, "vllm:generation_tokens_total"),
        cpu_seconds_total: sum(page, "process_cpu_seconds_total"),
        ..Figures::default()
    }
}

/// Where the balancer is Evenkeel.
pub fn proxy(page: &Page<'_>) -> Figures {
    Figures {
        open_requests: sum(page, "evenkeel_instance_outstanding_requests"),
        cpu_seconds_total: sum(page, "process_cpu_seconds_total"),
        ..Figures::default()
    }
}

type Put = fn(&mut Figures, f64);

const GPU: [(&str, Put); 6] = [
    ("DCGM_FI_DEV_GPU_UTIL", |gpu, percent| {
        gpu.gpu_use_share = Some(percent / 100.0);
    }),
    ("DCGM_FI_DEV_FB_USED", |gpu, mib| {
        gpu.gpu_memory_used_bytes = Some(mib * MIB);
    }),
    ("DCGM_FI_DEV_FB_FREE", |gpu, mib| {
        gpu.gpu_memory_free_bytes = Some(mib * MIB);
    }),
    ("DCGM_FI_PROF_SM_ACTIVE", |gpu, share| {
        gpu.sm_active_share = Some(share);
    }),
    ("DCGM_FI_PROF_DRAM_ACTIVE", |gpu, share| {
        gpu.dram_active_share = Some(share);
    }),
    // a rate, averaged by DCGM since its last look, also where an exporter's list calls it a counter
    ("DCGM_FI_PROF_NVLINK_TX_BYTES", |gpu, bytes_per_s| {
        gpu.nvlink_sent_bytes_per_s = Some(bytes_per_s);
    }),
];

/// By the exporter's label `gpu`; only `wanted`, where that is given.
pub fn gpus(page: &Page<'_>, wanted: Option<&str>) -> BTreeMap<String, Figures> {
    let mut gpus: BTreeMap<String, Figures> = BTreeMap::new();
    for (name, put) in GPU {
        for sample in page.named(name) {
            let gpu = sample.label("gpu").or(wanted).unwrap_or("0");
            if wanted.is_none_or(|wanted| wanted == gpu) {
                put(gpus.entry(gpu.to_owned()).or_default(), sample.value);
            }
        }
    }
    gpus
}

/// CPU times of a host, over all its cores; absent if it tells none.
pub fn host(page: &Page<'_>) -> Option<CpuTimes> {
    let mut times: Option<CpuTimes> = None;
    for sample in page.named("node_cpu_seconds_total") {
        let mode = sample.label("mode")?;
        if GUEST.contains(&mode) {
            continue;
        }
        let times = times.get_or_insert_default();
        times.all_s += sample.value;
        if !IDLE.contains(&mode) {
            times.busy_s += sample.value;
        }
    }
    times
}

fn sum(page: &Page<'_>, name: &str) -> Option<f64> {
    page.values(name).reduce(|sum, value| sum + value)
}

fn mean(page: &Page<'_>, name: &str) -> Option<f64> {
    let count = page.values(name).count();
    (count > 0).then(|| page.values(name).sum::<f64>() / count as f64)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_read_under_old_and_new_names_and_what_it_does_not_tell_is_absent() {
        let old = Page::read("vllm:gpu_cache_usage_perc 0.25\nvllm:num_requests_running 3\n");
        let figures = engine(&old);
        assert_eq!(
            (figures.kv_used_share, figures.running),
            (Some(0.25), Some(3.0))
        );
        assert_eq!(figures.waiting, None);
        let text = "vllm:kv_cache_usage_perc{engine=\"0\"} 0.2\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.4\n\
            vllm:num_requests_waiting{engine=\"0\"} 1\nvllm:num_requests_waiting{engine=\"1\"} 4\n\
            vllm:num_preemptions_total 7\nprocess_cpu_seconds_total 12.5\n";
        let figures = engine(&Page::read(text));
        assert!((figures.kv_used_share.unwrap() - 0.3).abs() < 1e-12);
        assert_eq!(figures.waiting, Some(5.0));
        assert_eq!(figures.preemptions_total, Some(7.0));
        assert_eq!(figures.cpu_seconds_total, Some(12.5));
    }

    #[test]
    fn gpus_are_told_apart_and_brought_to_the_units_of_a_study() {
        let text = "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"a\"} 87\nDCGM_FI_DEV_GPU_UTIL{gpu=\"1\"} 0\n\
            DCGM_FI_DEV_FB_USED{gpu=\"1\"} 2\nDCGM_FI_PROF_DRAM_ACTIVE{gpu=\"0\"} 0.5\n\
            # TYPE DCGM_FI_PROF_NVLINK_TX_BYTES counter\nDCGM_FI_PROF_NVLINK_TX_BYTES{gpu=\"1\"} 3e9\n";
        let page = Page::read(text);
        let all = gpus(&page, None);
        assert_eq!(all["0"].gpu_use_share, Some(0.87));
        assert_eq!(all["0"].dram_active_share, Some(0.5));
        assert_eq!(all["0"].gpu_memory_used_bytes, None);
        assert_eq!(all["1"].gpu_use_share, Some(0.0));
        assert_eq!(all["1"].gpu_memory_used_bytes, Some(2_097_152.0));
        assert_eq!(all["1"].nvlink_sent_bytes_per_s, Some(3e9));
        assert_eq!(gpus(&page, Some("1")).len(), 1);
        assert!(gpus(&page, Some("7")).is_empty());
    }

    #[test]
    fn a_hosts_times_are_added_over_cores_and_guests_are_not_counted_twice() {
        let text = "node_cpu_seconds_total{cpu=\"0\",mode=\"idle\"} 60\nnode_cpu_seconds_total{cpu=\"0\",mode=\"user\"} 30\n\
            node_cpu_seconds_total{cpu=\"1\",mode=\"iowait\"} 10\nnode_cpu_seconds_total{cpu=\"0\",mode=\"guest\"} 20\n";
        let times = host(&Page::read(text)).unwrap();
        assert_eq!((times.all_s, times.busy_s), (100.0, 30.0));
        assert_eq!(host(&Page::read("up 1\n")), None);
    }
}
