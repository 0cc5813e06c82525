//! What holds a fleet back, with evidence: one file a rule. Pure.
//!
//! A rule looks at one curve, a fleet of one size under rising load, and says that it holds, that it does not, or that
//! what it needs was not measured. Nothing is assumed of what was not measured. Points at which the generator was the
//! limit say something about the generator only. Several verdicts may hold at once; the one that explains most is first.
//! `VERDICTS.md` has the rules, their thresholds and how often they are right.

mod advice;
mod balancer;
mod communication;
mod compute;
mod cpu;
mod elimination;
mod evidence;
mod generator;
mod healthy;
mod kv;
mod marks;
mod queue;
mod tail;

use serde::Serialize;

pub use advice::CounterExperiment;
pub use elimination::{Elimination, EliminationStep, State};
pub use evidence::Evidence;
pub use tail::{Tail, TailPattern};

use super::curves::{Curve, curves};
use super::isolation::{Isolation, isolations};
use super::point::PointView;
use super::scaling::{ScalingView, scalings};
use crate::study::StudyFile;

/// Name of what is no variant.
const BASE: &str = "base";

/// What holds a fleet back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// the client is too slow: the figures are its own
    GeneratorBound,
    /// the KV cache is full, or sequences are preempted
    KvBound,
    /// CPU work keeps the GPU waiting
    CpuBound,
    /// requests queue while the GPU could take more: `max_num_seqs`, scheduling
    QueueBound,
    /// one instance saturates while others have room
    BalancerBound,
    /// GPUs of an instance wait for each other
    CommunicationBound,
    /// the GPU's arithmetic or memory bandwidth is used up
    ComputeBound,
    /// it scales badly or fails, and nothing that was measured tells why
    Unexplained,
    /// nothing holds it back within the loads that were tried
    Healthy,
}

impl Kind {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Kind::GeneratorBound => "generator bound",
            Kind::KvBound => "KV cache or preemption bound",
            Kind::CpuBound => "CPU bound",
            Kind::QueueBound => "scheduling or queue bound",
            Kind::BalancerBound => "balancer or skew bound",
            Kind::CommunicationBound => "communication bound",
            Kind::ComputeBound => "compute or bandwidth bound",
            Kind::Unexplained => "not explained by what was measured",
            Kind::Healthy => "healthy",
        }
    }
}

/// A verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// what holds it back
    pub kind: Kind,
    /// share of the throughput hoped for that is missing where it is worst, 0 to 1: verdicts are ranked by it
    pub cost_share: f64,
    /// in a sentence
    pub says: String,
    /// what it rests on
    pub evidence: Vec<Evidence>,
    /// one thing to change next
    pub change: String,
    /// what would verify it
    pub counter_experiment: Option<CounterExperiment>,
    /// curves on which it holds, the one with the greatest cost first
    pub curves: Vec<String>,
}

/// Something that could not be judged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct NotJudged {
    /// what
    pub kind: Kind,
    /// what was not measured
    pub missing: String,
}

/// A rule that was asked and does not hold, on the largest fleet that it could be asked of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuledOut {
    /// what it is not
    pub kind: Kind,
    /// by what
    pub evidence: Vec<Evidence>,
}

/// All that is said of a study.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    /// at least one, the one that explains most first
    pub verdicts: Vec<Verdict>,
    /// "concurrency will not rise": memory, then preemption, then CPU, on every curve that stalls
    pub eliminations: Vec<Elimination>,
    /// who has a tail, and what it points to
    pub tails: Vec<Tail>,
    /// whether batch work pulls the online load down
    pub isolations: Vec<Isolation>,
    /// what it is not
    pub ruled_out: Vec<RuledOut>,
    /// what was not measured
    pub not_judged: Vec<NotJudged>,
    /// what weakens all of it, such as failed requests
    pub caveats: Vec<String>,
}

/// What rules look at.
struct Case<'a> {
    curves: Vec<Curve<'a>>,
    scalings: Vec<ScalingView>,
    study: &'a StudyFile,
}

/// What a rule finds on a curve.
enum Judgement {
    Holds(Found),
    Not(Vec<Evidence>),
    /// what is missing
    Unknown(String),
    /// the rule says nothing of such a curve
    NotItsMatter,
}

/// A verdict on one curve.
struct Found {
    cost_share: f64,
    says: String,
    evidence: Vec<Evidence>,
    change: String,
    counter_experiment: Option<CounterExperiment>,
}

type Rule = fn(&Case<'_>, &Curve<'_>) -> Judgement;

/// In the order of the kinds; memory before preemption before CPU, and what the client is to blame for before all.
const RULES: [(Kind, Rule); 7] = [
    (Kind::GeneratorBound, generator::judge),
    (Kind::KvBound, kv::judge),
    (Kind::CpuBound, cpu::judge),
    (Kind::QueueBound, queue::judge),
    (Kind::BalancerBound, balancer::judge),
    (Kind::CommunicationBound, communication::judge),
    (Kind::ComputeBound, compute::judge),
];

/// Judges a study. Counter-experiments are not judged by themselves, where there are other points.
pub fn diagnose(points: &[PointView], study: &StudyFile) -> Diagnosis {
    let all = curves(points);
    let is_base = |curve: &Curve<'_>| curve.family.variant == BASE;
    let has_base = all.iter().any(is_base);
    let case = Case {
        curves: all
            .into_iter()
            .filter(|curve| !has_base || is_base(curve))
            .collect(),
        scalings: scalings(points, study),
        study,
    };
    let (mut verdicts, mut ruled_out, mut not_judged) = (Vec::new(), Vec::new(), Vec::new());
    for (kind, rule) in RULES {
        match judged(&case, kind, rule) {
            Judged::Holds(verdict) => verdicts.push(verdict),
            Judged::Not(evidence) => ruled_out.push(RuledOut { kind, evidence }),
            Judged::Unknown(missing) => not_judged.push(NotJudged { kind, missing }),
            Judged::Nowhere => {}
        }
    }
    verdicts.sort_by(|a, b| {
        let rank = |verdict: &Verdict| verdict.kind != Kind::GeneratorBound;
        let cost = b.cost_share.total_cmp(&a.cost_share);
        rank(a).cmp(&rank(b)).then(cost)
    });
    if verdicts.is_empty() {
        verdicts.push(healthy::otherwise(&case));
    }
    Diagnosis {
        verdicts,
        eliminations: elimination::eliminations(&case),
        tails: tail::tails(&case),
        isolations: isolations(points),
        ruled_out,
        not_judged,
        caveats: healthy::caveats(&case),
    }
}

/// A rule over all curves.
enum Judged {
    Holds(Verdict),
    Not(Vec<Evidence>),
    Unknown(String),
    Nowhere,
}

/// The verdict where it costs most; else what rules it out on the last curve; else what is missing.
fn judged(case: &Case<'_>, kind: Kind, rule: Rule) -> Judged {
    let (mut found, mut denied, mut missing) = (Vec::new(), None, None);
    for curve in &case.curves {
        match rule(case, curve) {
            Judgement::Holds(one) => found.push((curve.name(), one)),
            Judgement::Not(evidence) => denied = Some(evidence),
            Judgement::Unknown(what) => missing = Some(what),
            Judgement::NotItsMatter => {}
        }
    }
    found.sort_by(|(_, a), (_, b)| b.cost_share.total_cmp(&a.cost_share));
    let curves: Vec<String> = found.iter().map(|(name, _)| name.clone()).collect();
    match (found.into_iter().next(), denied, missing) {
        (Some((_, one)), _, _) => Judged::Holds(Verdict {
            kind,
            cost_share: one.cost_share,
            says: one.says,
            evidence: one.evidence,
            change: one.change,
            counter_experiment: one.counter_experiment,
            curves,
        }),
        (None, Some(evidence), _) => Judged::Not(evidence),
        (None, None, Some(what)) => Judged::Unknown(what),
        (None, None, None) => Judged::Nowhere,
    }
}

#[cfg(test)]
mod calibration;
#[cfg(test)]
mod tests;
