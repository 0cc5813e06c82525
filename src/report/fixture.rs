//! Points for tests of reports.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use super::latency::Bucket;
use super::point::PointView;
use super::sample_of;
use super::window::Window;
use crate::measure::outcome::Outcome;
use crate::study::monitor::{Figures, Reading, Source};
use crate::study::point::{Point, PointRequest, Served};
use crate::study::{
    Load, Machine, PointFile, Price, STUDY_VERSION, Scaling, Scenario, Setting, StudyFile,
};

/// When loads of fixtures start.
pub(crate) const STARTED_NS: u64 = 1_800_000_000_000_000_000;

/// An online point of `instances` with this load.
pub(crate) fn setting(instances: u32, load: Load) -> Setting {
    Setting {
        scenario: Scenario::Online,
        scaling: Scaling::Horizontal,
        instances,
        gpus_per_instance: 1,
        load,
        load_per_instance: load.amount() / f64::from(instances),
        lengths: "mix".into(),
        policy: "least_requests".into(),
        repeat: 0,
        seed: 1,
        variant: "base".into(),
        engine: BTreeMap::new(),
        batch_concurrency: None,
        labels: BTreeMap::new(),
    }
}

/// A request issued `issued_ms` after the start, on an instance, its first output after `ttft_ms`, then gaps.
pub(crate) fn request(
    index: u32,
    issued_ms: u64,
    ttft_ms: u64,
    gaps_ms: &[u32],
    instance: &str,
) -> PointRequest {
    let mut sample = sample_of(
        index,
        STARTED_NS / 1_000_000 + issued_ms,
        ttft_ms,
        gaps_ms,
        0,
    );
    sample.sent_ns = sample.issued_ns;
    PointRequest {
        id: format!("r-{index}"),
        bucket: Bucket::of(sample.planned_prompt_tokens),
        counted: true,
        warm_up: false,
        served: Some(Served {
            instance: Some(instance.to_owned()),
            outcome: Outcome::Ok,
            start_ns: sample.planned_ns,
            attempts: 1,
            client_ttft_ms: Some(ttft_ms as f64),
            server_ttft_ms: Some(ttft_ms as f64 - 2.0),
            outside_engine_ms: Some(2.0),
            stages: None,
            e2e_ms: Some((sample.end_ns - sample.planned_ns) as f64 / 1e6),
            prompt_tokens: Some(100),
            cached_tokens: None,
            output_tokens: sample.output_tokens,
            mean_batch: None,
        }),
        sample,
    }
}

/// A point of these requests, all of which count, over `seconds`.
pub(crate) fn point(setting: Setting, requests: Vec<PointRequest>, seconds: u64) -> Point {
    let until_ns = STARTED_NS + seconds * 1_000_000_000;
    Point {
        file: PointFile {
            schema: STUDY_VERSION,
            id: setting.id(),
            order: 0,
            setting,
            started_unix_ns: STARTED_NS,
            seconds: seconds as f64,
            notes: Vec::new(),
        },
        window: Some(Window {
            from_ns: STARTED_NS,
            to_ns: until_ns,
            until_ns,
            trim_s: 0.0,
            issued_over_s: seconds as f64,
        }),
        generator: None,
        lengths_assumed: None,
        requests,
        others: Vec::new(),
        monitor: Vec::new(),
        problems: Vec::new(),
    }
}

/// A look at a source of an instance.
pub(crate) fn look(at_s: f64, source: Source, instance: &str, figures: Figures) -> Reading {
    Reading {
        at_s,
        source,
        instance: Some(instance.to_owned()),
        gpu: (source == Source::Gpu).then(|| "0".to_owned()),
        figures,
    }
}

/// A point in figures: a closed loop of `concurrency` on so many instances and GPUs, and the tokens a second it made.
pub(crate) fn view(instances: u32, gpus: u32, concurrency: u32, tokens_per_s: f64) -> PointView {
    view_at(instances, gpus, concurrency, tokens_per_s, 0)
}

/// The same as a repetition.
pub(crate) fn view_at(
    instances: u32,
    gpus: u32,
    concurrency: u32,
    tokens_per_s: f64,
    repeat: u32,
) -> PointView {
    let mut setting = setting(instances, Load::Closed { concurrency });
    setting.gpus_per_instance = gpus;
    setting.repeat = repeat;
    let requests = vec![request(0, 0, 100, &[10, 10], "a")];
    let mut view = PointView::of(&point(setting, requests, 10), &[]);
    if let Some(work) = &mut view.throughput {
        work.output_tokens_per_s = tokens_per_s;
    }
    for (at, slice) in view.slices.iter_mut().enumerate() {
        let swing = if at % 2 == 0 { 1.02 } else { 0.98 };
        slice.output_tokens = tokens_per_s * slice.seconds * swing;
    }
    view
}

/// A study that asks 99 %, with a price of a GPU for an hour or without.
pub(crate) fn study_file(price: Option<f64>) -> StudyFile {
    StudyFile {
        schema: STUDY_VERSION,
        name: "s".into(),
        simulated: true,
        seed: 1,
        version: "0".into(),
        started_unix_ns: 0,
        machine: Machine::default(),
        plan_sha256: String::new(),
        objectives: Vec::new(),
        attainment: 0.99,
        gpu_hour_price: price.map(|amount| Price {
            amount,
            currency: "USD".into(),
        }),
    }
}
