//! "Concurrency will not rise": memory first, preemption second, CPU third, each ruled out with its evidence. Pure.

use serde::Serialize;

use super::evidence::Evidence;
use super::marks::{clean, is_stalled};
use super::{Case, cpu, kv};
use crate::report::curves::{Curve, Step};

/// What became of a suspect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// it is what holds the load back
    Holds,
    /// it is not
    RuledOut,
    /// it was not measured
    Unknown,
}

/// One suspect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EliminationStep {
    /// `memory`, `preemption` or `cpu`
    pub suspect: &'static str,
    /// what became of it
    pub state: State,
    /// by what
    pub evidence: Vec<Evidence>,
}

/// The suspects of one curve whose throughput stalls, in the order they are looked at.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Elimination {
    /// the curve
    pub curve: String,
    /// memory, preemption, CPU
    pub steps: Vec<EliminationStep>,
    /// in a sentence
    pub says: String,
}

/// One for each curve that stalls.
pub(super) fn eliminations(case: &Case<'_>) -> Vec<Elimination> {
    case.curves.iter().filter_map(elimination).collect()
}

fn elimination(curve: &Curve<'_>) -> Option<Elimination> {
    let steps = clean(curve);
    let top = steps.last()?;
    is_stalled(&steps).filter(|stalled| *stalled)?;
    let suspects = vec![
        suspect("memory", kv::is_full(top), memory(top)),
        suspect("preemption", kv::preempts(top), preemption(top)),
        suspect("cpu", cpu::is_used_up(top), cpu::evidence(top)),
    ];
    let first = suspects.iter().find(|step| step.state == State::Holds);
    let unknown: Vec<&str> = suspects
        .iter()
        .filter(|step| step.state == State::Unknown)
        .map(|step| step.suspect)
        .collect();
    let says = match (first, unknown.as_slice()) {
        (Some(step), _) => format!(
            "Throughput stalls, and {} is the first that holds it back.",
            step.suspect
        ),
        (None, []) => "Throughput stalls, and it is none of memory, preemption and CPU.".to_owned(),
        (None, unknown) => format!(
            "Throughput stalls; {} could not be looked at, the others are ruled out.",
            unknown.join(" and ")
        ),
    };
    Some(Elimination {
        curve: curve.name(),
        steps: suspects,
        says,
    })
}

fn suspect(suspect: &'static str, holds: Option<bool>, evidence: Vec<Evidence>) -> EliminationStep {
    EliminationStep {
        suspect,
        state: match holds {
            Some(true) => State::Holds,
            Some(false) => State::RuledOut,
            None => State::Unknown,
        },
        evidence,
    }
}

fn memory(step: &Step<'_>) -> Vec<Evidence> {
    let all = kv::evidence(step);
    let (_, memory): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|one| one.what.starts_with("preemptions"));
    memory
}

fn preemption(step: &Step<'_>) -> Vec<Evidence> {
    let all = kv::evidence(step).into_iter();
    all.filter(|one| one.what.starts_with("preemptions"))
        .collect()
}
