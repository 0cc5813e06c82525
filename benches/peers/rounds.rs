//! The rounds of a cell: every proxy in turn, each a fresh process.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use evenkeel::load::cpu::MachineTicks;

use crate::args::{Args, Shape};
use crate::cells::Cell;
use crate::client::{self, Loaded};
use crate::peers::{self, Site};
use crate::process::Proxy;
use crate::report::{Report, Row};
use crate::{engine, syscalls};

/// Runs a cell's rounds, then counts system calls.
pub fn run(
    cell: &Cell,
    args: &Args,
    only: &[String],
    descriptors: u64,
    report: &mut Report,
) -> anyhow::Result<()> {
    let upstreams = engine::start(cell)?;
    let wanted: Vec<_> = peers::ALL
        .into_iter()
        .filter(|(name, _)| only.is_empty() || only.iter().any(|only| only == name))
        .collect();
    let dir = tempfile::tempdir()?;
    let site =
        |dir: &Path, upstreams: &[SocketAddr], run: &mut dyn FnMut(&Site) -> anyhow::Result<()>| {
            fs::create_dir_all(dir)?;
            let done = run(&Site {
                dir,
                upstreams,
                cell,
                shape: args.shape,
                descriptors,
            });
            let _ = fs::remove_dir_all(dir);
            done
        };
    // another one begins each time, so that no proxy always follows the same
    let chance = std::time::UNIX_EPOCH.elapsed()?.as_secs() as usize;
    for round in 1..=args.rounds {
        let before = MachineTicks::now();
        let loaded = client::run(upstreams[0], cell, || 0.0)?;
        report.rows.push(row(
            args.shape, cell, round, "direct", &loaded, before, None,
        ));
        for turn in 0..wanted.len() {
            let (name, prepare) = wanted[(turn + round + chance) % wanted.len()];
            eprintln!("{} round {round}: {name}", cell.name);
            site(&dir.path().join("proxy"), &upstreams, &mut |site| {
                let proxy = peers::start(name, prepare, site)?;
                let idle_kb = proxy.status_kb("VmRSS");
                let (before, before_us) = (MachineTicks::now(), proxy.cpu_us());
                let loaded = client::run(proxy.addr, cell, || proxy.cpu_us())?;
                let us = proxy.cpu_us() - before_us;
                let cost = Some((us, idle_kb, &proxy));
                report
                    .rows
                    .push(row(args.shape, cell, round, name, &loaded, before, cost));
                Ok(())
            })?;
        }
    }
    if args.no_calls || cell.on_curve.is_some() {
        return Ok(());
    }
    for (name, prepare) in wanted {
        eprintln!("{} system calls: {name}", cell.name);
        site(&dir.path().join("traced"), &upstreams, &mut |site| {
            let proxy = peers::start(name, prepare, site)?;
            match syscalls::count((args.shape, name), cell, &proxy, site.dir) {
                Ok(calls) => report.calls.push(calls),
                Err(error) => eprintln!("system calls of {name} are not counted: {error}"),
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn row(
    shape: Shape,
    cell: &Cell,
    round: usize,
    name: &str,
    loaded: &Loaded,
    before: Option<MachineTicks>,
    cost: Option<(f64, f64, &Proxy)>,
) -> Row {
    let events = loaded.events.max(1) as f64;
    let peak_kb = cost.map(|(_, _, proxy)| proxy.status_kb("VmHWM"));
    Row {
        shape,
        cell: cell.name.clone(),
        on_curve: cell.on_curve.map(|(curve, x)| (curve.to_owned(), x)),
        round,
        proxy: name.to_owned(),
        cpu_us: cost.map(|(us, ..)| us / events),
        steady_cpu_us: cost.and(loaded.steady),
        ttft_ms: [0.5, 0.99, 0.999].map(|q| loaded.ttft_quantile_ms(q)),
        events_s: events / loaded.wall.as_secs_f64(),
        events_a_read: events / loaded.reads.max(1) as f64,
        kb_a_stream: cost
            .and_then(|(_, idle_kb, _)| Some((peak_kb? - idle_kb) / cell.streams as f64)),
        peak_kb,
        failed: loaded.failed,
        stolen: MachineTicks::now()
            .zip(before)
            .and_then(|(now, before)| now.stolen_share(before))
            .unwrap_or(0.0),
    }
}
