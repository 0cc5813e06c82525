//! The section that explains TTFT: from the client's to the server's, stage by stage. Pure.

use super::identity::Identity;
use super::table::{Cell, Column, Unit};
use super::told::ToldStudy;
use super::{Part, Section};
use crate::report::both_sides::BothSides;
use crate::report::figures::rows::{Piece, Row, Rows, Stage};
use crate::report::terminal::number;

/// Stages in the order of a request's way, as they are filled.
pub const CLIENT_SEND: Stage = Stage {
    name: "client_send",
    fill: 0,
};
/// in a lane's queue
pub const QUEUE: Stage = Stage {
    name: "queue",
    fill: 1,
};
/// attempts that failed
pub const RETRY: Stage = Stage {
    name: "retry",
    fill: 2,
};
/// the balancer's own work before
pub const CHOOSE: Stage = Stage {
    name: "choose",
    fill: 3,
};
/// getting a connection
pub const CONNECT: Stage = Stage {
    name: "connect",
    fill: 4,
};
/// writing the request
pub const UPSTREAM_SEND: Stage = Stage {
    name: "upstream_send",
    fill: 5,
};
/// the engine
pub const SERVER: Stage = Stage {
    name: "server TTFT",
    fill: 6,
};
/// the balancer's own work after
pub const RELAY: Stage = Stage {
    name: "relay",
    fill: 7,
};
/// the client did not take it
pub const CLIENT_BLOCKED: Stage = Stage {
    name: "client_blocked",
    fill: 8,
};

const BEFORE: [Stage; 6] = [CLIENT_SEND, QUEUE, RETRY, CHOOSE, CONNECT, UPSTREAM_SEND];
const AFTER: [Stage; 2] = [RELAY, CLIENT_BLOCKED];

/// Most rows of the drawing; the table has all.
const MOST_ROWS: usize = 40;

/// The section.
pub fn section(studies: &[ToldStudy], identity: &Identity) -> Section {
    let mut table = identity.table(
        "ttft_stages",
        "Where the time to the first output went: means",
        columns(),
    );
    let mut rows = Vec::new();
    for study in studies {
        for point in &study.points {
            let latencies = &point.view.latencies;
            identity.row(&mut table, study, point, cells(latencies));
            rows.extend(row(identity.short(&point.view.setting), latencies));
        }
    }
    let left_out = rows.len().saturating_sub(MOST_ROWS);
    rows.truncate(MOST_ROWS);
    let drawing = Rows {
        id: "ttft-stages".into(),
        title:
            "Outside the engine: client TTFT less server TTFT, by stage, mean of complete requests"
                .into(),
        axis: "mean time outside the engine until the first output (ms)".into(),
        unit: "ms",
        rows,
        note: (left_out > 0).then(|| format!("{left_out} more points are in the table only.")),
    };
    Section {
        id: "ttft".into(),
        short: "TTFT by stage",
        title: "Client and server TTFT: the difference".into(),
        parts: vec![
            Part::Text(
                "The client's TTFT begins when it issues the request, the server's when the instance has all of it. What lies \
                 between is named: only choose and relay are the balancer's own work. With the engine's part they are drawn for \
                 single requests in the details of a point."
                    .into(),
            ),
            Part::Rows(drawing),
            Part::Table(table),
        ],
    }
}

fn columns() -> Vec<Column> {
    let ms = |key, name: &str, definition| Column::new(key, name, Unit::MS, definition);
    vec![
        ms(
            "client_ttft_mean_ms",
            "client TTFT",
            "issued → first output, by the client's clock",
        ),
        ms(
            "client_send_mean_ms",
            "client_send",
            "first to last byte of the request from the client",
        ),
        ms(
            "queue_mean_ms",
            "queue",
            "in a lane's queue of the balancer",
        ),
        ms("retry_mean_ms", "retry", "in attempts that failed"),
        ms(
            "choose_mean_ms",
            "choose",
            "the balancer's own work until an instance was chosen",
        ),
        ms(
            "connect_mean_ms",
            "connect",
            "getting a connection to the instance",
        ),
        ms(
            "upstream_send_mean_ms",
            "upstream_send",
            "writing the request to the instance",
        ),
        ms(
            "server_ttft_mean_ms",
            "server TTFT",
            "last byte at the instance → first output back",
        ),
        ms(
            "relay_mean_ms",
            "relay",
            "the balancer's own work on the first output",
        ),
        ms(
            "client_blocked_mean_ms",
            "client_blocked",
            "first output held up by the client",
        ),
        ms(
            "before_balancer_mean_ms",
            "rest",
            "client TTFT less all stages: network and the client itself",
        ),
    ]
}

fn mean_of(latencies: &BothSides, stage: Stage) -> Option<f64> {
    if stage == SERVER {
        return latencies.server_ttft.map(|of| of.mean);
    }
    let its = latencies.stages.iter().find(|its| its.name == stage.name)?;
    Some(its.ms.mean)
}

fn way() -> impl Iterator<Item = Stage> {
    BEFORE.into_iter().chain([SERVER]).chain(AFTER)
}

fn cells(latencies: &BothSides) -> Vec<Cell> {
    let client = latencies.ttft.map(|of| of.mean);
    let stages: Vec<Option<f64>> = way().map(|stage| mean_of(latencies, stage)).collect();
    let sum: Option<f64> = stages.iter().copied().sum();
    let rest = client.zip(sum).map(|(client, sum)| client - sum);
    let all = std::iter::once(client).chain(stages).chain([rest]);
    all.map(Cell::from).collect()
}

fn row(name: String, latencies: &BothSides) -> Option<Row> {
    let pieces: Option<Vec<Piece>> = way()
        .filter(|stage| *stage != SERVER)
        .map(|stage| {
            let length = mean_of(latencies, stage)?;
            Some(Piece { stage, length })
        })
        .collect();
    let pieces = pieces?;
    let sum: f64 = pieces.iter().map(|piece| piece.length).sum();
    Some(Row {
        name,
        pieces,
        after: format!("{} ms", number(Some(sum))),
    })
}
