//! The proxy's records of a run, read back from its files and joined to the plan by request id.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::DemoError;
use crate::load::sample::Sample;
use crate::load::workload::PlannedRequest;
use crate::measure::outcome::Outcome;
use crate::measure::record::Record;
use crate::measure::record_files::record_files;

/// One request: as planned, as the client saw it, as the proxy recorded it.
#[derive(Debug, Clone)]
pub struct Joined {
    /// the plan
    pub planned: PlannedRequest,
    /// the client's view
    pub sample: Sample,
    /// the proxy's record, if it has one
    pub record: Option<Record>,
}

impl Joined {
    /// Whether the client did not get a whole answer, or the proxy says so.
    pub fn is_failed(&self) -> bool {
        let recorded_ok = self
            .record
            .as_ref()
            .is_some_and(|record| record.outcome.0 == Outcome::Ok);
        self.sample.failure.is_some() || !recorded_ok
    }

    /// A figure of the record.
    pub fn figure(&self, of: fn(&Record) -> Option<f64>) -> Option<f64> {
        self.record.as_ref().and_then(of)
    }
}

/// Reads every `records-*.jsonl` of a folder.
pub fn read_dir(dir: &Path) -> Result<Vec<Record>, DemoError> {
    let failed = |source| DemoError::File {
        path: dir.to_owned(),
        source,
    };
    let mut records = Vec::new();
    for path in record_files(dir).map_err(failed)? {
        read_file(&path, &mut records)?;
    }
    Ok(records)
}

fn read_file(path: &Path, records: &mut Vec<Record>) -> Result<(), DemoError> {
    let failed = |source| DemoError::File {
        path: path.to_owned(),
        source,
    };
    for line in BufReader::new(File::open(path).map_err(failed)?).lines() {
        let line = line.map_err(failed)?;
        let record = serde_json::from_str(&line);
        records.push(record.map_err(|source| DemoError::Record {
            path: path.to_owned(),
            source,
        })?);
    }
    Ok(())
}

/// Brings plan, samples and records together, in the samples' order. Records of other requests are
/// left out. `id_prefix` is what the plan's request ids begin with, before the index.
pub fn join(
    plan: &[PlannedRequest],
    samples: Vec<Sample>,
    records: Vec<Record>,
    id_prefix: &str,
) -> Vec<Joined> {
    let index_of = |id: &str| id.strip_prefix(id_prefix)?.parse::<u32>().ok();
    let mut by_index: HashMap<u32, Record> = records
        .into_iter()
        .filter_map(|record| Some((index_of(&record.request_id)?, record)))
        .collect();
    let joined = |sample: Sample| {
        let planned = plan.get(sample.index as usize)?.clone();
        Some(Joined {
            planned,
            record: by_index.remove(&sample.index),
            sample,
        })
    };
    samples.into_iter().filter_map(joined).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::measure::record::OutcomeName;

    fn planned(index: u32) -> PlannedRequest {
        PlannedRequest {
            index,
            at_ns: 0,
            class: 0,
            prompt_tokens: 1,
            output_tokens: 1,
            text_seed: 0,
            prefix: None,
        }
    }

    fn record(request_id: &str, outcome: Outcome) -> Record {
        Record {
            request_id: request_id.into(),
            outcome: OutcomeName(outcome),
            ..Record::default()
        }
    }

    #[test]
    fn requests_meet_their_records_by_id_and_one_without_a_record_counts_as_failed() {
        let plan = [planned(0), planned(1), planned(2)];
        let samples = plan
            .iter()
            .map(|request| Sample::planned(request, 1))
            .collect();
        let records = vec![
            record("run-2", Outcome::EngineError),
            record("run-0", Outcome::Ok),
            record("other-1", Outcome::Ok),
            record("run", Outcome::Ok),
        ];
        let joined = join(&plan, samples, records, "run-");
        let failed: Vec<bool> = joined.iter().map(Joined::is_failed).collect();
        assert_eq!(failed, [false, true, true]);
        assert!(joined[1].record.is_none());
    }
}
