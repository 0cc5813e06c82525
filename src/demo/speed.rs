//! How fast each instance decodes against the others, from records with their chunk gaps. Pure.
//!
//! A request's mean TPOT is blurred by other requests' prefills, which share its steps: over 20 s its
//! ratio between instances wanders by 20 %. The lower quartile of a request's chunk gaps is a step
//! without a prefill, and the batch that such a step depends on is the number of requests that are
//! past their first token; with these two the ratio stays within a few per cent.

use crate::measure::record::Record;
use crate::measure::speed::{SpeedSample, speed_vs_fleet};
use crate::report::statistics::quantile;

/// Fewest gaps that a quartile is taken of.
const MIN_GAPS: usize = 3;
const STEP_QUANTILE: f64 = 0.25;

/// One factor an instance: its decode step over that of the others at equal batch and length. Absent
/// where too few requests share a range of load.
pub fn speeds(by_instance: &[Vec<&Record>]) -> Vec<Option<f64>> {
    let samples: Vec<Vec<SpeedSample>> =
        by_instance.iter().map(|records| samples(records)).collect();
    speed_vs_fleet(&samples.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

fn samples(records: &[&Record]) -> Vec<SpeedSample> {
    let spans: Vec<(f64, f64)> = records
        .iter()
        .filter_map(|record| decode_span_s(record))
        .collect();
    let decoding = Decoding::of(&spans);
    records
        .iter()
        .filter_map(|record| {
            Some(SpeedSample {
                batch: decoding.mean(decode_span_s(record)?)?,
                tpot_ms: step_ms(record)?,
                prompt_tokens: record.prompt_tokens?,
                output_tokens: record.output_tokens?,
            })
        })
        .collect()
}

/// From the first output chunk to the last, wall seconds.
fn decode_span_s(record: &Record) -> Option<(f64, f64)> {
    let first_s = record.start_s + record.client_ttft_ms? / 1e3;
    Some((
        first_s,
        first_s + (record.last_output_ms? - record.server_ttft_ms?) / 1e3,
    ))
}

/// The lower quartile of the gaps between output chunks.
fn step_ms(record: &Record) -> Option<f64> {
    let mut gaps_ms = record
        .chunk_gap_ms
        .clone()
        .filter(|gaps| gaps.len() >= MIN_GAPS)?;
    gaps_ms.sort_unstable_by(f64::total_cmp);
    quantile(&gaps_ms, STEP_QUANTILE)
}

/// How many requests of an instance were decoding, over time.
struct Decoding {
    /// time, integral up to it, requests from it on
    steps: Vec<(f64, f64, f64)>,
}

impl Decoding {
    fn of(spans_s: &[(f64, f64)]) -> Decoding {
        let mut changes: Vec<(f64, f64)> = spans_s
            .iter()
            .flat_map(|(from, to)| [(*from, 1.0), (*to, -1.0)])
            .collect();
        changes.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let (mut at_s, mut integral, mut requests) =
            (changes.first().map_or(0.0, |change| change.0), 0.0, 0.0);
        let step = |(time_s, change): (f64, f64)| {
            integral += requests * (time_s - at_s);
            (at_s, requests) = (time_s, requests + change);
            (time_s, integral, requests)
        };
        Decoding {
            steps: changes.into_iter().map(step).collect(),
        }
    }

    fn integral(&self, at_s: f64) -> f64 {
        match self
            .steps
            .partition_point(|step| step.0 <= at_s)
            .checked_sub(1)
        {
            None => 0.0,
            Some(index) => {
                let (time_s, integral, requests) = self.steps[index];
                integral + requests * (at_s - time_s)
            }
        }
    }

    /// Mean over a span; `None` if it has no length.
    fn mean(&self, (from_s, to_s): (f64, f64)) -> Option<f64> {
        (to_s > from_s).then(|| (self.integral(to_s) - self.integral(from_s)) / (to_s - from_s))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_is_the_mean_number_of_requests_decoding_meanwhile() {
        let decoding = Decoding::of(&[(0.0, 4.0), (2.0, 3.0), (3.0, 6.0)]);
        assert_eq!(decoding.mean((0.0, 4.0)), Some(1.5));
        assert_eq!(decoding.mean((2.0, 3.0)), Some(2.0));
        assert_eq!(decoding.mean((5.0, 5.0)), None);
    }

    #[test]
    fn a_request_with_few_gaps_says_nothing_of_speed() {
        let mut record = Record {
            chunk_gap_ms: Some(vec![10.0, 12.0]),
            ..Record::default()
        };
        assert_eq!(step_ms(&record), None);
        record.chunk_gap_ms = Some(vec![10.0, 55.0, 12.0, 11.0, 55.0]);
        assert_eq!(step_ms(&record), Some(11.0));
        record.chunk_gap_ms = None;
        assert_eq!(step_ms(&record), None);
    }
}
