//! The instance's GPUs and CPU as exporters would show them: DCGM's, node-exporter's and the process's own names.

use std::collections::VecDeque;
use std::fmt::Write;

use super::activity::{Activity, Progress};
use super::profile::Profile;
use crate::splitmix::mix;

/// Shares are those of the last second, as DCGM's are of its sampling period.
const PERIOD_NS: u64 = 1_000_000_000;
const MIB: f64 = 1024.0 * 1024.0;

/// What the instance did lately.
#[derive(Debug, Default)]
pub(crate) struct Hardware {
    /// since when, ascending; the first is the last one before the period
    lately: VecDeque<(u64, Progress)>,
}

impl Hardware {
    /// Takes what is so from `now_ns` on.
    pub(crate) fn note(&mut self, now_ns: u64, progress: Progress) {
        self.lately.push_back((now_ns, progress));
        let before_ns = now_ns.saturating_sub(PERIOD_NS);
        while self
            .lately
            .get(1)
            .is_some_and(|(at_ns, _)| *at_ns <= before_ns)
        {
            self.lately.pop_front();
        }
    }

    /// Totals until `now_ns`.
    fn total(&self, now_ns: u64) -> Activity {
        let then = self.lately.iter().rfind(|(at_ns, _)| *at_ns <= now_ns);
        then.map_or_else(Activity::default, |(_, progress)| progress.at(now_ns))
    }

    /// DCGM's exporter. `instance` tells GPUs of several instances apart.
    pub(crate) fn dcgm(&self, now_ns: u64, profile: &Profile, instance: u64) -> String {
        let (now, before) = (
            self.total(now_ns),
            self.total(now_ns.saturating_sub(PERIOD_NS)),
        );
        let period_s = now_ns.clamp(1, PERIOD_NS) as f64 / 1e9;
        let share =
            |of: fn(&Activity) -> f64| ((of(&now) - of(&before)) / period_s).clamp(0.0, 1.0);
        let mut out = String::new();
        let mut put = |name: &str, kind: &str, help: &str, value: f64| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for gpu in 0..profile.gpus {
                let labels = gpu_labels(profile, instance, gpu);
                let _ = writeln!(out, "{name}{{{labels}}} {value}");
            }
        };
        let percent = (share(|activity| activity.gpu_s) * 100.0).round();
        put(
            "DCGM_FI_DEV_GPU_UTIL",
            "gauge",
            "GPU utilization (in %).",
            percent,
        );
        if let Some((used, free)) = profile.gpu_memory_bytes() {
            let mib = |bytes: f64| (bytes / MIB).round();
            put(
                "DCGM_FI_DEV_FB_FREE",
                "gauge",
                "Framebuffer memory free (in MiB).",
                mib(free),
            );
            put(
                "DCGM_FI_DEV_FB_USED",
                "gauge",
                "Framebuffer memory used (in MiB).",
                mib(used),
            );
        }
        put(
            "DCGM_FI_PROF_SM_ACTIVE",
            "gauge",
            "The ratio of cycles an SM has at least 1 warp assigned.",
            share(|activity| activity.sm_s),
        );
        put(
            "DCGM_FI_PROF_DRAM_ACTIVE",
            "gauge",
            "Ratio of cycles the device memory interface is active sending or receiving data.",
            share(|activity| activity.dram_s),
        );
        if profile.gpus > 1 {
            put(
                "DCGM_FI_PROF_NVLINK_TX_BYTES",
                "gauge",
                "The rate of data transmitted over NVLink, not including protocol headers (in B/s).",
                ((now.link_sent_bytes - before.link_sent_bytes) / period_s)
                    .max(0.0)
                    .round(),
            );
        }
        out
    }

    /// The process's CPU time, as client libraries of Prometheus tell it.
    pub(crate) fn process(&self, now_ns: u64) -> String {
        format!(
            "# HELP process_cpu_seconds_total Total user and system CPU time spent in seconds.\n\
             # TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total {:?}\n",
            self.total(now_ns).cpu_s
        )
    }

    /// node-exporter's CPU seconds of a host that runs nothing else; `None` where the profile has no CPU.
    pub(crate) fn node(&self, now_ns: u64, profile: &Profile) -> Option<String> {
        let cores = profile.cpu.as_ref()?.cores;
        let each_s = self.total(now_ns).cpu_s / f64::from(cores);
        let idle_s = (now_ns as f64 / 1e9 - each_s).max(0.0);
        let name = "node_cpu_seconds_total";
        let mut out =
            format!("# HELP {name} Seconds the CPUs spent in each mode.\n# TYPE {name} counter\n");
        for core in 0..cores {
            for (mode, seconds) in [("idle", idle_s), ("user", each_s)] {
                let _ = writeln!(out, "{name}{{cpu=\"{core}\",mode=\"{mode}\"}} {seconds:?}");
            }
        }
        Some(out)
    }
}

fn gpu_labels(profile: &Profile, instance: u64, gpu: u32) -> String {
    let (high, low) = (
        mix(instance << 32 | u64::from(gpu)),
        mix(!(instance << 32 | u64::from(gpu))),
    );
    let uuid = format!(
        "GPU-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    );
    let model = profile
        .gpu
        .as_ref()
        .map_or(profile.name.as_str(), |gpu| gpu.name.as_str());
    let model = super::metrics::escape(model);
    format!(
        "gpu=\"{gpu}\",UUID=\"{uuid}\",device=\"nvidia{gpu}\",modelName=\"{model}\",Hostname=\"simulated-{instance}\""
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::engine::activity::Step;
    use crate::engine::cost::CpuCost;

    const SECOND: u64 = 1_000_000_000;

    fn value(text: &str, start: &str) -> f64 {
        let line = text.lines().find(|line| line.starts_with(start));
        line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// A step that kept the GPU busy for half of its two seconds.
    fn half_busy(begun_ns: u64) -> Progress {
        let activity = Activity {
            gpu_s: 1.0,
            sm_s: 0.8,
            cpu_s: 1.0,
            link_sent_bytes: 4e9,
            ..Activity::default()
        };
        Progress {
            ended: Activity::default(),
            step: Some(Step {
                begun_ns,
                end_ns: begun_ns + 2 * SECOND,
                activity,
            }),
        }
    }

    #[test]
    fn shares_are_of_the_last_second_and_totals_of_all_time() {
        let profile = Profile::load("h100-llama3-8b").unwrap().on_gpus(2).unwrap();
        let mut hardware = Hardware::default();
        hardware.note(0, Progress::default());
        hardware.note(5 * SECOND, half_busy(5 * SECOND));
        let text = hardware.dcgm(5 * SECOND + SECOND / 2, &profile, 0);
        assert_eq!(value(&text, "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\""), 25.0);
        let text = hardware.dcgm(6 * SECOND + SECOND / 2, &profile, 0);
        assert_eq!(value(&text, "DCGM_FI_DEV_GPU_UTIL{gpu=\"1\""), 50.0);
        assert!((value(&text, "DCGM_FI_PROF_SM_ACTIVE{") - 0.4).abs() < 1e-9);
        assert_eq!(value(&text, "DCGM_FI_PROF_NVLINK_TX_BYTES{"), 2e9);
        assert!((68_000.0..69_000.0).contains(&value(&text, "DCGM_FI_DEV_FB_USED{")));
        assert!(text.contains("modelName=\"NVIDIA H100 80GB HBM3\""));
        hardware.note(20 * SECOND, Progress::default());
        assert_eq!(
            value(
                &hardware.dcgm(25 * SECOND, &profile, 0),
                "DCGM_FI_DEV_GPU_UTIL{"
            ),
            0.0
        );
    }

    #[test]
    fn each_gpu_has_an_id_of_its_own() {
        let profile = Profile::load("test-fast").unwrap().on_gpus(2).unwrap();
        let text =
            Hardware::default().dcgm(0, &profile, 0) + &Hardware::default().dcgm(0, &profile, 1);
        let lines = text
            .lines()
            .filter(|line| line.starts_with("DCGM_FI_DEV_GPU_UTIL{"));
        let ids: std::collections::HashSet<&str> = lines
            .map(|line| {
                line.split("UUID=\"")
                    .nth(1)
                    .unwrap()
                    .split('"')
                    .next()
                    .unwrap()
            })
            .collect();
        assert_eq!(ids.len(), 4);
    }

    #[test]
    fn a_hosts_cores_are_idle_for_what_they_do_not_work() {
        let mut profile = Profile::load("test-fast").unwrap();
        let mut hardware = Hardware::default();
        hardware.note(0, half_busy(0));
        assert_eq!(hardware.node(2 * SECOND, &profile), None);
        profile.cpu = Some(CpuCost {
            cores: 2,
            request_us: 0.0,
            prompt_token_us: 0.0,
            step_us: 0.0,
            step_sequence_us: 0.0,
        });
        let text = hardware.node(2 * SECOND, &profile).unwrap();
        assert_eq!(
            value(&text, "node_cpu_seconds_total{cpu=\"1\",mode=\"user\"}"),
            0.5
        );
        assert_eq!(
            value(&text, "node_cpu_seconds_total{cpu=\"0\",mode=\"idle\"}"),
            1.5
        );
        assert_eq!(
            value(&hardware.process(2 * SECOND), "process_cpu_seconds_total "),
            1.0
        );
    }
}
