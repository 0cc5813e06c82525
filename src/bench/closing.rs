//! What a run prints at its end: what came of the load, with what it was not.

use std::fmt::Write as _;

use super::result_file::Told;
use crate::report::distribution::{Distribution, PERCENTILES};
use crate::report::generator::{Bottleneck, Generator};
use crate::report::goodput::Goodput;
use crate::report::latency::{FIGURES, Figure};
use crate::report::load_summary::{BucketSummary, LoadSummary};
use crate::report::steadiness::{Steadiness, Trend};
use crate::report::terminal::{MISSING, TextTable, count, ms, number, percent};

/// Figures that are told for each length.
const BUCKET_FIGURES: [Figure; 4] = [Figure::Ttft, Figure::Tpot, Figure::Itl, Figure::E2el];
/// A share of CPU time taken by the host that shows in a P99.
const MUCH_STOLEN: f64 = 0.01;
/// A share of the generator's time without a core that shows in a P99.
const MUCH_WAITED: f64 = 0.01;
/// From here on a chunk is not a token any more.
const SEVERAL_TOKENS: f64 = 1.05;
/// Prompts this much longer or shorter than planned make another load.
const OTHER_LENGTH: f64 = 0.10;
/// A share of failures that makes latencies the figures of the lucky.
const MANY_FAILURES: f64 = 0.01;

/// What came of it.
pub fn closing(told: &Told<'_>) -> String {
    let summary = told.summary;
    let figures = figures(told);
    let mut parts = Vec::new();
    if told.interrupted {
        parts.push(format!(
            "INTERRUPTED: {} requests were under way and are in no figure",
            count(summary.unfinished as i64)
        ));
    }
    parts.push(outcome(summary));
    parts.extend(told.sent.as_ref().map(|sent| sent.words().join("\n")));
    parts.extend(work(summary));
    parts.push(latency_table(summary, &figures));
    if summary.buckets.len() > 1 {
        parts.push(bucket_table(&summary.buckets));
    }
    parts.push(tokens(summary));
    parts.push(steadiness(&summary.steadiness));
    parts.push(generator(&summary.generator));
    parts.push(definitions(&figures));
    parts.join("\n\n")
}

/// A closed loop has no schedule to be late for.
fn figures(told: &Told<'_>) -> Vec<Figure> {
    let scheduled = told.settings.mode.is_scheduled();
    let told = |figure: &Figure| scheduled || !figure.is_from_planned();
    FIGURES.into_iter().filter(told).collect()
}

fn outcome(summary: &LoadSummary) -> String {
    let mut lines = vec![format!(
        "success rate {} %: {} of {} requests complete",
        percent(summary.success_share()),
        count(summary.completed as i64),
        count(summary.counts.kept as i64)
    )];
    lines.extend(failures(summary));
    lines.extend(left_out(summary));
    let goodput = summary.goodput.as_ref();
    lines.extend(goodput.map(|goodput| goodput_line(goodput, summary)));
    lines.join("\n")
}

fn failures(summary: &LoadSummary) -> Vec<String> {
    let mut lines = Vec::new();
    if summary.failed() > 0 {
        let kinds: Vec<String> = summary
            .failures
            .iter()
            .map(|(kind, times)| format!("{kind} {}", count(*times as i64)))
            .collect();
        lines.push(format!(
            "failed: {} (in no latency below)",
            kinds.join(", ")
        ));
    }
    let many = |share: f64| share < 1.0 - MANY_FAILURES;
    if summary.completed > 0 && summary.success_share().is_some_and(many) {
        lines.push(
            "  with so many failures the latencies are those of the requests that got through"
                .to_owned(),
        );
    }
    lines
}

/// Which requests do not count, and why.
fn left_out(summary: &LoadSummary) -> Vec<String> {
    let counts = summary.counts;
    let mut line = format!(
        "not counted: {} of the warm-up, {} at the start, {} at the end",
        count(counts.warm_up as i64),
        count(counts.cut_start as i64),
        count(counts.cut_end as i64)
    );
    if summary.failed_left_out > 0 {
        let _ = write!(
            line,
            "; {} of them failed",
            count(summary.failed_left_out as i64)
        );
    }
    let why = match summary.window {
        None => "  nothing was issued after the warm-up".to_owned(),
        Some(window) if counts.kept == 0 => format!(
            "  {} s cut at both ends of {} s left nothing: give a smaller --trim-s or a longer run",
            number(Some(window.trim_s)),
            number(Some(window.issued_over_s))
        ),
        Some(window) if window.trim_s == 0.0 => format!(
            "  start and end are in: requests were issued over {} s",
            number(Some(window.issued_over_s))
        ),
        Some(window) => format!(
            "  counted by issue time, {} s cut at both ends of {} s",
            number(Some(window.trim_s)),
            number(Some(window.issued_over_s))
        ),
    };
    let issued = summary
        .window
        .and_then(|window| window.issued_per_s(counts.kept));
    let rate = issued.map(|rate| format!("  issued at {} req/s", number(Some(rate))));
    [line, why].into_iter().chain(rate).collect()
}

fn goodput_line(goodput: &Goodput, summary: &LoadSummary) -> String {
    let asked: Vec<String> = goodput
        .objectives
        .iter()
        .map(|one| {
            let limit_ms = number(Some(one.limit_ms));
            format!("{} ≤ {limit_ms} ms", one.figure.name())
        })
        .collect();
    let rate = summary
        .throughput
        .map(|work| goodput.good as f64 / work.seconds);
    let mut line = format!(
        "goodput {} req/s: {} % of all {} requests, failed ones too, had {}",
        number(rate),
        percent(goodput.share()),
        count(goodput.of as i64),
        asked.join(", ")
    );
    if goodput.without_tpot > 0 {
        let _ = write!(
            line,
            "\n  {} answers without a second token have no TPOT and were judged by the rest",
            count(goodput.without_tpot as i64)
        );
    }
    line
}

fn work(summary: &LoadSummary) -> Option<String> {
    let work = summary.throughput?;
    Some(format!(
        "throughput over {} s: {} req/s, {} output tokens/s (best second {}), {} tokens/s in and out; most at once {}",
        number(Some(work.seconds)),
        number(Some(work.requests_per_s())),
        number(Some(work.output_tokens_per_s())),
        number(work.peak_output_tokens_per_s),
        number(Some(work.tokens_per_s())),
        count(work.max_concurrent as i64)
    ))
}

/// Mean and percentiles; a percentile with too few values beyond it is marked.
fn cells(values: Option<&Distribution>) -> Vec<String> {
    let Some(values) = values else {
        return vec![MISSING.to_owned(); PERCENTILES.len() + 2];
    };
    let percentile = |percent: &f64| {
        let mark = if values.supports(*percent) { "" } else { "?" };
        format!("{}{mark}", ms(values.percentile(*percent)))
    };
    let mut cells = vec![count(values.count() as i64), ms(Some(values.mean))];
    cells.extend(PERCENTILES.iter().map(percentile));
    cells
}

fn latency_table(summary: &LoadSummary, figures: &[Figure]) -> String {
    let mut table = TextTable::new(["ms", "count", "mean", "P50", "P90", "P95", "P99"]);
    for figure in figures {
        let mut row = vec![figure.name().to_owned()];
        row.extend(cells(summary.latencies.get(*figure)));
        table.row(row);
    }
    format!(
        "{}\n?: too few requests beyond this percentile to bound it",
        table.render()
    )
}

fn bucket_table(buckets: &[BucketSummary]) -> String {
    let mut table = TextTable::new([
        "ms, by prompt",
        "ok / sent",
        "count",
        "mean",
        "P50",
        "P90",
        "P95",
        "P99",
    ]);
    for figure in BUCKET_FIGURES {
        for bucket in buckets {
            let mut row = vec![
                format!("{} {}", figure.name(), bucket.bucket.name()),
                format!(
                    "{} / {}",
                    count(bucket.completed as i64),
                    count(bucket.sent as i64)
                ),
            ];
            row.extend(cells(bucket.latencies.get(figure)));
            table.row(row);
        }
    }
    table.render()
}

fn tokens(summary: &LoadSummary) -> String {
    let sources = summary.tokens;
    let mut out = format!(
        "output tokens from usage in {} answers, from counted chunks in {}",
        count(sources.usage as i64),
        count(sources.chunks as i64)
    );
    if sources.none > 0 {
        let _ = write!(out, ", none came in {}", count(sources.none as i64));
    }
    match summary.tokens_per_chunk {
        Some(ratio) if ratio > SEVERAL_TOKENS => {
            let _ = write!(
                out,
                "\n  {} tokens a chunk: ITL is the time between chunks here, not between tokens",
                number(Some(ratio))
            );
        }
        Some(ratio) => {
            let _ = write!(out, ", {} tokens a chunk", number(Some(ratio)));
        }
        None => {}
    }
    if let Some(ratio) = summary.prompt_tokens_per_planned
        && (ratio - 1.0).abs() > OTHER_LENGTH
    {
        let _ = write!(
            out,
            "\n  prompts had {} of the model's tokens for each that was planned",
            number(Some(ratio))
        );
    }
    out
}

fn steadiness(steadiness: &Steadiness) -> String {
    let change = |trend: &Trend| format!("{} {:+.0} %", trend.figure, trend.change * 100.0);
    match steadiness {
        Steadiness::TooFew => "steady? too few requests to tell".to_owned(),
        Steadiness::Steady(trends) => {
            let changes: Vec<String> = trends.iter().map(change).collect();
            format!(
                "steady: no clear trend over what is counted ({})",
                changes.join(", ")
            )
        }
        Steadiness::Trending(trends) => {
            let changes: Vec<String> = trends
                .iter()
                .filter(|trend| trend.matters())
                .map(change)
                .collect();
            format!(
                "NOT STEADY: from start to end of what is counted {}; the figures are those of a change, not of a state: warm up longer, or lower the load",
                changes.join(", ")
            )
        }
    }
}

fn generator(generator: &Generator) -> String {
    let mut out = format!(
        "generator: {} % of a core, {} µs of CPU an event ({} events), {} connections",
        percent(generator.cpu_share),
        number(generator.cpu_us_per_event),
        count(generator.events as i64),
        count(generator.connections as i64)
    );
    if let Some(waited) = generator.waited_share.filter(|share| *share >= MUCH_WAITED) {
        let _ = write!(
            out,
            "\nit had work and no core for {} % of its time: others had it, or a limit is set",
            percent(Some(waited))
        );
    }
    if let Some(lag) = generator.lag {
        let _ = write!(
            out,
            "\nschedule lag: P50 {} ms, P99 {} ms, greatest {} ms; its own P99 {} ms; {} sends waited for answers",
            ms(Some(lag.p50_ms)),
            ms(Some(lag.p99_ms)),
            ms(Some(lag.max_ms)),
            ms(Some(lag.own_p99_ms)),
            count(lag.held_back as i64)
        );
    }
    if generator
        .stolen_share
        .is_some_and(|share| share >= MUCH_STOLEN)
    {
        let _ = write!(
            out,
            "\nthe host of this virtual machine took {} % of its CPU time: lateness and latencies hold that too",
            percent(generator.stolen_share)
        );
    }
    match generator.bottleneck {
        None => {}
        Some(Bottleneck::Cpu) => {
            out += "\nTHE GENERATOR IS THE BOTTLENECK: its core is used up, so the figures are its own; send less, or from several processes";
        }
        Some(Bottleneck::Lateness) => {
            out += "\nTHE GENERATOR IS THE BOTTLENECK: it was kept from its core; the machine is too busy, or its host is, or a limit is set on it, so move it away from the server";
        }
    }
    out
}

fn definitions(figures: &[Figure]) -> String {
    let mut out = String::from("definitions");
    for figure in figures {
        let _ = write!(out, "\n  {}: {}", figure.name(), figure.definition());
    }
    out
}
