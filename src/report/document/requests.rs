//! Single requests of a point as a waterfall: each stage until the first output. Pure.

use super::ttft::{
    CHOOSE, CLIENT_BLOCKED, CLIENT_SEND, CONNECT, QUEUE, RELAY, RETRY, SERVER, UPSTREAM_SEND,
};
use crate::report::figures::rows::{Piece, Row, Rows};
use crate::report::latency::Figure;
use crate::report::terminal::{count, number};
use crate::study::point::{Point, PointRequest};

/// Requests that are drawn.
const SHOWN: usize = 16;

/// The waterfall of a point: requests evenly from the fastest to the slowest, by TTFT at the balancer.
pub fn of(point: &Point, place: &str) -> Rows {
    let mut requests: Vec<(f64, &PointRequest)> = point
        .counted()
        .filter(|request| request.sample.failure.is_none())
        .filter_map(|request| Some((ttft_ms(request)?, request)))
        .collect();
    requests.sort_by(|one, other| one.0.total_cmp(&other.0));
    let last = requests.len().saturating_sub(1);
    let shown = requests.len().min(SHOWN);
    let prefix = format!("{}-", point.file.id);
    let nth = |n: usize| n * last / shown.saturating_sub(1).max(1);
    Rows {
        id: format!("{place}-requests"),
        title: format!("{shown} of {} complete requests, from the fastest to the slowest", requests.len()),
        axis: "time since the request's first byte at the balancer (ms)".into(),
        unit: "ms",
        rows: (0..shown).map(|n| row(requests[nth(n)].1, &prefix)).collect(),
        note: Some("Until the first output. Behind it: E2E at the client, prompt and output tokens, instance.".into()),
    }
}

fn ttft_ms(request: &PointRequest) -> Option<f64> {
    let served = request.served.as_ref()?;
    served.stages.as_ref()?;
    served.server_ttft_ms?;
    served.client_ttft_ms
}

/// Ids begin with the point's name, which is known here.
fn row(request: &PointRequest, prefix: &str) -> Row {
    let served = request.served.as_ref();
    let stages = served
        .and_then(|served| served.stages.clone())
        .unwrap_or_default();
    let server_ms = served
        .and_then(|served| served.server_ttft_ms)
        .unwrap_or_default();
    let pieces = [
        (CLIENT_SEND, stages.client_send_ms),
        (QUEUE, stages.queue_ms),
        (RETRY, stages.retry_ms),
        (CHOOSE, stages.choose_ms),
        (CONNECT, stages.connect_ms),
        (UPSTREAM_SEND, stages.upstream_send_ms),
        (SERVER, server_ms),
        (RELAY, stages.relay_ms),
        (CLIENT_BLOCKED, stages.client_blocked_ms),
    ];
    Row {
        name: request
            .id
            .strip_prefix(prefix)
            .unwrap_or(&request.id)
            .to_owned(),
        pieces: pieces.map(|(stage, length)| Piece { stage, length }).into(),
        after: after(request),
    }
}

fn after(request: &PointRequest) -> String {
    let tokens =
        |tokens: Option<u64>| tokens.map_or_else(|| "?".into(), |tokens| count(tokens as i64));
    let instance = request
        .served
        .as_ref()
        .and_then(|served| served.instance.clone());
    format!(
        "{} s, {} → {} tok, {}",
        number(Figure::E2el.of(&request.sample).map(|ms| ms / 1e3)),
        tokens(request.sample.prompt_tokens),
        tokens(request.sample.output_tokens),
        instance.unwrap_or_else(|| "no instance".into()),
    )
}
