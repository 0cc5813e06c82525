//! The sections of the other scenarios: batch work beside online requests, and batch work alone. Pure.

use super::identity::Identity;
use super::latency::{beside, failure_words};
use super::table::{Cell, Column, Table, Unit};
use super::told::ToldStudy;
use super::{Part, Section};
use crate::report::isolation::{Isolation, isolations};
use crate::report::point::PointView;
use crate::report::quantiles::Quantiles;
use crate::study::Scenario;

/// Online latencies with the batch work against those without it; absent where no point has both.
pub fn mixed(studies: &[ToldStudy], identity: &Identity) -> Option<Section> {
    let mut table = identity.table(
        "mixed",
        "Online latencies, with batch work beside against without",
        mixed_columns(),
    );
    for study in studies {
        for isolation in isolations(&study.views()) {
            let with = study.point(&isolation.with_batch);
            let without = study.point(&isolation.without_batch);
            if let Some((with, without)) = with.zip(without) {
                let cells = mixed_cells(&isolation, &with.view, &without.view);
                identity.row(&mut table, study, with, cells);
            }
        }
    }
    (!table.rows.is_empty()).then(|| Section {
        id: "mixed".into(),
        short: "Isolation",
        title: "Isolation: batch work beside online requests".into(),
        parts: vec![
            Part::Text(
                "1 × is perfect isolation: batch work changes nothing for those who wait. The online load, fleet and policy of \
                 both are the same. Isolation is called broken where P95 of TTFT or TPOT grew by more than a fifth, or one \
                 request in a hundred more misses the service level."
                    .into(),
            ),
            Part::Table(table),
        ],
    })
}

type Of = fn(&PointView) -> Option<f64>;

/// Keys of the figure alone, with the batch, and of their ratio; its name; the figure.
const COMPARED: [(&str, &str, &str, &str, Of); 6] = [
    (
        "client_ttft_p50_alone_ms",
        "client_ttft_p50_mixed_ms",
        "client_ttft_p50_ratio",
        "TTFT P50",
        |v| p50(v.latencies.ttft),
    ),
    (
        "client_ttft_p95_alone_ms",
        "client_ttft_p95_mixed_ms",
        "client_ttft_p95_ratio",
        "TTFT P95",
        |v| v.latencies.ttft.map(|of| of.p95),
    ),
    (
        "client_ttft_p99_alone_ms",
        "client_ttft_p99_mixed_ms",
        "client_ttft_p99_ratio",
        "TTFT P99",
        |v| p99(v.latencies.ttft),
    ),
    (
        "tpot_p50_alone_ms",
        "tpot_p50_mixed_ms",
        "tpot_p50_ratio",
        "TPOT P50",
        |v| p50(v.latencies.tpot),
    ),
    (
        "tpot_p99_alone_ms",
        "tpot_p99_mixed_ms",
        "tpot_p99_ratio",
        "TPOT P99",
        |v| p99(v.latencies.tpot),
    ),
    (
        "e2e_p99_alone_ms",
        "e2e_p99_mixed_ms",
        "e2e_p99_ratio",
        "E2E P99",
        |v| p99(v.latencies.e2e),
    ),
];

fn p50(of: Option<Quantiles>) -> Option<f64> {
    of.map(|of| of.p50)
}

fn p99(of: Option<Quantiles>) -> Option<f64> {
    of.map(|of| of.p99)
}

fn mixed_columns() -> Vec<Column> {
    let mut columns = vec![
        Column::new(
            "batch_concurrency",
            "batch",
            Unit::NONE,
            "batch requests unanswered at once",
        ),
        Column::new(
            "isolation",
            "isolation",
            Unit::NONE,
            "`holds`, or `broken`: the batch pulls the online load down",
        ),
    ];
    for (alone, mixed, ratio, name, _) in COMPARED {
        let name = format!("{name} alone");
        columns.push(Column::new(alone, name, Unit::MS, "without batch work"));
        columns.push(Column::new(mixed, "with batch", Unit::MS, "with it"));
        let times = Unit::named("×");
        columns.push(Column::new(ratio, "ratio", times, "with over without"));
    }
    columns.extend(beside());
    columns
}

fn mixed_cells(isolation: &Isolation, with: &PointView, without: &PointView) -> Vec<Cell> {
    let verdict = if isolation.is_broken() {
        "broken"
    } else {
        "holds"
    };
    let mut cells = vec![Cell::from(isolation.batch_concurrency), verdict.into()];
    for (_, _, _, _, of) in COMPARED {
        let (with, without) = (of(with), of(without));
        let ratio = with.zip(without).map(|(with, without)| with / without);
        cells.extend([without.into(), with.into(), ratio.into()]);
    }
    cells.extend([
        with.latencies.sent.into(),
        with.success_share.into(),
        failure_words(&with.failures).into(),
    ]);
    cells
}

/// Batches that were worked off; absent without one.
pub fn offline(studies: &[ToldStudy], identity: &Identity) -> Option<Section> {
    let columns = vec![
        Column::new(
            "output_tokens_per_s",
            "output",
            Unit::TOK_PER_S,
            "output tokens a second",
        ),
        Column::new(
            "tokens_per_gpu_day",
            "output a GPU a day",
            Unit::named("tok"),
            "output tokens a GPU would make in a day at this rate",
        ),
        Column::new(
            "requests_per_s",
            "answers",
            Unit::REQ_PER_S,
            "complete answers a second",
        ),
        Column::new(
            "e2e_mean_ms",
            "mean time of a request",
            Unit::MS,
            "issued → last byte; it must not grow with the number of instances",
        ),
        Column::new(
            "seconds",
            "whole batch",
            Unit::S,
            "time that throughput is taken over",
        ),
    ];
    let mut all = columns;
    all.extend(beside());
    let mut table: Table = identity.table("offline", "Batches", all);
    for study in studies {
        for point in &study.points {
            let view = &point.view;
            if view.setting.scenario != Scenario::Offline {
                continue;
            }
            let work = view.throughput;
            let cells = [
                Cell::from(work.map(|work| work.output_tokens_per_s)),
                work.map(|work| work.output_tokens_per_gpu_day).into(),
                work.map(|work| work.requests_per_s).into(),
                view.latencies.e2e.map(|of| of.mean).into(),
                work.map(|work| work.counted.seconds).into(),
                view.latencies.sent.into(),
                view.success_share.into(),
                failure_words(&view.failures).into(),
            ];
            identity.row(&mut table, study, point, cells);
        }
    }
    (!table.rows.is_empty()).then(|| Section {
        id: "offline".into(),
        short: "Batch",
        title: "Offline batch".into(),
        parts: vec![Part::Table(table)],
    })
}
