//! What GPU and CPU of an instance were busy with: totals that a monitor takes differences of. Pure.
//!
//! The shares by kind of work are estimates of what DCGM shows of such kernels: a prompt's matrix products keep nearly
//! all SMs at work and read little; a decode waits for memory, at the 80 % of the peak that profiles assume; NCCL's
//! kernels take few SMs. While the host plans a step the GPU runs nothing.

use super::cost::StepParts;

/// Shares of time in which SMs have work and memory is in use, of a kind of work.
struct Shares {
    sm: f64,
    dram: f64,
}

const COMPUTE: Shares = Shares {
    sm: 0.95,
    dram: 0.25,
};
const MEMORY: Shares = Shares {
    sm: 0.60,
    dram: 0.80,
};
const SAMPLE: Shares = Shares {
    sm: 0.30,
    dram: 0.10,
};
const LINK: Shares = Shares {
    sm: 0.10,
    dram: 0.10,
};

/// Totals since the start. Those of GPUs are of each GPU: under tensor parallelism all do the same.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Activity {
    /// A kernel ran, seconds.
    pub gpu_s: f64,
    /// SMs had work, seconds of all SMs.
    pub sm_s: f64,
    /// Memory was read or written, seconds.
    pub dram_s: f64,
    /// Bytes sent to other GPUs.
    pub link_sent_bytes: f64,
    /// CPU time of the instance, seconds over its cores.
    pub cpu_s: f64,
}

/// Totals as of the last step's end, and the step under way.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    pub(super) ended: Activity,
    pub(super) step: Option<Step>,
}

/// A step under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) begun_ns: u64,
    pub(super) end_ns: u64,
    pub(super) activity: Activity,
}

impl Progress {
    /// Totals until `now_ns`, the step under way in part.
    pub fn at(&self, now_ns: u64) -> Activity {
        let Some(step) = &self.step else {
            return self.ended;
        };
        let since_ns = now_ns.saturating_sub(step.begun_ns) as f64;
        let length_ns = step.end_ns.saturating_sub(step.begun_ns).max(1) as f64;
        let share = (since_ns / length_ns).min(1.0);
        self.ended.plus(&step.activity, share)
    }
}

impl Activity {
    /// What a step does, each of its parts lasting `factor` times as long.
    pub(super) fn of_step(parts: &StepParts, factor: f64) -> Activity {
        let by_kind = [
            (parts.compute_us, COMPUTE),
            (parts.memory_us, MEMORY),
            (parts.sample_us, SAMPLE),
            (parts.link_us, LINK),
        ];
        let mut step = Activity {
            link_sent_bytes: parts.link_bytes,
            cpu_s: parts.host_us * factor / 1e6,
            ..Activity::default()
        };
        for (us, shares) in by_kind {
            let seconds = us * factor / 1e6;
            step.gpu_s += seconds;
            step.sm_s += seconds * shares.sm;
            step.dram_s += seconds * shares.dram;
        }
        step
    }

    /// This and a share of another.
    pub(super) fn plus(self, other: &Activity, share: f64) -> Activity {
        Activity {
            gpu_s: self.gpu_s + other.gpu_s * share,
            sm_s: self.sm_s + other.sm_s * share,
            dram_s: self.dram_s + other.dram_s * share,
            link_sent_bytes: self.link_sent_bytes + other.link_sent_bytes * share,
            cpu_s: self.cpu_s + other.cpu_s * share,
        }
    }
}
