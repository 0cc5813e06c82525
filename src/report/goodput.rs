//! Goodput: requests that met every objective, out of all that were sent. Pure.

use serde::Serialize;

use super::latency::Figure;
use crate::load::sample::Sample;

/// An objective: a figure and the most it may be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Objective {
    /// TTFT, TPOT or E2E
    pub figure: Figure,
    /// milliseconds
    pub limit_ms: f64,
}

impl Objective {
    /// Reads `ttft:500`, as `vllm bench serve` takes it.
    pub fn parse(text: &str) -> Result<Objective, String> {
        let right = "write ttft:MS, tpot:MS or e2el:MS, such as ttft:500";
        let Some((name, limit)) = text.split_once(':') else {
            return Err(format!("`{text}` has no colon: {right}"));
        };
        let known = [Figure::Ttft, Figure::Tpot, Figure::E2el];
        let Some(figure) = known.into_iter().find(|figure| figure.key() == name) else {
            return Err(format!("`{name}` is no objective: {right}"));
        };
        match limit.parse::<f64>() {
            Ok(limit_ms) if limit_ms.is_finite() && limit_ms >= 0.0 => {
                Ok(Objective { figure, limit_ms })
            }
            _ => Err(format!("`{limit}` is no number of milliseconds: {right}")),
        }
    }
}

/// How many requests were good.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Goodput {
    /// what was asked of a request
    pub objectives: Vec<Objective>,
    /// requests that met all of it
    pub good: u64,
    /// requests it was asked of: all that count, failed ones included
    pub of: u64,
    /// complete answers of one token: they have no TPOT and are judged by the rest
    pub without_tpot: u64,
}

impl Goodput {
    /// Judges a set of requests; `None` without objectives.
    pub fn of(objectives: &[Objective], samples: &[&Sample]) -> Option<Goodput> {
        if objectives.is_empty() {
            return None;
        }
        let asks_tpot = objectives
            .iter()
            .any(|objective| objective.figure == Figure::Tpot);
        let without_tpot = |sample: &&&Sample| {
            asks_tpot && sample.failure.is_none() && Figure::Tpot.of(sample).is_none()
        };
        Some(Goodput {
            objectives: objectives.to_vec(),
            good: samples
                .iter()
                .filter(|sample| is_good(objectives, sample))
                .count() as u64,
            of: samples.len() as u64,
            without_tpot: samples.iter().filter(without_tpot).count() as u64,
        })
    }

    /// Share of good requests; absent if there was none to judge.
    pub fn share(&self) -> Option<f64> {
        (self.of > 0).then(|| self.good as f64 / self.of as f64)
    }
}

/// Whether a request met all of it; a failed one never did.
pub fn is_good(objectives: &[Objective], sample: &Sample) -> bool {
    sample.failure.is_none()
        && objectives
            .iter()
            .all(|objective| match objective.figure.of(sample) {
                Some(value_ms) => value_ms <= objective.limit_ms,
                // Only a one-token answer lacks a TPOT; an answer without output met no TTFT.
                None => objective.figure == Figure::Tpot && sample.first_output_ns.is_some(),
            })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::load::sample::Failure;
    use crate::report::sample_of;

    #[test]
    fn failures_stay_in_the_denominator() {
        let objectives = [
            Objective::parse("ttft:150").unwrap(),
            Objective::parse("tpot:25").unwrap(),
        ];
        let good = sample_of(0, 1_000, 150, &[20, 30], 0);
        let late = sample_of(1, 1_000, 151, &[20, 20], 0);
        let slow = sample_of(2, 1_000, 100, &[20, 40], 0);
        let one_token = sample_of(3, 1_000, 100, &[], 0);
        let mut failed = sample_of(4, 1_000, 1, &[1], 0);
        failed.failure = Some(Failure::Cut);
        let mut empty = sample_of(5, 1_000, 1, &[], 0);
        empty.first_output_ns = None;
        empty.last_output_ns = None;
        let all = [&good, &late, &slow, &one_token, &failed, &empty];
        let goodput = Goodput::of(&objectives, &all).unwrap();
        assert_eq!((goodput.good, goodput.of), (2, 6));
        assert_eq!(goodput.without_tpot, 2);
        assert_eq!(Goodput::of(&[], &all), None);
        assert_eq!(Goodput::of(&objectives, &[]).unwrap().share(), None);
    }

    #[test]
    fn an_objective_that_is_none_is_explained() {
        for (text, word) in [
            ("ttft", "no colon"),
            ("itl:3", "`itl`"),
            ("tpot:-1", "`-1`"),
            ("e2el:x", "`x`"),
        ] {
            let said = Objective::parse(text).unwrap_err();
            assert!(said.contains(word) && said.contains("ttft:MS"), "{said}");
        }
    }
}
