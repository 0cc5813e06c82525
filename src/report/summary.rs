//! A report in some lines for a terminal. Pure.

use super::document::table::Table;
use super::document::{Document, Head};
use super::terminal::TextTable;

/// Columns of the table of what each fleet carries, as a terminal has room for them.
const CAPACITY: [(&str, &str); 6] = [
    ("instances", "instances"),
    ("gpus_per_instance", "GPUs\neach"),
    ("largest_load", "largest load\nwithin SLO"),
    ("output_tokens_per_s", "output\ntok/s"),
    ("attainment_share", "within\nSLO %"),
    ("overload_load", "overload\nfrom"),
];
/// The same of throughput and the tail of every point.
const WORK: [(&str, &str); 5] = [
    ("point", "point"),
    ("output_tokens_per_s", "output\ntok/s"),
    ("attainment_share", "within\nSLO %"),
    ("success_share", "success\n%"),
    ("failures", "failures"),
];
/// Most tables of what fleets carry.
const MOST_TABLES: usize = 3;
/// Most rows of a table.
const MOST_ROWS: usize = 30;

/// The verdict, the key table, warnings.
pub fn of(document: &Document) -> String {
    let mut parts = vec![document.title.clone()];
    parts.extend(document.heads.iter().map(head));
    let tables = document.tables();
    let capacities: Vec<&&Table> = tables
        .iter()
        .filter(|table| table.id.starts_with("capacity-"))
        .collect();
    if capacities.is_empty() {
        let work = tables.iter().find(|table| table.id == "work");
        parts.extend(work.map(|table| text(table, &WORK)));
    }
    let shown = capacities.iter().take(MOST_TABLES);
    parts.extend(shown.map(|table| text(table, &CAPACITY)));
    let more = capacities.len().saturating_sub(MOST_TABLES);
    if more > 0 {
        parts.push(format!("{more} more such tables are on the page."));
    }
    if !document.warnings.is_empty() {
        let lines = document
            .warnings
            .iter()
            .map(|warning| format!("! {warning}"));
        parts.push(lines.collect::<Vec<_>>().join("\n"));
    }
    parts.join("\n\n")
}

fn head(head: &Head) -> String {
    let mut lines = Vec::new();
    lines.extend(head.study.clone());
    lines.push(head.sentence.clone());
    for figure in &head.figures {
        lines.push(format!("  {}: {}", figure.name, figure.shown));
    }
    lines.extend(head.next.as_ref().map(|next| format!("Next: {next}")));
    lines.join("\n")
}

fn text(table: &Table, columns: &[(&str, &str)]) -> String {
    let mut shown = TextTable::new(columns.iter().map(|(_, name)| *name));
    let places: Vec<usize> = columns
        .iter()
        .filter_map(|(key, _)| table.columns.iter().position(|column| column.key == *key))
        .collect();
    for row in table.rows.iter().take(MOST_ROWS) {
        shown.row(
            places
                .iter()
                .map(|at| row.cells[*at].shown(table.columns[*at].unit)),
        );
    }
    let more = table.rows.len().saturating_sub(MOST_ROWS);
    let rest = if more > 0 {
        format!("\n{more} more rows are on the page")
    } else {
        String::new()
    };
    format!("{}\n{}{rest}", table.title, shown.render())
}
