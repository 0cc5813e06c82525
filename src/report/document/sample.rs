//! Simulated studies for tests of reports.
#![allow(clippy::unwrap_used)]

use super::told::{ToldPoint, ToldStudy};
use crate::engine::profile::Profile;
use crate::load::lengths::Lengths;
use crate::load::workload::Class;
use crate::report::fixture;
use crate::report::generator::Generator;
use crate::report::goodput::Objective;
use crate::report::latency::Bucket;
use crate::report::window::{Window, entered_ns};
use crate::simulate::point::{Fleet, PointSpec, SimPoint, run_point};
use crate::study::point::{Point, PointRequest};
use crate::study::read::join;
use crate::study::{Load, Machine, PointFile, Price, STUDY_VERSION, Scenario, Setting, StudyFile};

/// A setting of the base variant.
pub(crate) fn setting(scenario: Scenario, instances: u32, load: Load) -> Setting {
    Setting {
        scenario,
        seed: 5,
        ..fixture::setting(instances, load)
    }
}

fn classes() -> Vec<Class> {
    let class = |name: &str, share, tokens| Class {
        name: name.into(),
        share,
        prompt: Lengths::Uniform {
            min_tokens: tokens / 2,
            max_tokens: tokens,
        },
        output: Lengths::Uniform {
            min_tokens: 5,
            max_tokens: 40,
        },
    };
    vec![class("short", 0.5, 400), class("medium", 0.5, 1500)]
}

/// A point of a few seconds on the fast test engine.
pub(crate) fn point(setting: Setting) -> Point {
    let fleet = Fleet::new(Profile::load("test-fast").unwrap());
    let mut spec = PointSpec::new(setting, fleet, classes(), 0.5, 3.0);
    spec.look_every_s = 0.1;
    spec.batch_classes = classes();
    of_simulated(run_point(&spec).unwrap(), &spec.id_prefix)
}

/// What a reader would make of the files of a simulated point.
pub(crate) fn of_simulated(simulated: SimPoint, id_prefix: &str) -> Point {
    let run = simulated.run;
    let (started_ns, rule) = (run.started_ns, simulated.rule);
    let window = Window::of(&run.samples, started_ns, rule);
    let request = |sample: crate::load::sample::Sample| PointRequest {
        id: format!("{id_prefix}{}", sample.index),
        bucket: Bucket::of(sample.planned_prompt_tokens),
        counted: window.is_some_and(|window| window.keeps(&sample)),
        warm_up: entered_ns(&sample) < started_ns + rule.warm_up_ns,
        served: None,
        sample,
    };
    let generator = Generator::of(run.generator, run.lag, simulated.scheduled);
    let mut requests: Vec<PointRequest> = run.samples.into_iter().map(request).collect();
    let others = join(&mut requests, simulated.records);
    Point {
        file: PointFile {
            schema: STUDY_VERSION,
            id: simulated.setting.id(),
            order: 0,
            setting: simulated.setting,
            started_unix_ns: started_ns,
            seconds: simulated.seconds,
            notes: Vec::new(),
        },
        window,
        generator: Some(generator),
        lengths_assumed: None,
        requests,
        others,
        monitor: simulated.readings,
        problems: Vec::new(),
    }
}

/// A study of these points.
pub(crate) fn study(name: &str, points: &[Point]) -> ToldStudy {
    let objectives = ["ttft:300", "tpot:30"];
    let limits: Vec<Objective> = objectives
        .iter()
        .map(|text| Objective::parse(text).unwrap())
        .collect();
    let told =
        |(index, point): (usize, &Point)| ToldPoint::of(point, &limits, format!("point-0-{index}"));
    ToldStudy {
        folder: "study".into(),
        label: name.into(),
        file: StudyFile {
            schema: STUDY_VERSION,
            name: name.into(),
            simulated: true,
            seed: 5,
            version: "0.1.0".into(),
            started_unix_ns: 1_800_000_000_000_000_000,
            machine: Machine {
                system: "linux x86_64".into(),
                cores: 2,
                processor: None,
                memory_bytes: Some(8 << 30),
            },
            plan_sha256: "0".repeat(64),
            objectives: objectives.map(String::from).into(),
            attainment: 0.99,
            gpu_hour_price: Some(Price {
                amount: 0.8,
                currency: "USD".into(),
            }),
        },
        plan: Some(format!("name = \"{name}\"\n")),
        objectives: limits.clone(),
        points: points.iter().enumerate().map(told).collect(),
        unfinished: Vec::new(),
        problems: Vec::new(),
    }
}

/// A small matrix: two fleets under three loads.
pub(crate) fn matrix() -> Vec<Point> {
    let mut points = Vec::new();
    for instances in [1, 2] {
        for each in [4, 16, 64] {
            let load = Load::Closed {
                concurrency: each * instances,
            };
            points.push(point(setting(Scenario::Online, instances, load)));
        }
    }
    points
}
