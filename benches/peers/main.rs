//! Evenkeel beside other proxies and a bare copy of bytes, in one run, on one machine. `run` installs the others.

mod args;
mod cells;
mod client;
mod cores;
mod engine;
mod peers;
mod process;
mod ratios;
mod report;
mod rounds;
mod splice;
mod syscalls;
mod table;

use anyhow::{Context as _, bail, ensure};
use clap::Parser as _;

use args::{Args, Shape};
use cells::Cell;
use report::Report;

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let descriptors = rlimit::increase_nofile_limit(u64::MAX)?;
    if let Some(addr) = args.splice {
        return splice::run(addr, args.to);
    }
    let report = if args.show.is_empty() {
        measure(&args, descriptors)?
    } else {
        Report::read(&args.show)?
    };
    table::print(&report);
    if let Some(path) = &args.json {
        report.write(path)?;
    }
    if let Some(path) = &args.against {
        ratios::compare(&report, path)?;
    }
    if let Some(path) = &args.save_ratios {
        ratios::save(&report, path)?;
    }
    Ok(())
}

fn measure(args: &Args, descriptors: u64) -> anyhow::Result<Report> {
    let known: Vec<&str> = peers::ALL.iter().map(|(name, _)| *name).collect();
    for name in &args.only {
        let all = known.join(", ");
        ensure!(
            known.contains(&name.as_str()),
            "no proxy is called {name}; there are {all}"
        );
    }
    let mut only = args.only.clone();
    if args.curves.is_some() && only.is_empty() {
        only = vec!["haproxy".to_owned(), "evenkeel".to_owned()];
    }
    for name in known {
        if only.is_empty() || only.iter().any(|only| only == name) {
            peers::check(name)?;
        }
    }
    if args.shape == Shape::PerCore {
        cores::hold_load()?;
    }
    let mut report = Report::default();
    for cell in chosen(args, descriptors)? {
        rounds::run(&cell, args, &only, descriptors, &mut report)
            .with_context(|| cell.name.clone())?;
    }
    Ok(report)
}

/// The cells, or the points of curves, that are asked for.
fn chosen(args: &Args, descriptors: u64) -> anyhow::Result<Vec<Cell>> {
    if let Some(names) = &args.curves {
        let all = cells::CURVES.join(", ");
        for name in names {
            ensure!(
                cells::CURVES.contains(&name.as_str()),
                "no curve is called {name}; there are {all}"
            );
        }
        let wanted = |curve: &&str| names.is_empty() || names.iter().any(|name| name == curve);
        return Ok(cells::CURVES
            .into_iter()
            .filter(wanted)
            .flat_map(cells::curve)
            .collect());
    }
    let all = cells::all(descriptors);
    if args.cells.is_empty() {
        return Ok(all
            .into_iter()
            .filter(|(_, usual)| *usual)
            .map(|(cell, _)| cell)
            .collect());
    }
    let mut chosen = Vec::new();
    for name in &args.cells {
        let Some((cell, _)) = all.iter().find(|(cell, _)| cell.name == *name) else {
            let names: Vec<&str> = all.iter().map(|(cell, _)| cell.name.as_str()).collect();
            bail!("no cell is called {name}; there are {}", names.join(", "));
        };
        chosen.push(cell.clone());
    }
    Ok(chosen)
}
