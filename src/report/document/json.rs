//! The JSON file: what the first screen says, and every table by its name, with the numbers as they were measured. Pure.

use serde_json::{Map, Value, json};

use super::{Document, REPORT_VERSION};

impl Document {
    /// The whole file. Shares are of 1; what was not measured is null.
    pub fn json(&self) -> Result<Value, serde_json::Error> {
        let mut tables = Map::new();
        for table in self.tables() {
            tables.insert(table.id.clone(), serde_json::to_value(table)?);
        }
        let definitions: Map<String, Value> = self
            .definitions
            .iter()
            .map(|(word, meaning)| (word.clone(), json!(meaning)))
            .collect();
        Ok(json!({
            "schema": REPORT_VERSION,
            "evenkeel": env!("CARGO_PKG_VERSION"),
            "title": self.title,
            "made_from": self.made_from,
            "heads": self.heads,
            "warnings": self.warnings,
            "tables": tables,
            "definitions": definitions,
        }))
    }
}
