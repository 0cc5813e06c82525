//! Rows of rounds, and what they come to: medians, and ratios within a round.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::args::Shape;
use crate::syscalls::Calls;

/// One proxy in one round of one cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub shape: Shape,
    pub cell: String,
    /// the curve and the place on it
    pub on_curve: Option<(String, f64)>,
    pub round: usize,
    pub proxy: String,
    /// microseconds an event, the request's own cost included
    pub cpu_us: Option<f64>,
    /// the same while all streams are open and none begins or ends
    pub steady_cpu_us: Option<f64>,
    /// P50, P99, P99.9
    pub ttft_ms: [Option<f64>; 3],
    pub events_s: f64,
    /// events that the client got by one read
    pub events_a_read: f64,
    /// peak less idle
    pub kb_a_stream: Option<f64>,
    pub peak_kb: Option<f64>,
    pub failed: usize,
    /// share of the machine's time that its host gave to others
    pub stolen: f64,
}

/// Median, least and greatest.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub greatest: f64,
    pub rounds: usize,
}

impl Spread {
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut all: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        all.sort_by(f64::total_cmp);
        Some(Self {
            median: f64::midpoint(
                *all.get((all.len().checked_sub(1)?) / 2)?,
                all[all.len() / 2],
            ),
            least: *all.first()?,
            greatest: *all.last()?,
            rounds: all.len(),
        })
    }
}

/// All that was measured.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    pub rows: Vec<Row>,
    #[serde(default)]
    pub calls: Vec<Calls>,
}

/// One proxy in one cell over all rounds.
#[derive(Debug, Serialize)]
pub struct Line {
    pub cell: String,
    pub proxy: String,
    pub cpu_us: Option<Spread>,
    pub steady_cpu_us: Option<Spread>,
    /// P50, P99, P99.9: over direct in the same round; of direct itself as they are
    pub added_ttft_ms: [Option<Spread>; 3],
    pub events_s: Option<Spread>,
    pub events_a_read: Option<Spread>,
    pub kb_a_stream: Option<Spread>,
    pub failed: usize,
    pub calls: Option<Calls>,
}

impl Report {
    /// The rows of several runs, their rounds numbered on.
    pub fn read(paths: &[impl AsRef<Path>]) -> anyhow::Result<Self> {
        let mut all = Self::default();
        for path in paths {
            let path = path.as_ref();
            let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
            let mut one: Self =
                serde_json::from_str(&text).with_context(|| path.display().to_string())?;
            let past = all.rows.iter().map(|row| row.round).max().unwrap_or(0);
            one.rows.iter_mut().for_each(|row| row.round += past);
            all.rows.extend(one.rows);
            all.calls.extend(one.calls);
        }
        Ok(all)
    }

    /// Every row and the summary, as JSON.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let summary: Vec<Line> = self
            .cells()
            .iter()
            .flat_map(|cell| self.lines(cell))
            .collect();
        let whole =
            serde_json::json!({ "rows": self.rows, "calls": self.calls, "summary": summary });
        let text = serde_json::to_string_pretty(&whole)?;
        fs::write(path, text + "\n").with_context(|| path.display().to_string())
    }

    /// The cells, in the order in which they were run.
    pub fn cells(&self) -> Vec<String> {
        let rows = self.rows.iter().map(|row| &row.cell);
        let names = rows.chain(self.calls.iter().map(|calls| &calls.cell));
        in_order(names.cloned())
    }

    /// The summary of a cell, a line a proxy.
    pub fn lines(&self, cell: &str) -> Vec<Line> {
        let rows = self.rows.iter().filter(|row| row.cell == cell);
        let calls = self.calls.iter().filter(|calls| calls.cell == cell);
        let run: Vec<&String> = rows
            .map(|row| &row.proxy)
            .chain(calls.map(|calls| &calls.proxy))
            .collect();
        let order = std::iter::once("direct").chain(crate::peers::ALL.map(|(name, _)| name));
        order
            .filter(|name| run.iter().any(|proxy| proxy == name))
            .map(|proxy| self.line(cell, proxy))
            .collect()
    }

    fn line(&self, cell: &str, proxy: &str) -> Line {
        let rows = self.of(cell, proxy);
        let all = |value: &dyn Fn(&Row) -> Option<f64>| {
            Spread::of(rows.values().filter_map(|row| value(row)))
        };
        let direct = self.of(cell, "direct");
        let added = |q: usize| {
            all(&|row| {
                let without = match proxy {
                    "direct" => 0.0,
                    _ => direct.get(&row.round)?.ttft_ms[q]?,
                };
                Some(row.ttft_ms[q]? - without)
            })
        };
        let mut calls = self.calls.iter();
        Line {
            cell: cell.to_owned(),
            proxy: proxy.to_owned(),
            cpu_us: all(&|row| row.cpu_us),
            steady_cpu_us: all(&|row| row.steady_cpu_us),
            added_ttft_ms: [added(0), added(1), added(2)],
            events_s: all(&|row| Some(row.events_s)),
            events_a_read: all(&|row| Some(row.events_a_read)),
            kb_a_stream: all(&|row| row.kb_a_stream),
            failed: rows.values().map(|row| row.failed).sum(),
            calls: calls.rfind(|c| c.cell == cell && c.proxy == proxy).cloned(),
        }
    }

    /// CPU an event of one over another's in the same round.
    pub fn ratio(&self, cell: &str, one: &str, other: &str) -> Option<Spread> {
        let others = self.of(cell, other);
        let ones = self.of(cell, one);
        Spread::of(
            ones.iter()
                .filter_map(|(round, row)| Some(row.cpu_us? / others.get(round)?.cpu_us?)),
        )
    }

    /// The greatest share of time that was stolen in a row of the cell.
    pub fn stolen(&self, cell: &str) -> Option<Spread> {
        let rows = self.rows.iter().filter(|row| row.cell == cell);
        Spread::of(rows.map(|row| row.stolen))
    }

    /// A proxy's rows of a cell by round.
    fn of(&self, cell: &str, proxy: &str) -> BTreeMap<usize, &Row> {
        let rows = self.rows.iter();
        rows.filter(|row| row.cell == cell && row.proxy == proxy)
            .map(|row| (row.round, row))
            .collect()
    }
}

fn in_order(names: impl Iterator<Item = String>) -> Vec<String> {
    names.fold(Vec::new(), |mut seen, name| {
        if !seen.contains(&name) {
            seen.push(name);
        }
        seen
    })
}
