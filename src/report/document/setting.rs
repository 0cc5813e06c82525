//! The section of what was set and what was counted: plan, machine, versions, seeds, windows, problems. Pure.

use super::identity::Identity;
use super::table::{Cell, Column, Table, Unit};
use super::told::ToldStudy;
use super::{Part, Section};
use crate::report::steadiness::Steadiness;

/// Malformed lines and missing files that are named; the rest is counted.
const NAMED_PROBLEMS: usize = 40;

/// The section.
pub fn section(studies: &[ToldStudy], identity: &Identity) -> Section {
    let mut parts = vec![
        Part::Table(studies_table(studies)),
        Part::Table(counts_table(studies, identity)),
    ];
    for study in studies {
        if !study.problems.is_empty() {
            parts.push(Part::Heading(format!(
                "What could not be read of {}",
                study.label
            )));
            parts.push(Part::List(problems(study)));
        }
        parts.push(Part::Heading(format!("The plan of {}", study.label)));
        parts.push(match &study.plan {
            Some(plan) => Part::Verbatim(plan.clone()),
            None => Part::Text("plan.toml cannot be read.".into()),
        });
    }
    Section {
        id: "setting".into(),
        short: "Setting",
        title: "What was set, kept and cut".into(),
        parts,
    }
}

fn problems(study: &ToldStudy) -> Vec<String> {
    let mut lines: Vec<String> = study
        .problems
        .iter()
        .take(NAMED_PROBLEMS)
        .map(ToString::to_string)
        .collect();
    let more = study.problems.len().saturating_sub(NAMED_PROBLEMS);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

fn studies_table(studies: &[ToldStudy]) -> Table {
    let columns = vec![
        Column::plain("study", "study", "what the plan calls itself"),
        Column::plain("version", "Evenkeel", "version that measured"),
        Column::plain(
            "kind",
            "engines",
            "servers, or models of engines on a virtual clock",
        ),
        Column::plain("seed", "seed", "of arrivals, lengths and texts"),
        Column::plain("objectives", "service level", "what a good request is"),
        Column::new(
            "attainment",
            "asked for",
            Unit::SHARE,
            "share of requests that must meet it",
        ),
        Column::plain(
            "gpu_hour_price",
            "a GPU for an hour",
            "price, where the plan names one",
        ),
        Column::plain(
            "system",
            "system",
            "operating system and architecture of the machine that sent the load",
        ),
        Column::plain("cores", "cores", "cores it could use"),
        Column::plain("processor", "processor", "what it calls itself"),
        Column::new("memory", "memory", Unit::named("GiB"), "of that machine"),
        Column::plain(
            "plan_sha256",
            "SHA-256 of the plan",
            "a sweep resumes only the plan it began",
        ),
    ];
    let mut table = Table::new("studies", "Studies", columns);
    for study in studies {
        let file = &study.file;
        let kind = if file.simulated {
            "simulated"
        } else {
            "servers"
        };
        let price = file.gpu_hour_price.as_ref();
        table.row([
            Cell::from(study.label.clone()),
            file.version.clone().into(),
            kind.into(),
            file.seed.to_string().into(),
            if file.objectives.is_empty() {
                "none".into()
            } else {
                file.objectives.join(" ").into()
            },
            file.attainment.into(),
            price.map_or(Cell::Missing, |price| {
                format!("{} {}", price.amount, price.currency).into()
            }),
            file.machine.system.clone().into(),
            file.machine.cores.into(),
            file.machine
                .processor
                .clone()
                .map_or(Cell::Missing, Cell::from),
            file.machine
                .memory_bytes
                .map(|bytes| bytes as f64 / f64::from(1 << 30))
                .into(),
            file.plan_sha256.clone().into(),
        ]);
    }
    table
}

fn counts_table(studies: &[ToldStudy], identity: &Identity) -> Table {
    let columns = vec![
        Column::plain("counted", "kept", "requests that count"),
        Column::plain(
            "warm_up",
            "warm-up",
            "requests issued in the warm-up, left out",
        ),
        Column::plain("cut", "cut", "requests cut at the ends by issue time"),
        Column::new(
            "window_s",
            "window",
            Unit::S,
            "time that throughput is taken over",
        ),
        Column::plain(
            "steady",
            "steady",
            "whether TTFT, E2E and throughput had no trend in the window (Mann-Kendall)",
        ),
        Column::new(
            "lag_p99_ms",
            "schedule lag P99",
            Unit::MS,
            "how late requests were issued; a closed loop has no schedule",
        ),
        Column::new(
            "generator_cpu_share",
            "generator CPU",
            Unit::SHARE,
            "share of one core that its thread used",
        ),
        Column::plain(
            "generator",
            "generator",
            "`ok`, or what held it back: then the figures are its own",
        ),
        Column::new(
            "stolen_share",
            "stolen",
            Unit::SHARE,
            "share of the machine's CPU time that its host took",
        ),
        Column::plain(
            "problems",
            "problems",
            "files and lines that are missing or could not be read",
        ),
    ];
    let mut table = identity.table("counts", "Kept and cut, steadiness, generator", columns);
    for study in studies {
        for point in &study.points {
            let view = &point.view;
            let generator = view.generator;
            let held_back = generator.map(|generator| match generator.bottleneck {
                Some(bottleneck) => format!("held back: {bottleneck:?}").to_lowercase(),
                None => "ok".to_owned(),
            });
            let cells = [
                Cell::from(view.kept.counted),
                view.kept.warm_up.into(),
                view.kept.cut.into(),
                view.throughput.map(|work| work.counted.seconds).into(),
                steady(&view.steadiness).into(),
                generator
                    .and_then(|generator| generator.lag)
                    .map(|lag| lag.p99_ms)
                    .into(),
                generator.and_then(|generator| generator.cpu_share).into(),
                held_back.map_or(Cell::Missing, Cell::from),
                generator
                    .and_then(|generator| generator.stolen_share)
                    .into(),
                view.problems.into(),
            ];
            identity.row(&mut table, study, point, cells);
        }
    }
    table
}

/// Steady, or what was not, in words.
fn steady(steadiness: &Steadiness) -> String {
    match steadiness {
        Steadiness::Steady(_) => "yes".into(),
        Steadiness::TooFew => "too few requests".into(),
        Steadiness::Trending(trends) => {
            let words: Vec<String> = trends
                .iter()
                .filter(|trend| trend.matters())
                .map(|trend| format!("{} {:+.0} %", trend.figure, trend.change * 100.0))
                .collect();
            format!("no: {}", words.join(", "))
        }
    }
}
