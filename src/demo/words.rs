//! What the demo says at its end, to a reader who has not seen it before. Pure.

use std::fmt::Write as _;
use std::path::Path;

use super::compare::{Comparison, Method, Verdict};
use super::summary::{PolicySummary, Settings, Summary, Timing};
use crate::report::terminal::{MISSING, TextTable, count, ms, number, percent};

/// A share of the greatest difference between instances that counts as slow.
const SLOW_FROM: f64 = 1.15;
/// Lateness of engine steps, sends or the proxy above which figures are blurred, milliseconds.
const LATE_MS: f64 = 20.0;

/// What is run, before it is.
pub fn opening(settings: &Settings, policies: &[String], dir: &Path) -> String {
    let mix: Vec<String> = settings
        .workload
        .classes
        .iter()
        .map(|class| {
            format!(
                "{:.0} % {} (prompt about {} tokens, answer about {})",
                class.share * 100.0,
                class.name,
                class.prompt.median_tokens(),
                class.output.median_tokens()
            )
        })
        .collect();
    format!(
        "Four simulated engines behind Evenkeel, on this machine; {slow}.\n\
         Load: {rate:.0} requests a second at random times (Poisson):\n  {mix}.\n\
         Each policy gets the same requests at the same times: {policies}.\n\
         {seconds} s a policy, the first {warm_up:.1} s of each dropped; seed{s} {seeds}.\n\
         Files go to {dir}.",
        slow = slow_words(settings),
        rate = settings.workload.arrivals.rate_per_s(),
        mix = mix.join(",\n  "),
        policies = policies.join(", "),
        seconds = settings.seconds,
        warm_up = settings.warm_up_s,
        s = if settings.seeds.len() == 1 { "" } else { "s" },
        seeds = settings
            .seeds
            .iter()
            .map(u64::to_string)
            .collect::<Vec<_>>()
            .join(", "),
        dir = dir.display(),
    )
}

fn slow_words(settings: &Settings) -> String {
    let slow = settings
        .slow_factors
        .iter()
        .enumerate()
        .find(|(_, factor)| **factor != 1.0);
    match slow {
        Some((index, factor)) => format!("sim-{index} is {factor} times slower than the others"),
        None => "all equally fast".to_owned(),
    }
}

/// The tables, what they say, and the files.
pub fn closing(summary: &Summary, dir: &Path) -> String {
    let mut out = String::new();
    let mut section = |text: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{text}\n");
    };
    section(format!(
        "What users waited for\n{}",
        policies_table(&summary.policies)
    ));
    section(format!(
        "Where the requests went, and how fast each instance was (server TTFT)\n{}",
        instances_table(&summary.policies)
    ));
    section(findings(summary));
    section(timing(summary));
    section(LEGEND.to_owned());
    section(files(summary, dir));
    out.truncate(out.trim_end().len());
    out
}

type Cell = fn(&PolicySummary) -> String;

/// A row a figure, a column a policy: what a reader compares stands side by side.
fn policies_table(policies: &[PolicySummary]) -> String {
    const ROWS: [(&str, Cell); 15] = [
        ("short requests  client TTFT  P50 ms", |p| {
            ms(p.short.client_ttft_ms.p50)
        }),
        ("                             P99 ms", |p| {
            ms(p.short.client_ttft_ms.p99)
        }),
        ("                server TTFT  P50 ms", |p| {
            ms(p.short.server_ttft_ms.p50)
        }),
        ("                             P99 ms", |p| {
            ms(p.short.server_ttft_ms.p99)
        }),
        ("all requests    client TTFT  P50 ms", |p| {
            ms(p.all.client_ttft_ms.p50)
        }),
        ("                             P99 ms", |p| {
            ms(p.all.client_ttft_ms.p99)
        }),
        ("                server TTFT  P50 ms", |p| {
            ms(p.all.server_ttft_ms.p50)
        }),
        ("                             P99 ms", |p| {
            ms(p.all.server_ttft_ms.p99)
        }),
        ("                TPOT         P50 ms", |p| {
            ms(p.all.tpot_ms.p50)
        }),
        ("                             P99 ms", |p| {
            ms(p.all.tpot_ms.p99)
        }),
        ("                whole answer P99 ms", |p| {
            ms(p.all.e2e_ms.p99)
        }),
        ("throughput      output tokens/s", |p| {
            number(p.output_tokens_per_s)
        }),
        ("                answers/s", |p| number(p.requests_per_s)),
        ("requests        sent", |p| count(p.all.requests as i64)),
        ("                failed", |p| count(p.all.failed as i64)),
    ];
    let headers = std::iter::once("").chain(policies.iter().map(|policy| policy.policy.as_str()));
    let mut table = TextTable::new(headers);
    for (name, cell) in ROWS {
        table.row(std::iter::once(name.to_owned()).chain(policies.iter().map(cell)));
    }
    table.render()
}

fn instances_table(policies: &[PolicySummary]) -> String {
    let mut table = TextTable::new([
        "",
        "requests\n%",
        "tokens\n%",
        "TTFT\nP50 ms",
        "TTFT\nP99 ms",
        "TPOT\nP50 ms",
        "speed vs\nothers",
        "load skew\nmax/mean",
    ]);
    for policy in policies {
        let mut heading = vec![policy.policy.clone()];
        heading.resize(7, String::new());
        heading.push(number(policy.load_skew));
        table.row(heading);
        for instance in &policy.instances {
            table.row([
                format!("  {}", instance.name),
                percent(instance.share_requests),
                percent(instance.share_tokens),
                ms(instance.server_ttft_ms.p50),
                ms(instance.server_ttft_ms.p99),
                ms(instance.tpot_ms.p50),
                instance
                    .speed_vs_fleet
                    .map_or_else(|| MISSING.to_owned(), |speed| format!("{speed:.2} x")),
                String::new(),
            ]);
        }
    }
    table.render()
}

fn findings(summary: &Summary) -> String {
    let mut lines = vec![
        "What this says".to_owned(),
        format!("  {}", slowest_words(summary)),
    ];
    lines.extend(
        summary
            .comparisons
            .iter()
            .map(|comparison| format!("  {}", comparison_words(comparison))),
    );
    lines.join("\n")
}

fn slowest_words(summary: &Summary) -> String {
    match &summary.slowest {
        Some(slowest) if slowest.speed_vs_fleet >= SLOW_FROM => format!(
            "{} is slow: {:.2} times the others' time per token at equal load (set to {}).",
            slowest.instance, slowest.speed_vs_fleet, slowest.true_factor
        ),
        Some(slowest) => format!(
            "No instance stands out: the slowest, {}, takes {:.2} times the others' time per token at equal load.",
            slowest.instance, slowest.speed_vs_fleet
        ),
        None => "Too few requests to say which instance is slow (100 at common load are needed): run longer with --seconds.".to_owned(),
    }
}

fn comparison_words(comparison: &Comparison) -> String {
    let Comparison {
        policy,
        control,
        difference_ms,
        verdict,
        ..
    } = comparison;
    let Some(interval) = difference_ms else {
        return format!(
            "{policy} against {control}: too few requests for an interval; run longer with --seconds."
        );
    };
    let over = match comparison.method {
        Method::PairedBlockBootstrap => format!(
            "{} paired requests, blocks of 2 s",
            count(comparison.pairs as i64)
        ),
        Method::PairedSeeds => format!("{} paired seeds", comparison.pairs),
    };
    let figures = format!(
        "P99 client TTFT of short requests {} ms,\n    95 % interval {} to {} ms ({over})",
        signed(interval.estimate),
        signed(interval.low),
        signed(interval.high),
    );
    match verdict {
        Verdict::Faster => format!("{policy} beats {control}: {figures}."),
        Verdict::Slower => format!("{policy} is worse than {control}: {figures}."),
        Verdict::Undecided => format!(
            "{policy} against {control}: {figures}.\n    The interval includes no difference: run longer with --seconds, or more often with --seeds."
        ),
    }
}

fn signed(value_ms: f64) -> String {
    let sign = if value_ms < 0.0 { "-" } else { "+" };
    format!("{sign}{}", number(Some(value_ms.abs())))
}

fn timing(summary: &Summary) -> String {
    let worst = |of: fn(&Timing) -> Option<f64>| {
        summary
            .policies
            .iter()
            .filter_map(|policy| of(&policy.timing))
            .reduce(f64::max)
    };
    let engine = worst(|timing| timing.engine_step_lag_p99_ms);
    let send = worst(|timing| timing.send_lag_p99_ms);
    let proxy = worst(|timing| timing.proxy_own_ms.p99);
    let mut lines = vec![
        "How far to trust it (engines, proxy and load share this machine; worst policy)".to_owned(),
        format!(
            "  engine steps late by P99 {} ms, requests sent late by P99 {} ms",
            ms(engine),
            ms(send)
        ),
        format!(
            "  proxy's own part of client TTFT: P50 {} ms, P99 {} ms",
            ms(worst(|t| t.proxy_own_ms.p50)),
            ms(proxy)
        ),
        format!(
            "  client TTFT by the load client's clock less the proxy's record: P50 {} ms, P99 {} ms",
            ms(worst(|t| t.client_less_record_ms.p50)),
            ms(worst(|t| t.client_less_record_ms.p99))
        ),
    ];
    if [engine, send, proxy]
        .into_iter()
        .flatten()
        .any(|lag_ms| lag_ms > LATE_MS)
    {
        lines.push(format!(
            "  Over {LATE_MS:.0} ms: this machine was too busy, so differences of that size mean nothing; run it with less load."
        ));
    }
    let missing: u64 = summary
        .policies
        .iter()
        .map(|policy| policy.timing.without_record)
        .sum();
    if missing > 0 {
        lines.push(format!(
            "  {missing} requests have no record and count as failed."
        ));
    }
    lines.join("\n")
}

const LEGEND: &str = "Words
  client TTFT: first byte of the request from the client to the first token at the client's socket
  server TTFT: last byte of the request at the engine to the first token back from it
  TPOT: (last token - first token) / (tokens - 1); P50 half are below, P99 all but one in a hundred
  speed vs others: an instance's decode step over the others' at equal load and length; 1.6 is slower
  load skew: the busiest instance's outstanding tokens over the mean; 1 is even
  short: a chat turn; the lanes policy keeps short requests away from long prompts";

fn files(summary: &Summary, dir: &Path) -> String {
    let folder = if summary.settings.seeds.len() == 1 {
        "<policy>"
    } else {
        "seed-<n>/<policy>"
    };
    format!(
        "Files in {dir}\n  summary.json            every figure above, and more\n  {folder}/records-*.jsonl  one line a request, as `evenkeel serve` writes it\n  {folder}/run.toml         the proxy's configuration of that run",
        dir = dir.display()
    )
}
