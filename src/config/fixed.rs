//! What cannot change while the server runs. A reload that would change it is refused, with the place in the file:
//! taking the rest would leave a file that does not say what runs.

use toml::de::DeTable;

use super::checked::Config;
use super::error::{Fault, Report};
use super::place::{Step, span_of, steps};

/// A key, and whether it is the same in two configurations.
type Fixed = (&'static str, fn(&Config, &Config) -> bool);

const FIXED: [Fixed; 7] = [
    ("server.listen", |a, b| a.server.listen == b.server.listen),
    ("server.workers", |a, b| {
        a.server.workers == b.server.workers
    }),
    ("server.runtime", |a, b| {
        a.server.runtime == b.server.runtime
    }),
    ("admin.listen", |a, b| a.admin.listen == b.admin.listen),
    ("measure.arrival", |a, b| {
        a.measure.arrival == b.measure.arrival
    }),
    ("records", |a, b| a.records == b.records),
    ("log.access", |a, b| a.log.access == b.log.access),
];

/// Whether a running server can take `wanted`; `name` stands for its file.
pub fn check(running: &Config, wanted: &Config, name: &str) -> Result<(), Report> {
    let changed = FIXED.iter().filter(|(_, same)| !same(running, wanted));
    let faults: Vec<Fault> = changed
        .filter_map(|(key, _)| fault(key, running, wanted))
        .collect();
    if faults.is_empty() {
        return Ok(());
    }
    Err(Report {
        name: name.to_owned(),
        text: wanted.source.clone(),
        faults,
    })
}

/// A key that is in neither file has another default now, which is nobody's wish.
fn fault(key: &str, running: &Config, wanted: &Config) -> Option<Fault> {
    let path = steps(key);
    if !is_written(&running.source, &path) && !is_written(&wanted.source, &path) {
        return None;
    }
    let (document, _) = DeTable::parse_recoverable(&wanted.source);
    Some(Fault {
        span: span_of(&document, &path),
        message: format!("`{key}` cannot change while the server runs"),
        quotes: true,
        label: "this is not what runs".into(),
        help: Some("put it back, or restart; nothing of this file was taken".into()),
    })
}

fn is_written(text: &str, path: &[Step<'_>]) -> bool {
    let (document, _) = DeTable::parse_recoverable(text);
    super::place::value_at(&document, path).is_some()
}
