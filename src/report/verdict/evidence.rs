//! A piece of evidence: what was measured, at which points, and what it is held against. Pure.

use serde::Serialize;

/// What a verdict rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evidence {
    /// what was measured
    pub what: String,
    /// how much
    pub value: f64,
    /// its unit; empty for a ratio
    pub unit: &'static str,
    /// what it is held against, such as `at least 0.9`
    pub threshold: String,
    /// at which points
    pub points: Vec<String>,
}

impl Evidence {
    /// A value held against a threshold.
    pub(super) fn new(
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        threshold: impl Into<String>,
        points: Vec<String>,
    ) -> Evidence {
        Evidence {
            what: what.into(),
            value,
            unit,
            threshold: threshold.into(),
            points,
        }
    }

    /// The same if there is a value.
    pub(super) fn some(
        what: impl Into<String>,
        value: Option<f64>,
        unit: &'static str,
        threshold: impl Into<String>,
        points: Vec<String>,
    ) -> Option<Evidence> {
        Some(Evidence::new(what, value?, unit, threshold, points))
    }
}

impl std::fmt::Display for Evidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = match self.value.abs() {
            small if small < 10.0 => 2,
            middle if middle < 100.0 => 1,
            _ => 0,
        };
        let unit = if self.unit.is_empty() { "" } else { " " };
        write!(
            f,
            "{}: {:.digits$}{unit}{} ({})",
            self.what, self.value, self.unit, self.threshold
        )
    }
}
