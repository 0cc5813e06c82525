//! Tables for a terminal: at most 100 columns, units in the headers, "-" where nothing was measured.

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

/// Widest line of a table, in columns of the terminal.
pub const WIDTH_COLUMNS: u16 = 100;

/// One line under the headers; rows are kept apart by their order alone.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// What stands where a figure was not measured.
pub const MISSING: &str = "-";

/// A table of text cells: the first column to the left, all others to the right.
#[derive(Debug, Clone, Default)]
pub struct TextTable {
    headers: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table with these headers; a line break in a header is kept.
    pub fn new<S: Into<String>>(headers: impl IntoIterator<Item = S>) -> TextTable {
        TextTable {
            headers: headers.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells at its end show as "-".
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<String> = cells.into_iter().collect();
        cells.resize(self.headers.len(), MISSING.to_owned());
        self.rows.push(cells);
    }

    /// Adds a line that keeps groups of rows apart.
    pub fn gap(&mut self) {
        self.rows.push(vec![String::new(); self.headers.len()]);
    }

    /// The lines of the table.
    pub fn render(&self) -> String {
        let mut table = Table::new();
        table
            .load_style(STYLE)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(WIDTH_COLUMNS)
            .set_header(self.headers.iter().enumerate().map(cell));
        for row in &self.rows {
            table.add_row(row.iter().enumerate().map(cell));
        }
        let lines = table.to_string();
        lines
            .lines()
            .map(str::trim_end)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

fn cell((column, text): (usize, &String)) -> Cell {
    let side = if column == 0 {
        CellAlignment::Left
    } else {
        CellAlignment::Right
    };
    Cell::new(text).set_alignment(side)
}

/// A duration already in milliseconds: three figures that mean something.
pub fn ms(value_ms: Option<f64>) -> String {
    number(value_ms)
}

/// A number with three figures, thousands apart; "-" if missing or not finite.
pub fn number(value: Option<f64>) -> String {
    match value.filter(|value| value.is_finite()) {
        None => MISSING.to_owned(),
        Some(value) if value.abs() >= 99.95 => count(value.round() as i64),
        Some(value) if value.abs() >= 9.995 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// A share from 0 to 1 as per cent.
pub fn percent(share: Option<f64>) -> String {
    share.filter(|share| share.is_finite()).map_or_else(
        || MISSING.to_owned(),
        |share| format!("{:.1}", share * 100.0),
    )
}

/// A whole number with thousands apart.
pub fn count(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if value < 0 {
        out.push('-');
    }
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_places_and_missing_is_a_dash() {
        let shown = |value| number(Some(value));
        assert_eq!(
            [shown(0.1234), shown(12.34), shown(123.4), shown(12345.6)],
            ["0.12", "12.3", "123", "12,346"]
        );
        assert_eq!(
            [number(None), ms(Some(f64::NAN)), percent(None)],
            ["-", "-", "-"]
        );
        assert_eq!(
            [percent(Some(0.257)), count(-1_234_567), count(0)],
            ["25.7", "-1,234,567", "0"]
        );
    }

    #[test]
    fn a_wide_table_stays_within_the_width() {
        let mut table =
            TextTable::new((0..9).map(|column| format!("a header of\ncolumn {column} (ms)")));
        table.row((0..9).map(|column| format!("{column}23,456")));
        let lines = table.render();
        let widest = lines
            .lines()
            .map(|line| line.chars().count())
            .max()
            .unwrap();
        assert!(widest <= usize::from(WIDTH_COLUMNS), "{widest}\n{lines}");
        assert!(lines.contains("823,456"), "cells are not cut:\n{lines}");
    }

    #[test]
    fn a_short_row_is_filled_with_dashes() {
        let mut table = TextTable::new(["name", "value"]);
        table.row(["a".to_owned()]);
        assert!(
            table
                .render()
                .lines()
                .any(|line| line.contains('a') && line.trim_end().ends_with('-'))
        );
    }
}
