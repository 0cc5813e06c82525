//! A table of a report: what the page shows and what the JSON file holds are these same cells. Pure.

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

use crate::report::terminal::{count, number};

/// What stands where nothing was measured.
pub const NOT_MEASURED: &str = "not measured";

/// A unit, and what a value is multiplied by where it is shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unit {
    /// as it is written
    pub name: &'static str,
    /// 100 for a share that is shown in per cent, else 1
    pub times: f64,
}

impl Unit {
    /// A number of something that the column names.
    pub const NONE: Unit = Unit::named("");
    /// milliseconds
    pub const MS: Unit = Unit::named("ms");
    /// seconds
    pub const S: Unit = Unit::named("s");
    /// a share of 1, shown in per cent
    pub const SHARE: Unit = Unit {
        name: "%",
        times: 100.0,
    };
    /// requests a second
    pub const REQ_PER_S: Unit = Unit::named("req/s");
    /// tokens a second
    pub const TOK_PER_S: Unit = Unit::named("tok/s");

    /// A unit that is shown as it is kept.
    pub const fn named(name: &'static str) -> Unit {
        Unit { name, times: 1.0 }
    }
}

/// A column.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Column {
    /// its key in the rows of the JSON file
    pub key: &'static str,
    /// over the column
    pub name: String,
    /// unit as it is shown; values of `%` are shares of 1 in the JSON file
    #[serde(serialize_with = "unit_name")]
    pub unit: Unit,
    /// what it is
    pub definition: &'static str,
}

fn unit_name<S: Serializer>(unit: &Unit, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(unit.name)
}

impl Column {
    /// A column.
    pub fn new(
        key: &'static str,
        name: impl Into<String>,
        unit: Unit,
        definition: &'static str,
    ) -> Column {
        Column {
            key,
            name: name.into(),
            unit,
            definition,
        }
    }

    /// A column of words, or of counts: without a unit.
    pub fn plain(key: &'static str, name: &str, definition: &'static str) -> Column {
        Column::new(key, name, Unit::NONE, definition)
    }
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// not measured: null in the JSON file
    Missing,
    /// a measured value
    Number(f64),
    /// a whole number
    Count(u64),
    /// words
    Text(String),
}

impl Cell {
    /// As the page shows it.
    pub fn shown(&self, unit: Unit) -> String {
        match self {
            Cell::Missing => NOT_MEASURED.to_owned(),
            Cell::Number(value) => number(Some(value * unit.times)),
            Cell::Count(value) => count(i64::try_from(*value).unwrap_or(i64::MAX)),
            Cell::Text(text) => text.clone(),
        }
    }
}

impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Cell {
        match value {
            Some(value) if value.is_finite() => Cell::Number(value),
            _ => Cell::Missing,
        }
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Cell {
        Cell::from(Some(value))
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Cell {
        Cell::Count(value)
    }
}

impl From<Option<u64>> for Cell {
    fn from(value: Option<u64>) -> Cell {
        value.map_or(Cell::Missing, Cell::Count)
    }
}

impl From<u32> for Cell {
    fn from(value: u32) -> Cell {
        Cell::Count(u64::from(value))
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

/// A row, and what it is about.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// one a column
    pub cells: Vec<Cell>,
    /// instances of its point: the page can leave rows out by it
    pub instances: Option<u32>,
    /// place on the page that tells more of it
    pub link: Option<String>,
}

/// A table.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// names it on the page and in the JSON file
    pub id: String,
    /// over it
    pub title: String,
    /// from left to right
    pub columns: Vec<Column>,
    /// from top to bottom
    pub rows: Vec<Row>,
    /// a sentence under it
    pub note: Option<String>,
}

impl Table {
    /// A table without rows.
    pub fn new(id: impl Into<String>, title: impl Into<String>, columns: Vec<Column>) -> Table {
        Table {
            id: id.into(),
            title: title.into(),
            columns,
            rows: Vec::new(),
            note: None,
        }
    }

    /// Adds a row of cells; those that lack at its end were not measured.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) -> &mut Row {
        let mut cells: Vec<Cell> = cells.into_iter().collect();
        cells.resize(self.columns.len(), Cell::Missing);
        self.rows.push(Row {
            cells,
            instances: None,
            link: None,
        });
        let last = self.rows.len() - 1;
        &mut self.rows[last]
    }

    /// The same with a sentence under it.
    pub fn noted(mut self, note: impl Into<String>) -> Table {
        self.note = Some(note.into());
        self
    }
}

impl Row {
    /// Says what point it is about.
    pub fn about(&mut self, instances: u32, link: Option<String>) {
        self.instances = Some(instances);
        self.link = link;
    }
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("title", &self.title)?;
        map.serialize_entry("columns", &self.columns)?;
        map.serialize_entry("rows", &Rows(self))?;
        map.serialize_entry("note", &self.note)?;
        map.end()
    }
}

struct Rows<'a>(&'a Table);

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut rows = serializer.serialize_seq(Some(self.0.rows.len()))?;
        for row in &self.0.rows {
            rows.serialize_element(&Cells(&self.0.columns, &row.cells))?;
        }
        rows.end()
    }
}

struct Cells<'a>(&'a [Column], &'a [Cell]);

impl Serialize for Cells<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (column, cell) in self.0.iter().zip(self.1) {
            map.serialize_entry(column.key, cell)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_null_and_said_in_words() {
        let columns = vec![
            Column::new("load", "load", Unit::NONE, "what is sent"),
            Column::new("ok", "success", Unit::SHARE, "complete of sent"),
            Column::new("ttft_p50_ms", "TTFT P50", Unit::MS, "half are below"),
        ];
        let mut table = Table::new("t", "T", columns);
        table.row([Cell::from("c16"), Cell::from(0.5)]);
        table.row([Cell::from("c32"), Cell::from(f64::NAN), Cell::from(12.0)]);
        let json = serde_json::to_value(&table).unwrap_or_default();
        let expected = serde_json::json!([
            {"load": "c16", "ok": 0.5, "ttft_p50_ms": null},
            {"load": "c32", "ok": null, "ttft_p50_ms": 12.0}
        ]);
        assert_eq!(json["rows"], expected);
        let shown: Vec<String> = table.rows[0]
            .cells
            .iter()
            .zip(&table.columns)
            .map(|(cell, column)| cell.shown(column.unit))
            .collect();
        assert_eq!(shown, ["c16", "50.0", "not measured"]);
    }
}
