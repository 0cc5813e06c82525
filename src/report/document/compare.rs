//! The section of several studies: points with the same settings, side by side. Pure.

use super::table::{Cell, Column, Table, Unit};
use super::told::{ToldPoint, ToldStudy};
use super::{Part, Section};
use crate::report::point::PointView;

type Of = fn(&PointView) -> Option<f64>;

/// Key, key of the ratio, name, unit, definition, figure.
const COMPARED: [(&str, &str, &str, Unit, &str, Of); 5] = [
    (
        "output_tokens_per_s",
        "output_ratio",
        "output",
        Unit::TOK_PER_S,
        "output tokens a second",
        PointView::output_tokens_per_s,
    ),
    (
        "client_ttft_p50_ms",
        "client_ttft_p50_ratio",
        "TTFT P50",
        Unit::MS,
        "client TTFT, median",
        |view| Some(view.latencies.ttft?.p50),
    ),
    (
        "client_ttft_p99_ms",
        "client_ttft_p99_ratio",
        "TTFT P99",
        Unit::MS,
        "client TTFT, 99th percentile",
        |view| Some(view.latencies.ttft?.p99),
    ),
    (
        "tpot_p50_ms",
        "tpot_p50_ratio",
        "TPOT P50",
        Unit::MS,
        "TPOT, median",
        |view| Some(view.latencies.tpot?.p50),
    ),
    (
        "e2e_p99_ms",
        "e2e_p99_ratio",
        "E2E P99",
        Unit::MS,
        "E2E, 99th percentile",
        |view| Some(view.latencies.e2e?.p99),
    ),
];

/// Points that two studies have in common, by their names; absent for one study.
pub fn section(studies: &[ToldStudy]) -> Option<Section> {
    let (first, others) = studies.split_first()?;
    if others.is_empty() {
        return None;
    }
    let mut table = Table::new("compared", "The same point in several studies", columns());
    for point in &first.points {
        let its: Vec<(&ToldStudy, &ToldPoint)> = others
            .iter()
            .filter_map(|study| Some((study, study.point(&point.view.id)?)))
            .collect();
        if its.is_empty() {
            continue;
        }
        add(&mut table, first, point, point);
        for (study, other) in its {
            add(&mut table, study, other, point);
        }
    }
    Some(Section {
        id: "compared".into(),
        short: "Compared",
        title: "Studies side by side".into(),
        parts: vec![
            Part::Text(format!(
                "Ratios are over “{}”. Points are the same where all that their names tell is; what else differs between the \
                 studies is listed under what was set. One run of each tells nothing of how much runs differ by chance.",
                first.label
            )),
            Part::Table(table),
        ],
    })
}

fn columns() -> Vec<Column> {
    let mut columns = vec![
        Column::plain("point", "point", "name of the point"),
        Column::plain("study", "study", "name of the study"),
    ];
    for (key, ratio, name, unit, definition, _) in COMPARED {
        columns.push(Column::new(key, name, unit, definition));
        columns.push(Column::new(
            ratio,
            "ratio",
            Unit::named("×"),
            "over the first study",
        ));
    }
    columns.push(Column::new(
        "attainment_share",
        "within SLO",
        Unit::SHARE,
        "share of requests that met every objective of their own study",
    ));
    columns.push(Column::new(
        "success_share",
        "success",
        Unit::SHARE,
        "share of complete requests among those that count",
    ));
    columns
}

fn add(table: &mut Table, study: &ToldStudy, point: &ToldPoint, base: &ToldPoint) {
    let mut cells = vec![
        Cell::from(point.view.id.clone()),
        study.label.clone().into(),
    ];
    for (_, _, _, _, _, of) in COMPARED {
        let (value, base) = (of(&point.view), of(&base.view));
        cells.push(value.into());
        cells.push(value.zip(base).map(|(value, base)| value / base).into());
    }
    cells.push(point.view.attainment.into());
    cells.push(point.view.success_share.into());
    table
        .row(cells)
        .about(point.view.setting.instances, Some(point.place.clone()));
}
