//! What a sweep says before it begins, of each point, and at its end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::expand::BASE;
use super::plan::{Fleet, LengthSet, Plan, Point, ScenarioPlan};
use crate::report::latency::Figure;
use crate::report::load_summary::LoadSummary;
use crate::report::terminal::{count, ms, number, percent};
use crate::study::{Load, Scenario};

/// What is about to be run; `finished` points were so before.
pub fn opening(plan: &Plan, simulate: bool, finished: usize) -> String {
    let mut lines = vec![format!("sweep {}: {}", plan.name, points(plan))];
    if finished > 0 {
        lines.push(format!(
            "{finished} are finished already and stay as they are"
        ));
    }
    lines.push(place(plan, simulate));
    lines.push(format!(
        "instances {}; GPUs in one {}; policies {}",
        list(&plan.instances),
        list(&plan.gpus_per_instance),
        plan.policies.join(", ")
    ));
    lines.extend(plan.scenarios.iter().map(scenario));
    lines.extend(plan.length_sets.iter().map(lengths));
    lines.extend(variants(plan));
    lines.push(timing(plan, simulate, finished));
    if !plan.objective_words.is_empty() {
        lines.push(format!(
            "a request is good with {}, and {} % of them are to be",
            plan.objective_words.join(" "),
            number(Some(plan.attainment * 100.0))
        ));
    }
    lines.extend(
        plan.warnings
            .iter()
            .map(|warning| format!("warning: {warning}")),
    );
    lines.join("\n")
}

fn points(plan: &Plan) -> String {
    let all = plan.points.len();
    let variants = plan
        .points
        .iter()
        .filter(|point| point.setting.variant != BASE)
        .count();
    let mut text = format!("{} points", count(all as i64));
    if variants > 0 {
        let _ = write!(text, ", {variants} of them of counter-experiments");
    }
    if plan.repeats > 1 {
        let _ = write!(text, ", each {} times", plan.repeats);
    }
    text
}

fn place(plan: &Plan, simulate: bool) -> String {
    match (&plan.fleet, simulate) {
        (Fleet::Simulated(fleet), true) => format!(
            "in virtual time: engines of the profile {}, no sockets, no waiting",
            fleet.profile.name
        ),
        (Fleet::Simulated(fleet), false) => format!(
            "on this machine: simulated engines of the profile {} behind Evenkeel, fresh for each point",
            fleet.profile.name
        ),
        (Fleet::Live(live), _) => {
            let between = match (&plan.hooks.restart, plan.starts_afresh()) {
                (Some(_), _) => "restarted between points",
                (None, true) => "stopped and started between points",
                (None, false) => "not restarted between points",
            };
            format!("on the servers behind {}, {between}", live.base_url)
        }
    }
}

fn list<T: ToString>(values: &[T]) -> String {
    let words: Vec<String> = values.iter().map(T::to_string).collect();
    words.join(", ")
}

fn scenario(one: &ScenarioPlan) -> String {
    let of = |wanted: fn(&Load) -> bool| -> Vec<String> {
        let loads = one.loads.iter().filter(|load| wanted(load));
        loads.map(|load| load.amount().to_string()).collect()
    };
    let closed = of(|load| matches!(load, Load::Closed { .. }));
    let poisson = of(|load| matches!(load, Load::Poisson { .. }));
    let batch = of(|load| matches!(load, Load::Batch { .. }));
    let mut parts = Vec::new();
    if !closed.is_empty() {
        parts.push(format!("{} at once", closed.join(", ")));
    }
    if !poisson.is_empty() {
        parts.push(format!("Poisson {} a second", poisson.join(", ")));
    }
    if !batch.is_empty() {
        parts.push(format!("batches of {}", batch.join(", ")));
    }
    let mut text = format!(
        "{}: {}, for each instance; lengths {}",
        one.scenario.name(),
        parts.join("; "),
        one.lengths.join(", ")
    );
    if let Some(batch) = &one.batch {
        let (places, lengths) = (batch.concurrency, &batch.lengths);
        let _ = write!(
            text,
            "; alone, and with {places} batch requests of lengths {lengths} at once beside it"
        );
    }
    text
}

fn lengths((name, set): (&String, &LengthSet)) -> String {
    let total: f64 = set.classes.iter().map(|class| class.share).sum();
    let classes: Vec<String> = set
        .classes
        .iter()
        .map(|class| {
            let (share, name) = (class.share / total * 100.0, &class.name);
            let (prompt, output) = (&class.prompt, &class.output);
            format!("{share:.0} % {name} (prompt {prompt}, output {output})")
        })
        .collect();
    let assumed = match set.assumed {
        true => "\n  an assumption: give [length_sets] for yours",
        false => "",
    };
    format!("lengths {name}: {}{assumed}", classes.join(",\n  "))
}

fn variants(plan: &Plan) -> Vec<String> {
    let mut by_name: BTreeMap<&str, (u32, &Point)> = BTreeMap::new();
    for point in plan
        .points
        .iter()
        .filter(|point| point.setting.variant != BASE)
    {
        by_name
            .entry(&point.setting.variant)
            .or_insert((0, point))
            .0 += 1;
    }
    let line = |(name, (times, point)): (&str, (u32, &Point))| {
        let label = |key: &str| point.setting.labels.get(key).cloned().unwrap_or_default();
        let why = label("why");
        let why = if why.is_empty() {
            why
        } else {
            format!(": {why}")
        };
        format!("variant {name}, {} at {times} points{why}", label("change"))
    };
    by_name.into_iter().map(line).collect()
}

fn timing(plan: &Plan, simulate: bool, finished: usize) -> String {
    let timing = &plan.timing;
    let trim = timing
        .trim_s
        .map_or("30 s where that leaves half, else 0".to_owned(), |trim_s| {
            format!("{} s", number(Some(trim_s)))
        });
    let poisson = timing
        .poisson_duration_s
        .map_or_else(String::new, |seconds| {
            format!(" (Poisson {} s)", number(Some(seconds)))
        });
    let mut text = format!(
        "each {} s after {} s of warm-up{poisson}; cut at both ends: {trim}",
        number(Some(timing.duration_s)),
        number(Some(timing.warm_up_s)),
    );
    if !simulate {
        let _ = write!(text, "\n{}", estimate(plan, finished));
    }
    text
}

/// How long it takes, as far as that is known before.
fn estimate(plan: &Plan, finished: usize) -> String {
    let loads = || {
        plan.points
            .iter()
            .map(|point| point.setting.load)
            .skip(finished)
    };
    let known_s = |load: Load| Some(plan.measured_s(load)? + plan.warm_up_s(load));
    let all_s: f64 = loads().filter_map(known_s).sum();
    let batches = loads()
        .filter(|load| plan.measured_s(*load).is_none())
        .count();
    let mut text = format!("about {} of load", duration(all_s));
    if batches > 0 {
        let _ = write!(
            text,
            ", and {batches} batches that take as long as they take"
        );
    }
    if matches!(plan.fleet, Fleet::Live(_)) {
        text += ", and the restarts";
    }
    text
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}

/// A point in a line.
pub fn point(summary: &LoadSummary, setting: Scenario) -> String {
    let p99 = |figure: Figure| {
        let values = summary.latencies.get(figure);
        ms(values.and_then(|values| values.percentile(99.0)))
    };
    let tokens = summary.throughput.map(|work| work.output_tokens_per_s());
    let mut text = format!("{} % ok", percent(summary.success_share()));
    if setting != Scenario::Offline {
        let _ = write!(
            text,
            ", P99 TTFT {} ms, TPOT {} ms",
            p99(Figure::Ttft),
            p99(Figure::Tpot)
        );
    }
    let _ = write!(text, ", {} output tokens/s", number(tokens));
    if let Some(share) = summary.goodput.as_ref().and_then(|goodput| goodput.share()) {
        let _ = write!(text, ", {} % good", percent(Some(share)));
    }
    text
}

/// At the end.
pub fn closing(plan: &Plan, kept: usize, empty: &[String], command: &Command<'_>) -> String {
    let mut lines = Vec::new();
    let (all, out) = (plan.points.len(), command.out.display());
    if kept == all {
        lines.push(format!("all {all} points are kept in {out}"));
        lines.push(format!("evenkeel report {out} makes the report of them"));
    } else {
        lines.push(format!("{kept} of {all} points are kept in {out}"));
        lines.push(format!("go on with: {}", command.text()));
    }
    if !empty.is_empty() {
        lines.push(format!(
            "no request was complete, or counts, at {}: overload or a fault of the fleet; their files say which",
            empty.join(", ")
        ));
    }
    lines.join("\n")
}

/// The command that was given.
pub struct Command<'a> {
    /// the plan's file
    pub plan: &'a Path,
    /// the study's folder
    pub out: &'a Path,
    /// in virtual time
    pub simulate: bool,
}

impl Command<'_> {
    fn text(&self) -> String {
        let simulate = if self.simulate { " --simulate" } else { "" };
        let (plan, out) = (self.plan.display(), self.out.display());
        format!("evenkeel sweep {plan} --out {out}{simulate}")
    }
}
