//! The section of the verdict: its evidence, what was ruled out and by what, and the experiment that would refute it. Pure.

use super::table::{Cell, Column, Table};
use super::told::ToldStudy;
use super::{Part, Section};
use crate::report::verdict::{
    CounterExperiment, Diagnosis, Elimination, Evidence, Kind, State, Tail, TailPattern, Verdict,
};

/// The section.
pub fn section(studies: &[ToldStudy], diagnoses: &[Diagnosis]) -> Section {
    let mut parts = Vec::new();
    for (number, (study, diagnosis)) in studies.iter().zip(diagnoses).enumerate() {
        if studies.len() > 1 {
            parts.push(Part::Heading(study.label.clone()));
        }
        for (rank, verdict) in diagnosis.verdicts.iter().enumerate() {
            parts.extend(one(verdict, &format!("{number}-{rank}"), rank));
        }
        parts.extend(ruled_out(&diagnosis.eliminations, number));
        parts.extend(tails(&diagnosis.tails, number));
        parts.extend(not_judged(diagnosis));
    }
    Section {
        id: "verdict".into(),
        short: "Verdict",
        title: "The verdict and what it rests on".into(),
        parts,
    }
}

fn one(verdict: &Verdict, id: &str, rank: usize) -> Vec<Part> {
    let place = if rank == 0 { "" } else { "Also: " };
    let mut parts = vec![
        Part::Heading(format!("{place}{}", verdict.kind.name())),
        Part::Text(verdict.says.clone()),
    ];
    if !matches!(verdict.kind, Kind::Healthy | Kind::Unexplained) {
        parts.push(Part::Text(format!(
            "{:.0} % of the throughput that was hoped for is missing where it is worst. It holds on: {}.",
            verdict.cost_share * 100.0,
            verdict.curves.join("; ")
        )));
    }
    let title = format!("Evidence: {}", verdict.kind.name());
    parts.push(Part::Table(evidence_table(
        format!("evidence-{id}"),
        title,
        &verdict.evidence,
    )));
    parts.push(Part::Text(format!(
        "Change next, and nothing else: {}.",
        sentence(&verdict.change)
    )));
    match &verdict.counter_experiment {
        Some(experiment) => parts.extend(counter(experiment)),
        None => parts.push(Part::Text("No counter-experiment is proposed.".into())),
    }
    parts
}

/// Without its full stop.
fn sentence(text: &str) -> &str {
    text.trim_end_matches('.')
}

fn counter(experiment: &CounterExperiment) -> Vec<Part> {
    vec![
        Part::Text(format!(
            "The counter-experiment “{}”, for the plan of a sweep. If the verdict is right: {}. If it is wrong: {}.",
            experiment.name,
            sentence(&experiment.expects),
            sentence(&experiment.refuted_by)
        )),
        Part::Verbatim(experiment.toml()),
    ]
}

fn evidence_table(id: String, title: String, evidence: &[Evidence]) -> Table {
    let columns = vec![
        Column::plain("what", "measured", "what was measured"),
        Column::plain("value", "value", "how much"),
        Column::plain("unit", "unit", "of the value; none for a ratio"),
        Column::plain("threshold", "held against", "what it is held against"),
        Column::plain("points", "at", "points where it was measured"),
    ];
    let mut table = Table::new(id, title, columns);
    for piece in evidence {
        table.row([
            Cell::from(piece.what.clone()),
            piece.value.into(),
            piece.unit.into(),
            piece.threshold.clone().into(),
            piece.points.join(", ").into(),
        ]);
    }
    table
}

fn ruled_out(eliminations: &[Elimination], number: usize) -> Vec<Part> {
    if eliminations.is_empty() {
        return Vec::new();
    }
    let columns = vec![
        Column::plain("curve", "curve", "points that differ only in load"),
        Column::plain(
            "suspect",
            "suspect",
            "in the order in which they are looked at: memory, preemption, CPU",
        ),
        Column::plain("state", "is", "`holds`, `ruled out`, or `not measured`"),
        Column::plain(
            "evidence",
            "by",
            "what was measured, and what it is held against",
        ),
    ];
    let title = "Where concurrency brings no more: memory first, preemption second, CPU third";
    let mut table = Table::new(format!("eliminations-{number}"), title, columns);
    for elimination in eliminations {
        for step in &elimination.steps {
            let state = match step.state {
                State::Holds => "✗ holds it back",
                State::RuledOut => "✓ ruled out",
                State::Unknown => "? not measured",
            };
            let evidence: Vec<String> = step.evidence.iter().map(ToString::to_string).collect();
            table.row([
                Cell::from(elimination.curve.clone()),
                step.suspect.into(),
                state.into(),
                evidence.join("; ").into(),
            ]);
        }
    }
    let says = |one: &Elimination| format!("{}: {}", one.curve, one.says);
    vec![
        Part::Heading("Ruled out, in order".into()),
        Part::List(eliminations.iter().map(says).collect()),
        Part::Table(table),
    ]
}

fn tails(tails: &[Tail], number: usize) -> Vec<Part> {
    if tails.is_empty() {
        return Vec::new();
    }
    let columns = vec![
        Column::plain("curve", "curve", "points that differ only in load"),
        Column::plain(
            "pattern",
            "who has one",
            "nobody, only longer requests, or short ones too",
        ),
        Column::plain(
            "says",
            "what it points to",
            "by the lengths that have it, and by preemptions and queues",
        ),
        Column::plain(
            "evidence",
            "by",
            "P99 over median of TTFT by length, and what tells causes apart",
        ),
        Column::plain("next", "what would tell more", "one thing"),
    ];
    let mut table = Table::new(
        format!("tails-{number}"),
        "Who has a tail, at the largest load within the service level",
        columns,
    );
    for tail in tails {
        let pattern = match tail.pattern {
            TailPattern::Nobody => "nobody",
            TailPattern::OnlyLong => "only longer requests",
            TailPattern::ShortToo => "short ones too",
        };
        let evidence: Vec<String> = tail.evidence.iter().map(ToString::to_string).collect();
        table.row([
            Cell::from(tail.curve.clone()),
            pattern.into(),
            tail.says.clone().into(),
            evidence.join("; ").into(),
            tail.next.clone().into(),
        ]);
    }
    vec![Part::Heading("The tail".into()), Part::Table(table)]
}

fn not_judged(diagnosis: &Diagnosis) -> Vec<Part> {
    if diagnosis.not_judged.is_empty() {
        return Vec::new();
    }
    let line = |one: &crate::report::verdict::NotJudged| {
        format!("{}: not measured was {}", one.kind.name(), one.missing)
    };
    vec![
        Part::Heading("Not judged".into()),
        Part::List(diagnosis.not_judged.iter().map(line).collect()),
    ]
}
