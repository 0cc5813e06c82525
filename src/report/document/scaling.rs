//! The section of scaling: how much of n times one the fleets of n do, at equal load for each unit and each at its own
//! best; how much each carries, and what that costs. Pure.

use super::load::shown;
use super::table::{Cell, Column, Table, Unit};
use super::told::{ToldStudy, family_words};
use super::{Chosen, Part, Section};
use crate::report::capacity::Sign;
use crate::report::figures::frame::Axis;
use crate::report::figures::plot::{Guide, Plot, Point, Series};
use crate::report::figures::scale::label;
use crate::report::figures::style::{STYLES, Style};
use crate::report::scaling::{Efficiency, Fleet, IntervalOf, ScalingView, scalings};
use crate::report::terminal::number;
use crate::study::Scaling;

/// Efficiencies from which one is excellent, acceptable, and no bottleneck.
const BANDS: [(f64, &str); 3] = [
    (0.9, "excellent from 0.9"),
    (0.7, "acceptable from 0.7"),
    (0.6, "bottleneck under 0.6"),
];

/// The section.
pub fn section(studies: &[ToldStudy]) -> Section {
    let mut options = Vec::new();
    for (number, study) in studies.iter().enumerate() {
        let price = study.file.gpu_hour_price.as_ref();
        let currency = price.map_or("price", |price| price.currency.as_str());
        for (index, view) in scalings(&study.views(), &study.file).iter().enumerate() {
            let id = format!("{number}-{index}");
            let name = study.named(studies, &curve_words(view));
            options.push(Chosen {
                parts: curve(view, &id, &name, currency),
                id: format!("scaling-{id}"),
                name,
            });
        }
    }
    let mut parts = vec![Part::Text(
        "Efficiency is Tn / (n · T1), T output tokens a second: at equal load for each unit, and each fleet at its own best \
         load within the service level; never at equal total load. Bars and intervals are 95 %."
            .into(),
    )];
    if options.is_empty() {
        parts.push(Part::Text(
            "No curve has one unit and a multiple of it: efficiency is not measured.".into(),
        ));
    }
    parts.extend(shown("scaling-curves", "Curve", options));
    Section {
        id: "scaling".into(),
        short: "Scaling",
        title: "Scaling".into(),
        parts,
    }
}

fn curve(view: &ScalingView, id: &str, name: &str, currency: &str) -> Vec<Part> {
    vec![
        Part::Plot(throughput_plot(view, id)),
        Part::Plot(efficiency_plot(view, id)),
        Part::Table(efficiency_table(view, id, name)),
        Part::Table(capacity_table(view, id, name, currency)),
    ]
}

/// Which curve, in words.
pub fn curve_words(view: &ScalingView) -> String {
    let kind = match view.scaling {
        Scaling::Horizontal => "horizontal (more instances)",
        Scaling::Vertical => "vertical (more GPUs in an instance)",
    };
    format!("{kind}: {}", family_words(&view.family))
}

fn unit_word(view: &ScalingView) -> &'static str {
    match view.scaling {
        Scaling::Horizontal => "instances",
        Scaling::Vertical => "GPUs in the instance",
    }
}

/// The efficiencies of all fleets at one equal load for each unit.
fn loads(view: &ScalingView) -> Vec<(f64, Vec<(&Fleet, &Efficiency)>)> {
    let mut loads: Vec<(f64, Vec<(&Fleet, &Efficiency)>)> = Vec::new();
    for fleet in &view.fleets {
        for efficiency in &fleet.at_equal_load {
            let load = efficiency.load_per_unit;
            match loads.iter_mut().find(|(known, _)| *known == load) {
                Some((_, its)) => its.push((fleet, efficiency)),
                None => loads.push((load, vec![(fleet, efficiency)])),
            }
        }
    }
    loads.sort_by(|one, other| one.0.total_cmp(&other.0));
    loads
}

fn load_words(view: &ScalingView, load_per_unit: f64) -> String {
    let unit = match view.scaling {
        Scaling::Horizontal => "an instance",
        Scaling::Vertical => "a GPU",
    };
    let what = match view.family.load_kind {
        "poisson" => "req/s",
        "batch" => "requests",
        _ => "at once",
    };
    format!("{} {what} for {unit}", label(load_per_unit))
}

fn at_best(view: &ScalingView) -> Vec<(&Fleet, &Efficiency)> {
    let best = |fleet| Some((fleet, fleet_best(fleet)?));
    view.fleets.iter().filter_map(best).collect()
}

fn fleet_best(fleet: &Fleet) -> Option<&Efficiency> {
    fleet.at_best.as_ref()
}

fn throughput_plot(view: &ScalingView, id: &str) -> Plot {
    let mut series = Vec::new();
    let mut guides = Vec::new();
    if let Some((load, its)) = loads(view).pop() {
        series.push(throughputs(&its, &load_words(view, load), Style(0)));
        guides.extend(ideal(&its, "ideal: n times one, at this load"));
    }
    let best = at_best(view);
    if !best.is_empty() {
        series.push(throughputs(
            &best,
            "each at its own best within the SLO",
            Style(1),
        ));
        guides.extend(ideal(&best, "ideal: n times one at its best"));
    }
    Plot {
        id: format!("scaling-throughput-{id}"),
        title: "Throughput against size, beside the ideal line".into(),
        x: Axis::linear(unit_word(view)).at(sizes(view)),
        y: Axis::linear("output tokens (tok/s)"),
        series,
        guides,
        note: None,
    }
}

fn sizes(view: &ScalingView) -> Vec<f64> {
    view.fleets
        .iter()
        .map(|fleet| f64::from(fleet.multiple))
        .collect()
}

/// From one unit on: the unit's own throughput is that of the first efficiency.
fn throughputs(its: &[(&Fleet, &Efficiency)], name: &str, style: Style) -> Series {
    let unit = its.first().map(|(_, of)| Point {
        x: 1.0,
        y: Some(of.unit_tokens_per_s),
        interval: None,
        said: format!("1\n{} tok/s", number(Some(of.unit_tokens_per_s))),
    });
    let points = its.iter().map(|(fleet, of)| Point {
        x: f64::from(fleet.multiple),
        y: Some(of.tokens_per_s),
        interval: None,
        said: format!(
            "{}: {} tok/s\nefficiency {}",
            fleet.multiple,
            number(Some(of.tokens_per_s)),
            number(Some(of.value))
        ),
    });
    Series {
        name: name.to_owned(),
        points: unit.into_iter().chain(points).collect(),
        style,
        instances: None,
    }
}

fn ideal(its: &[(&Fleet, &Efficiency)], name: &str) -> Option<Guide> {
    let (last, of) = its.last()?;
    let n = f64::from(last.multiple);
    Some(Guide {
        name: name.to_owned(),
        path: vec![(0.0, 0.0), (n, n * of.unit_tokens_per_s)],
    })
}

fn efficiency_plot(view: &ScalingView, id: &str) -> Plot {
    let mut series: Vec<Series> = loads(view)
        .iter()
        .enumerate()
        .map(|(index, (load, its))| efficiencies(its, &load_words(view, *load), index))
        .collect();
    let best = at_best(view);
    if !best.is_empty() {
        let index = series.len().min(STYLES - 1);
        let name = "each at its own best within the SLO";
        series.push(efficiencies(&best, name, index));
    }
    let most = sizes(view).into_iter().fold(1.0, f64::max);
    let guides = BANDS.map(|(from, name)| Guide::level(name, from, 1.0, most));
    Plot {
        id: format!("scaling-efficiency-{id}"),
        title: "Scaling efficiency, with 95 % intervals".into(),
        x: Axis::linear(unit_word(view)).at(sizes(view)),
        y: Axis::linear("Tn / (n · T1)"),
        series,
        guides: guides.into(),
        note: None,
    }
}

/// Series stand a little beside one another, so that no interval covers another.
fn efficiencies(its: &[(&Fleet, &Efficiency)], name: &str, index: usize) -> Series {
    let beside = (index as f64 - 2.0) * 0.035;
    let point = |(fleet, of): &(&Fleet, &Efficiency)| Point {
        x: f64::from(fleet.multiple) * (1.0 + beside),
        y: Some(of.value),
        interval: of.interval.map(|interval| (interval.low, interval.high)),
        said: format!(
            "{}, {name}\nefficiency {}{}, {}",
            fleet.multiple,
            number(Some(of.value)),
            of.interval.map_or_else(String::new, |interval| format!(
                " ({} to {})",
                number(Some(interval.low)),
                number(Some(interval.high))
            )),
            of.band.name()
        ),
    };
    Series {
        name: name.to_owned(),
        points: its.iter().map(point).collect(),
        style: Style(index),
        instances: None,
    }
}

fn efficiency_table(view: &ScalingView, id: &str, name: &str) -> Table {
    let share = |key, name: &str, definition| Column::new(key, name, Unit::SHARE, definition);
    let columns = vec![
        Column::plain("n", "n", "how many times the unit"),
        Column::plain(
            "compared",
            "compared at",
            "equal load for each unit, or each at its own best load within the SLO",
        ),
        Column::new(
            "tokens_per_s",
            "Tn",
            Unit::TOK_PER_S,
            "output tokens a second of the larger fleet",
        ),
        Column::new(
            "unit_tokens_per_s",
            "T1",
            Unit::TOK_PER_S,
            "output tokens a second of the unit",
        ),
        Column::plain("efficiency", "efficiency", "Tn / (n · T1); 1 is ideal"),
        Column::plain("low", "from", "lower end of the 95 % interval"),
        Column::plain("high", "to", "upper end of the 95 % interval"),
        Column::plain(
            "interval_of",
            "interval of",
            "`repeats` of the whole point, or `slices`: equal parts of one run, which know nothing of what differs between runs",
        ),
        Column::plain(
            "band",
            "called",
            "excellent from 0.9, acceptable from 0.7, doubtful from 0.6, else bottleneck; one lower where more than 1 % failed",
        ),
        share(
            "failed_share",
            "failed",
            "share of failed requests of the larger fleet, where above 1 %",
        ),
        share("attainment_share", "within SLO", "of the larger fleet"),
        share(
            "unit_attainment_share",
            "unit's",
            "share within the SLO of the unit",
        ),
        Column::new(
            "mean_e2e_ratio",
            "mean E2E",
            Unit::named("×"),
            "mean request time of the larger fleet over the unit's; offline it must not grow",
        ),
        Column::plain(
            "limit",
            "limit",
            "`generator`: what was measured is the generator, not the fleet",
        ),
    ];
    let title = format!("Scaling efficiency, {name}");
    let mut table = Table::new(format!("efficiency-{id}"), title, columns);
    for fleet in &view.fleets {
        let equal = fleet
            .at_equal_load
            .iter()
            .map(|of| (load_words(view, of.load_per_unit), of));
        let best = fleet_best(fleet).map(|of| ("own best".to_owned(), of));
        for (compared, of) in equal.chain(best) {
            let interval = of.interval;
            let interval_of = of.interval_of.map(|made| match made {
                IntervalOf::Repeats => "repeats",
                IntervalOf::Slices => "slices",
            });
            let cells = [
                Cell::from(fleet.multiple),
                compared.into(),
                of.tokens_per_s.into(),
                of.unit_tokens_per_s.into(),
                of.value.into(),
                interval.map(|interval| interval.low).into(),
                interval.map(|interval| interval.high).into(),
                interval_of.map_or(Cell::Missing, Cell::from),
                of.band.name().into(),
                of.failed_share.map_or("at most 1 %".into(), Cell::from),
                of.attainment.map(|both| both.0).into(),
                of.attainment.map(|both| both.1).into(),
                of.mean_e2e_ratio.into(),
                if of.generator_bound {
                    "generator"
                } else {
                    "fleet"
                }
                .into(),
            ];
            table.row(cells).about(fleet.instances, None);
        }
    }
    table
}

fn capacity_table(view: &ScalingView, id: &str, name: &str, currency: &str) -> Table {
    let price = format!("{currency} a million tokens");
    let columns = vec![
        Column::plain("instances", "instances", "inference servers"),
        Column::plain("gpus_per_instance", "GPUs each", "GPUs inside one instance"),
        Column::plain(
            "largest_load",
            "largest load within the SLO",
            "highest load that still meets the service level before throughput falls, for all instances together",
        ),
        Column::plain(
            "highest_tried",
            "is",
            "`highest tried`: it may carry more; `limit`: a higher load was tried and was too much",
        ),
        Column::new(
            "output_tokens_per_s",
            "output there",
            Unit::TOK_PER_S,
            "output tokens a second at that load",
        ),
        Column::new(
            "attainment_share",
            "within SLO",
            Unit::SHARE,
            "share of requests within the SLO at that load",
        ),
        Column::plain(
            "overload_load",
            "overload from",
            "first load that is too much",
        ),
        Column::plain("overload_sign", "told by", "what told that it is too much"),
        Column::plain(
            "price_per_million_tokens",
            &price,
            "price of the GPUs over the output tokens of requests within the SLO, at the largest load within it",
        ),
    ];
    let title = format!("How much each fleet carries, and what that costs, {name}");
    let mut table = Table::new(format!("capacity-{id}"), title, columns);
    for fleet in &view.fleets {
        let effective = fleet.effective.as_ref();
        let is = effective.map(|effective| {
            if effective.is_highest_tried {
                "highest tried"
            } else {
                "limit"
            }
        });
        let overload = fleet.overload.as_ref();
        let cells = [
            Cell::from(fleet.instances),
            fleet.gpus_per_instance.into(),
            effective.map_or("none met it".into(), |effective| effective.load.into()),
            is.map_or(Cell::Missing, Cell::from),
            effective
                .map(|effective| effective.output_tokens_per_s)
                .into(),
            effective.and_then(|effective| effective.attainment).into(),
            overload.map_or("not reached".into(), |onset| onset.load.into()),
            overload.map_or(Cell::Text("-".into()), |onset| {
                sign_words(onset.sign).into()
            }),
            fleet.price_per_million_tokens.into(),
        ];
        table.row(cells).about(fleet.instances, None);
    }
    table
}

/// What told of overload, in words.
pub fn sign_words(sign: Sign) -> &'static str {
    match sign {
        Sign::ThroughputFell => "throughput fell",
        Sign::ThroughputStalled => "throughput stalled",
        Sign::RequestsLost => "more than 1 % failed",
        Sign::FellBehind => "answers fell behind requests",
    }
}
