//! Which instance is slow: an instance's TPOT over the fleet's at equal running batch and length.
//!
//! Pure. A decode step costs `factor × (a + b × batch + c × length)`: the engine's fixed cost, what
//! each running request adds, and what the request's own context adds. `a, b, c` are common to the
//! pool and fitted by weighted least squares on relative residuals with Huber weights; an
//! instance's factor is the median of its measured over fitted TPOT. Both are repeated until they
//! settle. The form is linear in the batch because a step is, so it holds where a policy starves a
//! slow instance and loads barely overlap; a straight line in log batch would bend there.

use super::clock::Ns;

/// Requests of overlapping load an instance needs before a speed is said.
pub const LEAST_REQUESTS: usize = 100;
const ROUNDS: usize = 40;
const HUBER: f64 = 0.15;
/// Loads overlap within this factor of the others' range.
const REACH: f64 = 1.5;

/// Integral of a load over time, from which the mean between two moments follows.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoadIntegral {
    at_ns: Ns,
    load: f64,
    load_ns: f64,
}

impl LoadIntegral {
    /// No load, from `now_ns` on.
    pub fn new(now_ns: Ns) -> LoadIntegral {
        LoadIntegral {
            at_ns: now_ns,
            load: 0.0,
            load_ns: 0.0,
        }
    }

    /// From `now_ns` on the load is `load`. A moment before the last one counts as the last one.
    pub fn advance(&mut self, now_ns: Ns, load: f64) {
        self.load_ns = self.value_at(now_ns);
        self.at_ns = self.at_ns.max(now_ns);
        self.load = load;
    }

    /// The integral at `now_ns`, in load × ns. The mean over a span is the difference of its two
    /// ends over its length.
    pub fn value_at(&self, now_ns: Ns) -> f64 {
        self.load_ns + self.load * now_ns.saturating_sub(self.at_ns) as f64
    }
}

/// One request's decode, as input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpeedSample {
    /// mean requests outstanding on the instance during the request
    pub batch: f64,
    /// measured TPOT, ms
    pub tpot_ms: f64,
    /// prompt tokens
    pub prompt_tokens: u64,
    /// output tokens
    pub output_tokens: u64,
}

impl SpeedSample {
    /// 1, batch, and mean context during decode in thousands of tokens.
    fn terms(&self) -> [f64; 3] {
        let context = self.prompt_tokens as f64 + self.output_tokens as f64 / 2.0;
        [1.0, self.batch, context / 1000.0]
    }

    fn is_usable(&self) -> bool {
        self.tpot_ms > 0.0
            && self.tpot_ms.is_finite()
            && self.batch.is_finite()
            && self.batch >= 0.0
    }
}

/// The last samples of one instance, at most a fixed number.
#[derive(Debug, Clone)]
pub struct SampleRing {
    samples: Vec<SpeedSample>,
    next: usize,
    cap: usize,
}

impl SampleRing {
    /// An empty ring of `cap` samples (at least 1).
    pub fn new(cap: usize) -> SampleRing {
        SampleRing {
            samples: Vec::new(),
            next: 0,
            cap: cap.max(1),
        }
    }

    /// Adds a sample; the oldest goes when full.
    pub fn push(&mut self, sample: SpeedSample) {
        if self.samples.len() < self.cap {
            self.samples.push(sample);
            return;
        }
        self.samples[self.next] = sample;
        self.next = (self.next + 1) % self.cap;
    }

    /// The samples, in no order.
    pub fn samples(&self) -> &[SpeedSample] {
        &self.samples
    }
}

pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        return Some(values[middle]);
    }
    Some((values[middle - 1] + values[middle]) / 2.0)
}

fn dot(a: &[f64; 3], b: &[f64; 3]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Solves the symmetric 3 × 3 system by elimination; `None` if it is singular.
fn solve(mut m: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for pivot in 0..3 {
        let best = (pivot..3).max_by(|&i, &j| m[i][pivot].abs().total_cmp(&m[j][pivot].abs()))?;
        m.swap(pivot, best);
        if m[pivot][pivot].abs() < 1e-12 {
            return None;
        }
        let top = m[pivot];
        for (at, row) in m.iter_mut().enumerate().filter(|(at, _)| *at != pivot) {
            debug_assert_ne!(at, pivot);
            let by = row[pivot] / top[pivot];
            row.iter_mut()
                .zip(top)
                .for_each(|(value, above)| *value -= by * above);
        }
    }
    Some([m[0][3] / m[0][0], m[1][3] / m[1][1], m[2][3] / m[2][2]])
}

/// Huber's weight of a relative residual.
fn huber(residual: f64) -> f64 {
    let size = residual.abs();
    if size <= HUBER { 1.0 } else { HUBER / size }
}

/// One weighted step: costs that fit `tpot / factor`, given the last costs.
fn fit_costs(
    groups: &[Vec<SpeedSample>],
    factors: &[f64],
    last: Option<[f64; 3]>,
) -> Option<[f64; 3]> {
    let mut m = [[0.0; 4]; 3];
    for (samples, factor) in groups.iter().zip(factors) {
        // an instance weighs the same however many requests it got
        let share = 1.0 / samples.len().max(1) as f64;
        for sample in samples {
            let (terms, y) = (sample.terms(), sample.tpot_ms / factor);
            let fitted = last.map_or(y, |costs| dot(&costs, &terms)).max(y * 0.05);
            let weight = share * huber(y / fitted - 1.0) / (fitted * fitted);
            for row in 0..3 {
                (0..3).for_each(|column| m[row][column] += weight * terms[row] * terms[column]);
                m[row][3] += weight * terms[row] * y;
            }
        }
    }
    // a term that never varies gets no cost of its own, and does no harm
    (0..3).for_each(|row| m[row][row] *= 1.0 + 1e-6);
    solve(m)
}

fn factor_of(samples: &[SpeedSample], costs: &[f64; 3]) -> Option<f64> {
    let mut ratios: Vec<f64> = samples
        .iter()
        .map(|sample| sample.tpot_ms / dot(costs, &sample.terms()))
        .filter(|ratio| ratio.is_finite() && *ratio > 0.0)
        .collect();
    median(&mut ratios)
}

/// Factor of each group; a group without samples has none.
fn factors(groups: &[Vec<SpeedSample>]) -> Vec<Option<f64>> {
    let mut factors = vec![1.0; groups.len()];
    let mut costs = None;
    for _ in 0..ROUNDS {
        let Some(fitted) = fit_costs(groups, &factors, costs) else {
            return vec![None; groups.len()];
        };
        costs = Some(fitted);
        for (factor, samples) in factors.iter_mut().zip(groups) {
            *factor = factor_of(samples, &fitted).unwrap_or(1.0);
        }
        let scale = median(&mut factors.clone()).unwrap_or(1.0);
        factors.iter_mut().for_each(|factor| *factor /= scale);
    }
    factors
        .into_iter()
        .zip(groups)
        .map(|(factor, samples)| (!samples.is_empty()).then_some(factor))
        .collect()
}

/// Requests of group `at` whose batch the others' reach covers, and the others' number.
fn overlapping(groups: &[Vec<SpeedSample>], at: usize) -> (usize, usize) {
    let others = groups.iter().enumerate().filter(|(other, _)| *other != at);
    let mut batches: Vec<f64> = others
        .flat_map(|(_, group)| group.iter().map(|s| s.batch))
        .collect();
    batches.sort_unstable_by(f64::total_cmp);
    let trim = batches.len() / 100;
    let (Some(low), Some(high)) = (batches.get(trim), batches.iter().rev().nth(trim)) else {
        return (0, 0);
    };
    let covered = low / REACH..=high * REACH;
    let own = groups[at]
        .iter()
        .filter(|sample| covered.contains(&sample.batch))
        .count();
    (own, batches.len())
}

/// `speed_vs_fleet` of each instance: its TPOT over the median of the other instances' at equal
/// running batch and length. 1.6 is 1.6 times slower. Absent under [`LEAST_REQUESTS`] requests
/// of overlapping load on either side, and for an instance alone.
pub fn speed_vs_fleet(instances: &[&[SpeedSample]]) -> Vec<Option<f64>> {
    let groups: Vec<Vec<SpeedSample>> = instances
        .iter()
        .map(|samples| {
            samples
                .iter()
                .copied()
                .filter(SpeedSample::is_usable)
                .collect()
        })
        .collect();
    let factors = factors(&groups);
    (0..groups.len())
        .map(|at| {
            let (own, others) = overlapping(&groups, at);
            if own < LEAST_REQUESTS || others < LEAST_REQUESTS {
                return None;
            }
            let mut rest: Vec<f64> = factors
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != at)
                .filter_map(|(_, factor)| *factor)
                .collect();
            Some(factors[at]? / median(&mut rest)?)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    /// Requests on an instance of the given factor: a step costs 8 ms + 0.6 a running request +
    /// 0.15 a thousand tokens of KV over the whole batch, with 5 % noise a request.
    fn generate(
        rng: &mut StdRng,
        factor: f64,
        batches: std::ops::Range<f64>,
        n: usize,
    ) -> Vec<SpeedSample> {
        (0..n)
            .map(|_| {
                let batch = rng.random_range(batches.clone());
                let long = rng.random_range(0.0..1.0) < 0.2;
                let prompt_tokens = if long {
                    rng.random_range(2000..6000)
                } else {
                    rng.random_range(50..800)
                };
                let output_tokens = rng.random_range(20u64..300);
                let others: f64 = (1..batch as usize)
                    .map(|_| {
                        if rng.random_range(0.0..1.0) < 0.2 {
                            4000.0
                        } else {
                            425.0
                        }
                    })
                    .sum();
                let kv = others + prompt_tokens as f64 + output_tokens as f64 / 2.0;
                let noise = 1.0 + rng.random_range(-0.05..0.05);
                let tpot_ms = factor * (8.0 + 0.6 * batch + 0.15 * kv / 1000.0) * noise;
                SpeedSample {
                    batch,
                    tpot_ms,
                    prompt_tokens,
                    output_tokens,
                }
            })
            .collect()
    }

    fn check(slow: std::ops::Range<f64>, fast: std::ops::Range<f64>, slow_n: usize) {
        for seed in 0..8 {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut fleet = vec![generate(&mut rng, 1.6, slow.clone(), slow_n)];
            (0..3).for_each(|_| fleet.push(generate(&mut rng, 1.0, fast.clone(), 400)));
            let slices: Vec<&[SpeedSample]> = fleet.iter().map(Vec::as_slice).collect();
            let speeds = speed_vs_fleet(&slices);
            let found = speeds[0].unwrap();
            assert!(
                (found / 1.6 - 1.0).abs() < 0.1,
                "seed {seed}: 1.6 found as {found}"
            );
            for other in &speeds[1..] {
                let found = other.unwrap();
                assert!(
                    (found - 1.0).abs() < 0.1,
                    "seed {seed}: 1.0 found as {found}"
                );
            }
        }
    }

    #[test]
    fn a_slow_instance_is_found_at_equal_load() {
        check(2.0..24.0, 2.0..24.0, 400);
    }

    #[test]
    fn a_slow_instance_is_found_where_round_robin_piles_load_on_it() {
        check(8.0..40.0, 3.0..14.0, 400);
    }

    #[test]
    fn a_slow_instance_is_found_where_a_policy_starves_it() {
        check(1.0..6.0, 5.0..24.0, 300);
    }

    #[test]
    fn long_prompts_and_load_do_not_make_an_instance_slow() {
        let mut rng = StdRng::seed_from_u64(3);
        let mut fleet: Vec<Vec<SpeedSample>> = (0..3)
            .map(|_| generate(&mut rng, 1.0, 2.0..12.0, 300))
            .collect();
        let mut busy = generate(&mut rng, 1.0, 8.0..40.0, 500);
        for sample in &mut busy {
            sample.prompt_tokens += 4000;
            sample.tpot_ms += 0.6;
        }
        fleet.push(busy);
        let slices: Vec<&[SpeedSample]> = fleet.iter().map(Vec::as_slice).collect();
        let found = speed_vs_fleet(&slices)[3].unwrap();
        assert!((found - 1.0).abs() < 0.1, "{found}");
    }

    #[test]
    fn too_few_requests_or_no_common_load_give_no_speed() {
        let mut rng = StdRng::seed_from_u64(4);
        let few = generate(&mut rng, 1.0, 2.0..8.0, 99);
        let many = generate(&mut rng, 1.0, 2.0..8.0, 500);
        let apart = generate(&mut rng, 1.0, 30.0..40.0, 500);
        assert_eq!(speed_vs_fleet(&[&few, &many])[0], None);
        assert_eq!(speed_vs_fleet(&[&apart, &many]), vec![None, None]);
        assert_eq!(speed_vs_fleet(&[&many]), vec![None]);
        assert_eq!(speed_vs_fleet(&[&[], &[]]), vec![None, None]);
    }

    #[test]
    fn the_mean_of_a_span_is_the_difference_of_the_integral() {
        let mut load = LoadIntegral::new(100);
        let begin = load.value_at(100);
        load.advance(200, 3.0);
        load.advance(300, 1.0);
        assert_eq!((load.value_at(400) - begin) / 300.0, 400.0 / 300.0);
        load.advance(250, 2.0);
        assert_eq!(load.value_at(300), 300.0);
    }

    #[test]
    fn a_ring_keeps_the_last_samples() {
        let mut ring = SampleRing::new(2);
        for tpot in 1..=3 {
            ring.push(SpeedSample {
                batch: 1.0,
                tpot_ms: f64::from(tpot),
                prompt_tokens: 1,
                output_tokens: 2,
            });
        }
        let mut kept: Vec<f64> = ring.samples().iter().map(|s| s.tpot_ms).collect();
        kept.sort_by(f64::total_cmp);
        assert_eq!(kept, vec![2.0, 3.0]);
    }
}
