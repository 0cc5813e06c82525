//! A point over time: TTFT of its requests, and what GPUs, KV blocks, queues and CPUs did meanwhile, on one axis. Pure.

use std::collections::BTreeMap;

use crate::report::figures::panels::{At, Line, Panel, Panels};
use crate::report::figures::scale::Kind;
use crate::report::figures::style::Style;
use crate::report::latency::Figure;
use crate::report::window::entered_ns;
use crate::study::monitor::{Figures, Reading, Source};
use crate::study::point::Point;

/// Most dots of a panel.
const MOST_DOTS: usize = 500;
/// Parts of the time axis into which looks are gathered.
const BINS: usize = 120;

type Of = fn(&Figures) -> Option<f64>;

/// How the instances' values of one time become one.
#[derive(Clone, Copy, PartialEq)]
enum Together {
    /// the mean, in a band from the lowest to the highest
    Mean,
    /// the sum
    Sum,
}

/// The course of a point.
pub fn of(point: &Point, place: &str) -> Panels {
    let span_s = span_s(point);
    let gauge = |source, of: Of, name: &str, style, together, times| {
        line(point, span_s, source, of, (name, style, together, times))
    };
    let mean =
        |source, of: Of, name: &str, style| gauge(source, of, name, style, Together::Mean, 100.0);
    let sum =
        |of: Of, name: &str, style| gauge(Source::Engine, of, name, style, Together::Sum, 1.0);
    let mut panels = vec![
        panel(
            "client TTFT of each request, at its issue (ms)",
            Kind::Log,
            None,
            ttft(point),
        ),
        panel(
            "GPU use (%)",
            Kind::Linear,
            Some(100.0),
            [
                mean(Source::Gpu, |f| f.gpu_use_share, "any kernel", 0),
                mean(Source::Gpu, |f| f.dram_active_share, "memory busy", 1),
            ],
        ),
        panel(
            "KV blocks in use (%)",
            Kind::Linear,
            Some(100.0),
            [mean(Source::Engine, |f| f.kv_used_share, "KV use", 2)],
        ),
        panel(
            "sequences, all instances together",
            Kind::Linear,
            None,
            [
                sum(|f| f.running, "running", 0),
                sum(|f| f.waiting, "waiting", 1),
            ],
        ),
        panel(
            "CPU (%; hosts: of all cores, generator: of one)",
            Kind::Linear,
            Some(100.0),
            [
                mean(Source::Host, |f| f.cpu_use_share, "hosts", 3),
                mean(Source::Generator, |f| f.cpu_use_share, "generator", 4),
            ],
        ),
    ];
    if let Some(rate) = preemptions(point, span_s) {
        panels.insert(
            4,
            panel("preemptions (1/s)", Kind::Linear, None, [Some(rate)]),
        );
    }
    Panels {
        id: format!("{place}-course"),
        title: "Course over time".into(),
        span_s,
        counted_s: point
            .window
            .map(|window| (point.at_s(window.from_ns), point.at_s(window.to_ns))),
        panels,
        note: Some(
            "In shade: warm-up and what is cut at the ends. A band runs from the lowest instance to the highest, its line is \
             the mean."
                .into(),
        ),
    }
}

fn panel(
    title: &str,
    kind: Kind,
    full: Option<f64>,
    lines: impl IntoIterator<Item = Option<Line>>,
) -> Panel {
    Panel {
        title: title.to_owned(),
        kind,
        full,
        lines: lines.into_iter().flatten().collect(),
    }
}

fn span_s(point: &Point) -> (f64, f64) {
    let ends = point
        .requests
        .iter()
        .map(|request| point.at_s(request.sample.end_ns));
    let end_s = ends.fold(point.file.seconds, f64::max);
    (0.0, if end_s > 0.0 { end_s } else { 1.0 })
}

fn ttft(point: &Point) -> Vec<Option<Line>> {
    let at = |request: &crate::study::point::PointRequest| {
        let ttft_ms = Figure::Ttft.of(&request.sample)?;
        Some((point.at_s(entered_ns(&request.sample)), ttft_ms))
    };
    let all: Vec<At> = point.requests.iter().filter_map(at).collect();
    let every = all.len().div_ceil(MOST_DOTS).max(1);
    let shown = all.len().div_ceil(every);
    let name = if every == 1 {
        "complete requests".to_owned()
    } else {
        format!("{shown} of {} complete requests", all.len())
    };
    let dots = Line {
        name,
        points: all.into_iter().step_by(every).collect(),
        band: Vec::new(),
        style: Style(0),
        dots: true,
    };
    vec![(!dots.points.is_empty()).then_some(dots)]
}

/// What a source's looks come to in each part of the axis.
fn line(
    point: &Point,
    span_s: (f64, f64),
    source: Source,
    of: Of,
    (name, style, together, times): (&str, usize, Together, f64),
) -> Option<Line> {
    let mut bins: BTreeMap<usize, BTreeMap<&str, (f64, f64)>> = BTreeMap::new();
    let looks = point.monitor.iter().filter(|look| look.source == source);
    for look in looks {
        let (Some(value), Some(bin)) = (of(&look.figures), bin(look, span_s)) else {
            continue;
        };
        let whose = look.instance.as_deref().unwrap_or_default();
        let sum = bins.entry(bin).or_default().entry(whose).or_default();
        *sum = (sum.0 + value * times, sum.1 + 1.0);
    }
    let at_s = |bin: usize| span_s.0 + (bin as f64 + 0.5) / BINS as f64 * (span_s.1 - span_s.0);
    let mut line = Line {
        name: name.to_owned(),
        points: Vec::new(),
        band: Vec::new(),
        style: Style(style),
        dots: false,
    };
    for (bin, by_instance) in bins {
        let means: Vec<f64> = by_instance
            .values()
            .map(|(sum, count)| sum / count)
            .collect();
        let sum: f64 = means.iter().sum();
        if together == Together::Sum {
            line.points.push((at_s(bin), sum));
            continue;
        }
        line.points.push((at_s(bin), sum / means.len() as f64));
        if means.len() > 1 {
            let lowest = means.iter().copied().fold(f64::INFINITY, f64::min);
            let highest = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            line.band.push((at_s(bin), lowest, highest));
        }
    }
    (!line.points.is_empty()).then_some(line)
}

fn bin(look: &Reading, span_s: (f64, f64)) -> Option<usize> {
    let share = (look.at_s - span_s.0) / (span_s.1 - span_s.0);
    (0.0..=1.0)
        .contains(&share)
        .then(|| ((share * BINS as f64) as usize).min(BINS - 1))
}

/// Growth of the engines' totals, all together; absent if there was none.
fn preemptions(point: &Point, span_s: (f64, f64)) -> Option<Line> {
    let mut last: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    let mut grown: BTreeMap<usize, f64> = BTreeMap::new();
    for look in &point.monitor {
        let (Some(total), Some(bin)) = (look.figures.preemptions_total, bin(look, span_s)) else {
            continue;
        };
        let whose = look.instance.as_deref().unwrap_or_default();
        if let Some((_, before)) = last.insert(whose, (look.at_s, total)) {
            *grown.entry(bin).or_default() += (total - before).max(0.0);
        }
    }
    let bin_s = (span_s.1 - span_s.0) / BINS as f64;
    let points: Vec<At> = grown
        .iter()
        .map(|(bin, count)| (span_s.0 + (*bin as f64 + 0.5) * bin_s, count / bin_s))
        .collect();
    points.iter().any(|point| point.1 > 0.0).then(|| Line {
        name: "preemptions".into(),
        points,
        band: Vec::new(),
        style: Style(1),
        dots: false,
    })
}
