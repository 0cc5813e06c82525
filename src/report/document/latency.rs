//! The section of latencies: quantiles of every figure, with the success rate and the failures beside them, and the same
//! by length. Pure.

use std::collections::BTreeMap;

use super::identity::Identity;
use super::table::{Cell, Column, Table, Unit};
use super::told::ToldStudy;
use super::{Part, Section};
use crate::report::both_sides::BothSides;
use crate::report::quantiles::Quantiles;

type Of = fn(&BothSides) -> Option<Quantiles>;

/// A figure that has a table.
struct Told {
    key: &'static str,
    title: &'static str,
    of: Of,
    /// looked at only by those who ask
    folded: bool,
}

const FIGURES: [Told; 11] = [
    Told {
        key: "client_ttft",
        title: "Client TTFT: issued → first output at the client",
        of: |l| l.ttft,
        folded: false,
    },
    Told {
        key: "server_ttft",
        title: "Server TTFT: last byte of the request at the instance → first output back from it",
        of: |l| l.server_ttft,
        folded: false,
    },
    Told {
        key: "tpot",
        title: "TPOT: (last output − first output) / (N − 1)",
        of: |l| l.tpot,
        folded: false,
    },
    Told {
        key: "itl",
        title: "ITL: time between two output chunks, of all requests together",
        of: |l| l.itl,
        folded: false,
    },
    Told {
        key: "e2e",
        title: "E2E: issued → last byte of a complete answer",
        of: |l| l.e2e,
        folded: false,
    },
    Told {
        key: "tpot_of_e2e",
        title: "TPOT, variant (E2E − TTFT) / (N − 1)",
        of: |l| l.tpot_of_e2e,
        folded: true,
    },
    Told {
        key: "tpot_over_n",
        title: "TPOT, variant (E2E − TTFT) / N",
        of: |l| l.tpot_over_n,
        folded: true,
    },
    Told {
        key: "ttft_from_planned",
        title: "Client TTFT from the planned time: a stalled server's waiting is in it",
        of: |l| l.ttft_from_planned,
        folded: true,
    },
    Told {
        key: "e2e_from_planned",
        title: "E2E from the planned time",
        of: |l| l.e2e_from_planned,
        folded: true,
    },
    Told {
        key: "outside_engine",
        title: "Outside the engine: client TTFT less server TTFT, both at the balancer",
        of: |l| l.outside_engine,
        folded: true,
    },
    Told {
        key: "schedule_lag",
        title: "Schedule lag: planned → issued",
        of: |l| l.schedule_lag,
        folded: true,
    },
];

/// The section.
pub fn section(studies: &[ToldStudy], identity: &Identity) -> Section {
    let mut parts = vec![Part::Text(
        "Failed requests have no latency: they stand beside it, in every denominator. A P99 in a table of few requests is \
         marked: there are not enough of them to bound it."
            .into(),
    )];
    for told in FIGURES {
        let table = quantile_table(&told, studies, identity);
        parts.push(if told.folded {
            Part::Folded(table)
        } else {
            Part::Table(table)
        });
    }
    parts.push(Part::Heading("By length of the prompt".into()));
    parts.push(Part::Text(
        "Short: up to 511 prompt tokens, medium: up to 4,095, long: more; by the planned length, for a failed request has \
         no other. Where only long requests have a tail, look at scheduling and memory; where short ones have one too, at \
         preemption or the system."
            .into(),
    ));
    parts.push(Part::Table(length_table(studies, identity)));
    Section {
        id: "latency".into(),
        short: "Latency",
        title: "Latency".into(),
        parts,
    }
}

fn quantile_columns() -> Vec<Column> {
    let mut columns = beside();
    columns.extend([
        Column::new("count", "values", Unit::NONE, "values of the figure"),
        Column::new("mean_ms", "mean", Unit::MS, "arithmetic mean"),
        Column::new("p50_ms", "P50", Unit::MS, "half of the values are below"),
        Column::new("p90_ms", "P90", Unit::MS, "nine in ten are below"),
        Column::new("p95_ms", "P95", Unit::MS, "95 in 100 are below"),
        Column::new("p99_ms", "P99", Unit::MS, "99 in 100 are below"),
        Column::new("max_ms", "greatest", Unit::MS, "the greatest value"),
        Column::new(
            "p99_note",
            "P99 is",
            Unit::NONE,
            "`bounded`: enough values lie beyond it for an upper bound at 95 % confidence (368); else `too few`",
        ),
    ]);
    columns
}

/// What always stands beside a latency.
pub fn beside() -> Vec<Column> {
    vec![
        Column::new(
            "sent",
            "sent",
            Unit::NONE,
            "requests that count: issued in the window, failed ones included",
        ),
        Column::new(
            "success_share",
            "success",
            Unit::SHARE,
            "share of complete requests among those that count",
        ),
        Column::new(
            "failures",
            "failures",
            Unit::NONE,
            "failed requests among those that count, by kind",
        ),
    ]
}

fn quantile_table(told: &Told, studies: &[ToldStudy], identity: &Identity) -> Table {
    let mut table = identity.table(told.key, told.title, quantile_columns());
    for study in studies {
        for point in &study.points {
            let view = &point.view;
            let mut cells = vec![
                Cell::from(view.latencies.sent),
                Cell::from(view.success_share),
                Cell::from(failure_words(&view.failures)),
            ];
            cells.extend(quantile_cells((told.of)(&view.latencies)));
            identity.row(&mut table, study, point, cells);
        }
    }
    table
}

fn quantile_cells(quantiles: Option<Quantiles>) -> Vec<Cell> {
    let Some(of) = quantiles else {
        return vec![Cell::Missing; 8];
    };
    let supported = if of.p99_supported {
        "bounded"
    } else {
        "too few"
    };
    vec![
        of.count.into(),
        of.mean.into(),
        of.p50.into(),
        of.p90.into(),
        of.p95.into(),
        of.p99.into(),
        of.max.into(),
        supported.into(),
    ]
}

/// Failures by kind, in words.
pub fn failure_words(failures: &BTreeMap<String, u64>) -> String {
    if failures.is_empty() {
        return "none".to_owned();
    }
    let words: Vec<String> = failures
        .iter()
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    words.join(", ")
}

fn length_table(studies: &[ToldStudy], identity: &Identity) -> Table {
    let ms = |key, name: &str, definition| Column::new(key, name, Unit::MS, definition);
    let columns = vec![
        Column::new("length", "length", Unit::NONE, "by planned prompt tokens"),
        Column::new(
            "sent",
            "sent",
            Unit::NONE,
            "requests of this length that count",
        ),
        Column::new(
            "success_share",
            "success",
            Unit::SHARE,
            "share of complete ones among them",
        ),
        ms(
            "client_ttft_p50_ms",
            "client TTFT P50",
            "issued → first output",
        ),
        ms("client_ttft_p90_ms", "P90", "of client TTFT"),
        ms("client_ttft_p95_ms", "P95", "of client TTFT"),
        ms("client_ttft_p99_ms", "P99", "of client TTFT"),
        ms("server_ttft_p50_ms", "server TTFT P50", "at the instance"),
        ms("server_ttft_p99_ms", "P99", "of server TTFT"),
        ms("tpot_p50_ms", "TPOT P50", "(last − first output) / (N − 1)"),
        ms("tpot_p99_ms", "P99", "of TPOT"),
        ms("e2e_p50_ms", "E2E P50", "issued → last byte"),
        ms("e2e_p99_ms", "P99", "of E2E"),
    ];
    let mut table = identity.table("lengths", "Latencies by length", columns);
    for study in studies {
        for point in &study.points {
            for length in &point.view.lengths {
                let its = &length.latencies;
                let success = (its.sent > 0).then(|| its.completed as f64 / its.sent as f64);
                let of = |figure: Option<Quantiles>, quantile: fn(&Quantiles) -> f64| {
                    Cell::from(figure.as_ref().map(quantile))
                };
                let cells = [
                    length.length.into(),
                    its.sent.into(),
                    success.into(),
                    of(its.ttft, |q| q.p50),
                    of(its.ttft, |q| q.p90),
                    of(its.ttft, |q| q.p95),
                    of(its.ttft, |q| q.p99),
                    of(its.server_ttft, |q| q.p50),
                    of(its.server_ttft, |q| q.p99),
                    of(its.tpot, |q| q.p50),
                    of(its.tpot, |q| q.p99),
                    of(its.e2e, |q| q.p50),
                    of(its.e2e, |q| q.p99),
                ];
                identity.row(&mut table, study, point, cells);
            }
        }
    }
    table
}
