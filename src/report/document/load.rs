//! The section of load: throughput and latency against it, one curve an instance count, with the share of requests
//! within the service level beside the throughput. Pure.

use super::identity::Identity;
use super::latency::{beside, failure_words};
use super::table::{Cell, Column, Table, Unit};
use super::told::{ToldStudy, family_words, load_words};
use super::{Choice, Chosen, Part, Section};
use crate::report::curves::Family;
use crate::report::figures::frame::Axis;
use crate::report::figures::plot::{Guide, Plot, Point, Series};
use crate::report::figures::style::Style;
use crate::report::goodput::Objective;
use crate::report::latency::Figure;
use crate::report::point::PointView;
use crate::report::terminal::number;
use crate::study::Load;

type Of = fn(&PointView) -> Option<f64>;

/// A curve against load.
struct Curve {
    key: &'static str,
    title: &'static str,
    axis: &'static str,
    unit: &'static str,
    log: bool,
    /// the objective whose limit is drawn
    limit: Option<Figure>,
    of: Of,
}

const CURVES: [Curve; 6] = [
    Curve {
        key: "throughput",
        title: "Throughput",
        axis: "output tokens (tok/s)",
        unit: "tok/s",
        log: false,
        limit: None,
        of: PointView::output_tokens_per_s,
    },
    Curve {
        key: "attainment",
        title: "Requests within the service level, failed ones in the denominator",
        axis: "share within SLO (%)",
        unit: "% within SLO",
        log: false,
        limit: None,
        of: |view| view.attainment.map(|share| share * 100.0),
    },
    Curve {
        key: "ttft-p50",
        title: "Client TTFT, P50",
        axis: "client TTFT P50 (ms)",
        unit: "ms",
        log: true,
        limit: None,
        of: |view| view.latencies.ttft.map(|of| of.p50),
    },
    Curve {
        key: "ttft-p99",
        title: "Client TTFT, P99",
        axis: "client TTFT P99 (ms)",
        unit: "ms",
        log: true,
        limit: Some(Figure::Ttft),
        of: |view| view.latencies.ttft.map(|of| of.p99),
    },
    Curve {
        key: "tpot-p50",
        title: "TPOT, P50",
        axis: "TPOT P50 (ms)",
        unit: "ms",
        log: false,
        limit: None,
        of: |view| view.latencies.tpot.map(|of| of.p50),
    },
    Curve {
        key: "tpot-p99",
        title: "TPOT, P99",
        axis: "TPOT P99 (ms)",
        unit: "ms",
        log: false,
        limit: Some(Figure::Tpot),
        of: |view| view.latencies.tpot.map(|of| of.p99),
    },
];

/// The section.
pub fn section(studies: &[ToldStudy], identity: &Identity) -> Section {
    let mut options = Vec::new();
    for (number, study) in studies.iter().enumerate() {
        for (index, (family, views)) in families(study).into_iter().enumerate() {
            let id = format!("load-{number}-{index}");
            options.push(Chosen {
                name: study.named(studies, &family_words(&family)),
                parts: plots(&views, &id, study),
                id,
            });
        }
    }
    let mut parts = vec![Part::Text(
        "One curve for each number of instances. Points are means over repetitions, bars run from the lowest to the highest \
         of them."
            .into(),
    )];
    parts.extend(shown("load-curves", "Curves of", options));
    parts.push(Part::Table(work_table(studies, identity)));
    if let Some(table) = offered_table(studies, identity) {
        parts.push(Part::Table(table));
    }
    Section {
        id: "load".into(),
        short: "Load",
        title: "Load, throughput and latency".into(),
        parts,
    }
}

/// A single option needs no choice.
pub fn shown(id: &str, label: &str, mut options: Vec<Chosen>) -> Vec<Part> {
    match options.len() {
        0 => Vec::new(),
        1 => options.remove(0).parts,
        _ => vec![Part::Choice(Choice {
            id: id.into(),
            label: label.into(),
            options,
        })],
    }
}

/// Points that differ only in size, load and repetition, in the order of the sweep. Batches have no curve: their load is
/// worked off, not held.
fn families(study: &ToldStudy) -> Vec<(Family, Vec<&PointView>)> {
    let mut families: Vec<(Family, Vec<&PointView>)> = Vec::new();
    for point in &study.points {
        let view = &point.view;
        if matches!(view.setting.load, Load::Batch { .. }) {
            continue;
        }
        let family = Family::of(view);
        match families.iter_mut().find(|(known, _)| *known == family) {
            Some((_, views)) => views.push(view),
            None => families.push((family, vec![view])),
        }
    }
    families
}

fn plots(views: &[&PointView], id: &str, study: &ToldStudy) -> Vec<Part> {
    let judged = views.iter().any(|view| view.attainment.is_some());
    CURVES
        .iter()
        .filter(|curve| curve.key != "attainment" || judged)
        .map(|curve| Part::Plot(plot(curve, views, &format!("{id}-{}", curve.key), study)))
        .collect()
}

fn plot(curve: &Curve, views: &[&PointView], id: &str, study: &ToldStudy) -> Plot {
    let mut shapes: Vec<(u32, u32)> = views
        .iter()
        .map(|view| (view.setting.instances, view.setting.gpus_per_instance))
        .collect();
    shapes.sort_unstable();
    shapes.dedup();
    let gpus_differ = shapes.iter().any(|shape| shape.1 != shapes[0].1);
    let series = shapes.iter().enumerate().map(|(index, shape)| {
        let its = views
            .iter()
            .copied()
            .filter(|view| (view.setting.instances, view.setting.gpus_per_instance) == *shape);
        Series {
            name: shape_words(*shape, gpus_differ),
            points: points(curve, its.collect()),
            style: Style(index),
            instances: Some(shape.0),
        }
    });
    let loads: Vec<f64> = views
        .iter()
        .map(|view| view.setting.load.amount())
        .collect();
    let axis = match views.first().map(|view| view.setting.load) {
        Some(Load::Poisson { .. }) => "load on the whole fleet (req/s)",
        _ => "load on the whole fleet (requests at once)",
    };
    let y = if curve.log {
        Axis::log(curve.axis)
    } else {
        Axis::linear(curve.axis)
    };
    Plot {
        id: id.to_owned(),
        title: curve.title.to_owned(),
        x: Axis::log(axis).at(loads.clone()),
        y,
        series: series.collect(),
        guides: guides(curve, &loads, study),
        note: None,
    }
}

fn shape_words((instances, gpus): (u32, u32), gpus_differ: bool) -> String {
    let s = if instances == 1 { "" } else { "s" };
    if gpus_differ {
        format!("{instances} instance{s} × {gpus} GPU")
    } else {
        format!("{instances} instance{s}")
    }
}

/// One point a load: the mean over repetitions, from the lowest to the highest.
fn points(curve: &Curve, mut views: Vec<&PointView>) -> Vec<Point> {
    views.sort_by(|one, other| {
        let amount = |view: &PointView| view.setting.load.amount();
        amount(one).total_cmp(&amount(other))
    });
    let same = |one: &&PointView, other: &&PointView| one.setting.load == other.setting.load;
    views
        .chunk_by(same)
        .map(|its| {
            let values: Vec<f64> = its.iter().filter_map(|view| (curve.of)(view)).collect();
            let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
            let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let mean =
                (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
            Point {
                x: its[0].setting.load.amount(),
                y: mean,
                interval: (values.len() > 1).then_some((lowest, highest)),
                said: said(curve, its[0], mean, values.len()),
            }
        })
        .collect()
}

fn said(curve: &Curve, view: &PointView, mean: Option<f64>, repeats: usize) -> String {
    let setting = &view.setting;
    let times = if repeats > 1 {
        format!(", mean of {repeats}")
    } else {
        String::new()
    };
    let success = view.success_share.map_or_else(String::new, |share| {
        format!(
            "\n{:.1} % of {} requests succeeded",
            share * 100.0,
            view.latencies.sent
        )
    });
    format!(
        "{} × {} GPU, {}\n{} {}{times}{success}",
        setting.instances,
        setting.gpus_per_instance,
        load_words(setting.load),
        number(mean),
        curve.unit,
    )
}

fn guides(curve: &Curve, loads: &[f64], study: &ToldStudy) -> Vec<Guide> {
    let least = loads.iter().copied().fold(f64::INFINITY, f64::min);
    let most = loads.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let level = |name: String, at: f64| Guide::level(name, at, least, most);
    if curve.key == "attainment" {
        let wanted = study.file.attainment * 100.0;
        return vec![level(format!("asked for: {wanted} %"), wanted)];
    }
    let limit = |objective: &&Objective| Some(objective.figure) == curve.limit;
    study
        .objectives
        .iter()
        .filter(limit)
        .map(|objective| {
            level(
                format!("limit: {} ms", objective.limit_ms),
                objective.limit_ms,
            )
        })
        .collect()
}

fn work_table(studies: &[ToldStudy], identity: &Identity) -> Table {
    let mut columns = vec![
        Column::new(
            "output_tokens_per_s",
            "output",
            Unit::TOK_PER_S,
            "output tokens a second in the window",
        ),
        Column::new(
            "tokens_per_s",
            "in + out",
            Unit::TOK_PER_S,
            "prompt and output tokens a second",
        ),
        Column::new(
            "requests_per_s",
            "answers",
            Unit::REQ_PER_S,
            "complete answers a second",
        ),
        Column::new(
            "peak_output_tokens_per_s",
            "best second",
            Unit::TOK_PER_S,
            "output tokens of the window's best second",
        ),
        Column::new(
            "max_concurrent",
            "most open",
            Unit::NONE,
            "most requests open at once",
        ),
        Column::new(
            "attainment_share",
            "within SLO",
            Unit::SHARE,
            "share of requests that met every objective, failed ones in the denominator",
        ),
        Column::new(
            "good_per_s",
            "goodput",
            Unit::REQ_PER_S,
            "requests a second that met every objective",
        ),
        Column::new(
            "tokens_per_gpu_day",
            "output a GPU a day",
            Unit::named("tok"),
            "output tokens a GPU would make in a day at this rate",
        ),
    ];
    columns.extend(beside());
    let mut table = identity.table("work", "Throughput and goodput", columns);
    for study in studies {
        for point in &study.points {
            let view = &point.view;
            let work = view.throughput;
            let cells = [
                Cell::from(work.map(|work| work.output_tokens_per_s)),
                work.map(|work| work.tokens_per_s).into(),
                work.map(|work| work.requests_per_s).into(),
                work.and_then(|work| work.counted.peak_output_tokens_per_s)
                    .into(),
                work.map(|work| work.counted.max_concurrent).into(),
                view.attainment.into(),
                view.good_per_s.into(),
                work.map(|work| work.output_tokens_per_gpu_day).into(),
                view.latencies.sent.into(),
                view.success_share.into(),
                failure_words(&view.failures).into(),
            ];
            identity.row(&mut table, study, point, cells);
        }
    }
    table
}

fn offered_table(studies: &[ToldStudy], identity: &Identity) -> Option<Table> {
    let rate = |key, name: &str, definition| Column::new(key, name, Unit::REQ_PER_S, definition);
    let columns = vec![
        rate("set_per_s", "set", "arrivals a second that were set"),
        rate(
            "planned_per_s",
            "drawn",
            "arrivals a second that the draw gave in the window",
        ),
        rate(
            "issued_per_s",
            "issued",
            "requests a second that the generator issued",
        ),
        rate("completed_per_s", "completed", "complete answers a second"),
        Column::new("lost", "lost", Unit::NONE, "requests that count and failed"),
        Column::new(
            "lost_share",
            "lost",
            Unit::SHARE,
            "share of requests that count and failed",
        ),
    ];
    let mut table = identity.table(
        "offered",
        "Poisson arrivals: what was asked for and what came of it",
        columns,
    );
    for study in studies {
        for point in &study.points {
            let Some(offered) = point.view.offered else {
                continue;
            };
            let cells = [
                Cell::from(offered.set_per_s),
                offered.planned_per_s.into(),
                offered.issued_per_s.into(),
                offered.completed_per_s.into(),
                offered.lost.into(),
                offered.lost_share.into(),
            ];
            identity.row(&mut table, study, point, cells);
        }
    }
    (!table.rows.is_empty()).then_some(table)
}
