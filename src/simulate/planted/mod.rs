//! Fleets whose bottleneck is known, because it was planted: what verdict rules are tried against. Pure.
//!
//! # What healthy means
//! Every fleet saturates at something. In this engine model `c` sequences make a step of `F + c·B` (`F`: weights and
//! launch; `B`: what one more sequence adds by context read, sampling and its share of prefill), so throughput is
//! `c / (F + c·B)`: at the knee `c = F/B` half of the greatest throughput is reached and TPOT is twice that of an idle
//! fleet; at eight times the knee nine tenths are reached, and more load buys only waiting. A healthy study therefore
//! ends at the knee: there its throughput still grows by half as load doubles, it scales within 10 % of linear, and at
//! moderate load it meets its service level. A compute or bandwidth bound study is the *same* fleet pushed to several
//! times its knee. All other faults are planted so that they bind well before the knee.
//!
//! Loads, lengths, machines and strengths are drawn from the seed, all clearly past the point at which a person would
//! name the fault: the bound is at most about a quarter of what the GPU could do, the hot instance has four fifths of
//! all connections or more, four GPUs on a bad link do at most about half of four times one GPU.

mod draw;
mod kinds;

use crate::simulate::{PointSpec, SimPoint, SimulateError, run_point};
use crate::splitmix::mix;

/// What is wrong with a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// loads go far beyond what the GPU computes or reads
    ComputeBound,
    /// `max_num_seqs` is far below what the GPU could run
    MaxNumSeqs,
    /// connections are hashed, most of them to one instance
    SkewedBalancer,
    /// the KV cache holds few sequences, and more are admitted than fit to their end
    KvPreemption,
    /// tokenizing and planning keep the CPU busy while the GPU waits
    CpuBound,
    /// more GPUs in an instance wait for each other
    Communication,
    /// the load generator's core is full
    SlowClient,
}

/// A kind of planted fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// nothing is wrong
    Healthy,
    /// one fault
    One(Fault),
    /// two at once
    Two,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 9] = [
        Kind::Healthy,
        Kind::One(Fault::ComputeBound),
        Kind::One(Fault::MaxNumSeqs),
        Kind::One(Fault::SkewedBalancer),
        Kind::One(Fault::KvPreemption),
        Kind::One(Fault::CpuBound),
        Kind::One(Fault::Communication),
        Kind::One(Fault::SlowClient),
        Kind::Two,
    ];
}

/// A small study of a fleet whose truth is known.
#[derive(Debug, Clone)]
pub struct PlantedStudy {
    /// kind, number and machine, for people to read
    pub name: String,
    /// what it was drawn as
    pub kind: Kind,
    /// what is wrong, most two; nothing if it is healthy
    pub truth: Vec<Fault>,
    /// the efficiency `Tn / (n·T1)` of its largest fleet at equal load an instance, where that was planted
    pub efficiency: Option<f64>,
    /// its points, smaller fleets and lower loads first
    pub points: Vec<PointSpec>,
    /// service level in the words of `--goodput`
    pub objectives: Vec<String>,
    /// share of requests that must meet it
    pub attainment: f64,
}

impl PlantedStudy {
    /// Runs its points, in their order.
    pub fn run(&self) -> Result<Vec<SimPoint>, SimulateError> {
        self.points.iter().map(run_point).collect()
    }
}

/// So many studies of a kind. The same arguments give the same studies, and a larger count begins with the smaller one's.
pub fn variants(kind: Kind, count: u32, seed: u64) -> Result<Vec<PlantedStudy>, SimulateError> {
    (0..count)
        .map(|number| kinds::study(kind, number, own_seed(kind, number, seed)))
        .collect()
}

/// A study whose largest fleet, of four instances, does exactly `efficiency` of four times what one does: its instances
/// share a host that makes every step `1 / efficiency` times as long, in a closed loop of equal concurrency each. So
/// throughput is that of one instance, stretched, four times; only the draw of lengths differs. Its truth names no fault:
/// none of the kinds is planted.
pub fn of_efficiency(efficiency: f64, seed: u64) -> Result<PlantedStudy, SimulateError> {
    kinds::stretched(efficiency, seed)
}

fn own_seed(kind: Kind, number: u32, seed: u64) -> u64 {
    let place = Kind::ALL.iter().position(|other| *other == kind);
    mix(mix(seed ^ place.unwrap_or(0) as u64) ^ u64::from(number))
}

#[cfg(test)]
mod tests;
