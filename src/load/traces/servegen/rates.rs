//! ServeGen's rates: six columns without a header, a row a window of time.
//!
//! Start (s), requests per second, CV of the gaps, family of the gaps' distribution, and its two
//! parameters (shape and scale). Where nothing came, the family is empty.

use std::io::BufRead;
use std::sync::Arc;

use crate::load::arrivals::{SHAPE_LEAST, SHAPE_MOST};
use crate::load::traces::lines::Lines;
use crate::load::traces::{ROWS_MAX, TraceError, UnusedRows, columns, numbers};

use super::start_ns;

const COLUMNS: usize = 6;
/// A single window is taken to last so long: ServeGen's usual step.
const USUAL_WINDOW_NS: u64 = 600_000_000_000;

/// Least shape of a Weibull distribution: below it the gaps that make up the mean never come.
const WEIBULL_SHAPE_LEAST: f64 = 0.1;

/// Shape of the gaps between requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Family {
    /// gamma distribution of this shape
    Gamma(f64),
    /// Weibull distribution of this shape
    Weibull(f64),
}

/// What came in a window of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateWindow {
    /// when it begins
    pub start_ns: u64,
    /// requests per second
    pub rate_per_s: f64,
    /// coefficient of variation of the gaps, as it was measured
    pub gap_cv: f64,
    /// what was fitted to the gaps
    pub family: Family,
}

/// A client's rates over time.
#[derive(Debug, Clone, PartialEq)]
pub struct RateWindows {
    /// name of the file
    pub name: Arc<str>,
    /// windows in which something came, in order of time
    pub windows: Vec<RateWindow>,
    /// how long each lasts
    pub window_ns: u64,
    /// end of the last window, one in which nothing came included
    pub end_ns: u64,
    /// rows with data
    pub rows: u64,
    /// rows of windows in which nothing came
    pub idle: u64,
    /// rows that could not be read
    pub malformed: UnusedRows,
}

impl RateWindows {
    /// Whether a file that begins with this line is one of rates.
    pub(in crate::load::traces) fn begins(line: &str) -> bool {
        columns::split(line, COLUMNS).is_ok_and(|fields| fields[0].parse::<f64>().is_ok())
    }

    /// Reads the first line and all that are left.
    pub(in crate::load::traces) fn read<R: BufRead>(
        name: &str,
        first: (u64, &str),
        lines: &mut Lines<'_, R>,
    ) -> Result<RateWindows, TraceError> {
        let mut rates = RateWindows {
            name: name.into(),
            windows: Vec::new(),
            window_ns: USUAL_WINDOW_NS,
            end_ns: 0,
            rows: 0,
            idle: 0,
            malformed: UnusedRows::default(),
        };
        let mut starts = Starts::default();
        rates.take(first.0, Ok(first.1), &mut starts)?;
        while let Some(line) = lines.next_filled()? {
            rates.take(line.number, line.text, &mut starts)?;
        }
        rates.finish(&starts)
    }

    fn take(
        &mut self,
        line: u64,
        text: Result<&str, String>,
        starts: &mut Starts,
    ) -> Result<(), TraceError> {
        if self.rows == ROWS_MAX {
            return Err(TraceError::TooManyRows(self.name.to_string()));
        }
        self.rows += 1;
        match text.and_then(|text| window(text, starts)) {
            Ok(Some(window)) => self.windows.push(window),
            Ok(None) => self.idle += 1,
            Err(why) => self.malformed.add(&self.name, line, why),
        }
        Ok(())
    }

    fn finish(mut self, starts: &Starts) -> Result<RateWindows, TraceError> {
        if self.windows.is_empty() {
            return Err(TraceError::NoUsableRow {
                name: self.name.to_string(),
                rows: self.rows,
                malformed: self.malformed,
                left_out: UnusedRows::default(),
            });
        }
        self.window_ns = starts.least_step_ns.unwrap_or(USUAL_WINDOW_NS);
        self.end_ns = starts.last_ns.unwrap_or(0) + self.window_ns;
        Ok(self)
    }

    /// Requests that come on average from one time to another.
    pub fn expected_requests(&self, from_ns: u64, until_ns: u64) -> f64 {
        let windows = self.windows.iter();
        let of = |window: &RateWindow| {
            let end_ns = (window.start_ns + self.window_ns).min(until_ns);
            let inside_ns = end_ns.saturating_sub(window.start_ns.max(from_ns));
            window.rate_per_s * inside_ns as f64 / 1e9
        };
        windows.map(of).sum()
    }
}

/// The starts of the windows seen so far.
#[derive(Default)]
struct Starts {
    last_ns: Option<u64>,
    least_step_ns: Option<u64>,
}

impl Starts {
    fn add(&mut self, start_ns: u64) -> Result<(), String> {
        if let Some(last_ns) = self.last_ns {
            if start_ns <= last_ns {
                return Err(format!(
                    "start is {} s: windows are wanted in order of time, and one before it starts at {} s",
                    start_ns as f64 / 1e9,
                    last_ns as f64 / 1e9
                ));
            }
            let step_ns = start_ns - last_ns;
            self.least_step_ns = Some(
                self.least_step_ns
                    .map_or(step_ns, |least| least.min(step_ns)),
            );
        }
        self.last_ns = Some(start_ns);
        Ok(())
    }
}

/// A row's window; `None` if nothing came in it.
fn window(line: &str, starts: &mut Starts) -> Result<Option<RateWindow>, String> {
    let fields = columns::split(line, COLUMNS)?;
    let start_ns = start_ns("start", fields[0])?;
    let rate_per_s = numbers::not_negative("rate", fields[1])?;
    let gap_cv = numbers::not_negative("CV", fields[2])?;
    let shape = |least: f64| match numbers::not_negative("shape", fields[4])? {
        shape if (least..=SHAPE_MOST).contains(&shape) => Ok(shape),
        _ => Err(format!(
            "shape is {:?}: a number from {least} to {SHAPE_MOST} is wanted",
            numbers::shown(fields[4])
        )),
    };
    let family = match fields[3] {
        "Gamma" => Some(Family::Gamma(shape(SHAPE_LEAST)?)),
        "Weibull" => Some(Family::Weibull(shape(WEIBULL_SHAPE_LEAST)?)),
        "" if rate_per_s == 0.0 => None,
        found => {
            return Err(format!(
                "family is {:?}: Gamma or Weibull is wanted, or none at a rate of 0",
                numbers::shown(found)
            ));
        }
    };
    starts.add(start_ns)?;
    let window = family
        .filter(|_| rate_per_s > 0.0)
        .map(|family| RateWindow {
            start_ns,
            rate_per_s,
            gap_cv,
            family,
        });
    Ok(window)
}
