//! Latencies of a set of requests as the client and the server saw them, and what lies between. Pure.

use serde::Serialize;

use super::latency::{Figure, output_tokens};
use super::quantiles::Quantiles;
use crate::load::sample::Sample;
use crate::measure::record::Stages;
use crate::study::point::{PointRequest, Served};

/// Latencies of the complete requests of a set, in milliseconds; failed ones are counted beside them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BothSides {
    /// requests of the set
    pub sent: u64,
    /// of these, complete
    pub completed: u64,
    /// issued → first output, at the client
    pub ttft: Option<Quantiles>,
    /// planned → first output, at the client
    pub ttft_from_planned: Option<Quantiles>,
    /// last byte of the request at the instance → first output, at the balancer
    pub server_ttft: Option<Quantiles>,
    /// client TTFT less server TTFT, both at the balancer
    pub outside_engine: Option<Quantiles>,
    /// parts of it, in the order of a request's way
    pub stages: Vec<Stage>,
    /// (last output − first) / (N − 1)
    pub tpot: Option<Quantiles>,
    /// (E2E − TTFT) / (N − 1)
    pub tpot_of_e2e: Option<Quantiles>,
    /// (E2E − TTFT) / N
    pub tpot_over_n: Option<Quantiles>,
    /// time between output chunks, of all requests together
    pub itl: Option<Quantiles>,
    /// issued → last byte
    pub e2e: Option<Quantiles>,
    /// planned → last byte
    pub e2e_from_planned: Option<Quantiles>,
    /// planned → issued
    pub schedule_lag: Option<Quantiles>,
}

/// A part of the time outside of the engine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stage {
    /// as the records name it, without `_ms`
    pub name: &'static str,
    /// milliseconds
    pub ms: Quantiles,
}

type StageOf = fn(&Stages) -> f64;

const STAGES: [(&str, StageOf); 8] = [
    ("client_send", |stages| stages.client_send_ms),
    ("queue", |stages| stages.queue_ms),
    ("retry", |stages| stages.retry_ms),
    ("choose", |stages| stages.choose_ms),
    ("connect", |stages| stages.connect_ms),
    ("upstream_send", |stages| stages.upstream_send_ms),
    ("relay", |stages| stages.relay_ms),
    ("client_blocked", |stages| stages.client_blocked_ms),
];

impl BothSides {
    /// Of these requests.
    pub fn of(requests: &[&PointRequest]) -> BothSides {
        let samples: Vec<&Sample> = requests.iter().map(|request| &request.sample).collect();
        let figure = |figure: Figure| Quantiles::of(&figure.over(&samples)?);
        let complete = || {
            requests
                .iter()
                .filter(|request| request.sample.failure.is_none())
        };
        let served = |of: fn(&Served) -> Option<f64>| {
            Quantiles::over(complete().filter_map(|request| of(request.served.as_ref()?)))
        };
        let stage = |(name, of): &(&'static str, StageOf)| {
            let stages = complete().filter_map(|request| request.served.as_ref()?.stages.as_ref());
            let ms = Quantiles::over(stages.map(of))?;
            Some(Stage { name, ms })
        };
        BothSides {
            sent: requests.len() as u64,
            completed: complete().count() as u64,
            ttft: figure(Figure::Ttft),
            ttft_from_planned: figure(Figure::TtftFromPlanned),
            server_ttft: served(|served| served.server_ttft_ms),
            outside_engine: served(|served| served.outside_engine_ms),
            stages: STAGES.iter().filter_map(stage).collect(),
            tpot: figure(Figure::Tpot),
            tpot_of_e2e: figure(Figure::TpotOfE2e),
            tpot_over_n: Quantiles::over(samples.iter().filter_map(|sample| tpot_over_n(sample))),
            itl: figure(Figure::Itl),
            e2e: figure(Figure::E2el),
            e2e_from_planned: figure(Figure::E2elFromPlanned),
            schedule_lag: figure(Figure::ClientQueueTime),
        }
    }
}

/// (E2E − TTFT) / N, as some serving frameworks define TPOT.
fn tpot_over_n(sample: &Sample) -> Option<f64> {
    let decode_ms = Figure::E2el.of(sample)? - Figure::Ttft.of(sample)?;
    let tokens = output_tokens(sample).filter(|tokens| *tokens > 0)?;
    Some(decode_ms / tokens as f64)
}
