//! Ratios to haproxy that are kept, and what became worse since.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::report::{Report, Spread};

/// By shape and cell: CPU an event, Evenkeel's over haproxy's.
type Kept = BTreeMap<String, BTreeMap<String, Spread>>;

fn read(path: &Path) -> anyhow::Result<Kept> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

fn now(report: &Report) -> anyhow::Result<Kept> {
    let mut all = Kept::new();
    for row in &report.rows {
        let shape = serde_json::to_value(row.shape)?;
        let shape = shape.as_str().unwrap_or_default().to_owned();
        if let Some(ratio) = report.ratio(&row.cell, "evenkeel", "haproxy") {
            all.entry(shape)
                .or_default()
                .insert(row.cell.clone(), ratio);
        }
    }
    Ok(all)
}

/// Puts this run's ratios into the file.
pub fn save(report: &Report, path: &Path) -> anyhow::Result<()> {
    let mut kept = if path.exists() {
        read(path)?
    } else {
        Kept::new()
    };
    for (shape, cells) in now(report)? {
        kept.entry(shape).or_default().extend(cells);
    }
    fs::write(path, serde_json::to_string_pretty(&kept)? + "\n")?;
    Ok(())
}

/// Says which ratios are more than 10 % worse than in the file.
pub fn compare(report: &Report, path: &Path) -> anyhow::Result<()> {
    let kept = read(path)?;
    let (mut compared, mut worse) = (0, 0);
    for (shape, cells) in now(report)? {
        for (cell, ratio) in cells {
            let Some(was) = kept.get(&shape).and_then(|cells| cells.get(&cell)) else {
                continue;
            };
            compared += 1;
            if ratio.median > was.median * 1.1 {
                worse += 1;
                println!(
                    "worse: {cell} ({shape}): {:.2} of haproxy's CPU an event, was {:.2} ({:.2} to {:.2})",
                    ratio.median, was.median, was.least, was.greatest
                );
            }
        }
    }
    println!("{compared} ratios to haproxy compared, {worse} more than 10 % worse");
    Ok(())
}
