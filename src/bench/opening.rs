//! What a run prints before it begins: what will be sent, to whom, and what of it is assumed.

use super::options::BenchArgs;
use super::plan::{Extent, Mode};
use super::settings::Settings;
use super::target::Target;
use crate::load::arrivals::Arrivals;
use crate::load::mixes;
use crate::load::workload::Class;
use crate::report::terminal::{count, number};

/// What is about to be sent.
pub fn opening(args: &BenchArgs, settings: &Settings, target: &Target) -> String {
    let mut lines = vec![
        format!(
            "asking http://{}{} for model {}",
            target.authority, settings.form.path, settings.form.model
        ),
        load(args, settings),
        requests(settings),
    ];
    if settings.rule.warm_up_ns > 0 {
        lines.push(format!(
            "warm-up: {} s before that, not drained",
            number(Some(args.warmup_s))
        ));
    }
    if args.max_concurrency.is_none() && settings.mode.is_scheduled() {
        lines.push(format!(
            "file descriptors allow {} requests open at once",
            count(settings.max_in_flight as i64)
        ));
    }
    lines.join("\n")
}

/// The load in a line.
pub fn load(args: &BenchArgs, settings: &Settings) -> String {
    let extent = match settings.extent {
        Extent::Requests(requests) => format!("{} requests", count(i64::from(requests))),
        Extent::Seconds(seconds) => format!("{} s", number(Some(seconds))),
    };
    let most = args
        .max_concurrency
        .map_or_else(String::new, |places| format!(", at most {places} at once"));
    match settings.mode {
        Mode::Open(arrivals) => {
            let kind = match arrivals {
                Arrivals::Poisson { .. } => "Poisson arrivals".to_owned(),
                Arrivals::Constant { .. } => "arrivals at equal gaps".to_owned(),
                Arrivals::Gamma { burstiness, .. } => {
                    format!("gamma arrivals of burstiness {burstiness}")
                }
                Arrivals::Ramp { .. } => "arrivals on a ramp".to_owned(),
            };
            let rate = number(Some(arrivals.rate_per_s()));
            format!("open loop: {kind}, {rate} req/s{most}, {extent}")
        }
        Mode::AtOnce if settings.replaying.is_some() => {
            let scale = args.time_scale.unwrap_or(1.0);
            format!("open loop: the trace's own times, multiplied by {scale}{most}, {extent}")
        }
        Mode::Closed(places) => format!("closed loop: {places} at once, {extent}"),
        Mode::AtOnce => format!("all at once: {extent}"),
    }
}

fn requests(settings: &Settings) -> String {
    if let Some(replaying) = &settings.replaying {
        return replaying.words(settings.form.ignore_eos).join("\n");
    }
    let total: f64 = settings.classes.iter().map(|class| class.share).sum();
    let class = |class: &Class| {
        format!(
            "{:.0} % {} (prompt {}, output {})",
            class.share / total * 100.0,
            class.name,
            class.prompt,
            class.output
        )
    };
    let classes: Vec<String> = settings.classes.iter().map(class).collect();
    let mut out = format!("requests: {}", classes.join(",\n  "));
    if settings.mix_assumed {
        out +=
            "\n  an assumption: give --mix or --random-input-len and --random-output-len for yours";
    }
    if let Some(warning) = mixes::warning(&settings.classes) {
        out += &format!("\n  {warning} (--mix)");
    }
    if !settings.form.ignore_eos {
        out += "\n  answers may end before their length (--ignore-eos goes on to it)";
    }
    out
}
