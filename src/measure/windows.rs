//! Counts of values in HdrHistogram's buckets, kept sparse, in total and over sliding windows.
//!
//! A full histogram from 1 µs to 1 h takes 13 kB; a latency touches some hundred of its 3,328
//! buckets, so only those touched are kept. Reading merges them into a real `Histogram`.

use std::collections::VecDeque;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::clock::Ns;

/// Length of a slice of the ring.
pub const SLICE_NS: u64 = 10_000_000_000;
/// Slices of the longest window.
const SLICES: u64 = 30;
/// Greatest value kept, 1 h.
pub const GREATEST_US: u32 = 3_600_000_000;
/// Buckets of one width at 2 significant digits.
const SUB_BUCKETS: u32 = 256;

/// Over which time figures are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// the last minute (the running slice of 10 s and the five before)
    OneMinute,
    /// the last five minutes
    FiveMinutes,
    /// since the start
    Total,
}

/// Least value of the bucket that holds `us`, as HdrHistogram cuts them at 2 digits.
pub fn bucket_floor_us(us: u32) -> u32 {
    let us = us.clamp(1, GREATEST_US);
    if us < SUB_BUCKETS {
        return us;
    }
    let shift = us.ilog2() - (SUB_BUCKETS.ilog2() - 1);
    us >> shift << shift
}

/// Width of the bucket whose least value is `floor_us`.
pub fn bucket_width_us(floor_us: u32) -> u64 {
    1 << (floor_us.max(1).ilog2() + 1).saturating_sub(SUB_BUCKETS.ilog2())
}

/// Values counted in buckets, in µs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// (least value of the bucket, times), sorted
    buckets: Vec<(u32, u32)>,
    count: u64,
    sum_us: u64,
    greatest_us: u32,
}

impl Counts {
    /// Counts `us`; 0 counts as 1, more than an hour as an hour.
    pub fn record(&mut self, us: u32) {
        self.record_n(us, 1);
    }

    /// Counts `us` so many times.
    pub fn record_n(&mut self, us: u32, times: u32) {
        let us = us.clamp(1, GREATEST_US);
        self.add_bucket(bucket_floor_us(us), times);
        self.count += u64::from(times);
        self.sum_us += u64::from(us) * u64::from(times);
        self.greatest_us = self.greatest_us.max(us);
    }

    fn add_bucket(&mut self, floor: u32, times: u32) {
        match self.buckets.binary_search_by_key(&floor, |bucket| bucket.0) {
            Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(times),
            Err(at) => self.buckets.insert(at, (floor, times)),
        }
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Counts) {
        for &(floor, times) in &other.buckets {
            self.add_bucket(floor, times);
        }
        self.count += other.count;
        self.sum_us += other.sum_us;
        self.greatest_us = self.greatest_us.max(other.greatest_us);
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their exact sum, µs.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// The exact greatest, µs; absent without a value.
    pub fn greatest_us(&self) -> Option<u32> {
        (self.count > 0).then_some(self.greatest_us)
    }

    /// Least value, in µs, of the bucket that holds a quantile (0 to 1), by the nearest rank.
    pub fn quantile_floor_us(&self, quantile: f64) -> Option<u32> {
        let rank = ((quantile * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        let mut floors = self.buckets.iter().map(|&(floor, times)| {
            seen += u64::from(times);
            (floor, seen)
        });
        floors
            .find(|&(_, seen)| seen >= rank)
            .map(|(floor, _)| floor)
    }

    /// Values of at most `edge_us`; a bucket counts whole, by its least value.
    pub fn at_most(&self, edge_us: u64) -> u64 {
        let within = self
            .buckets
            .iter()
            .take_while(|(floor, _)| u64::from(*floor) <= edge_us);
        within.map(|(_, times)| u64::from(*times)).sum()
    }

    /// The same counts as an HdrHistogram of 2 digits.
    pub fn histogram(&self) -> Option<Histogram<u32>> {
        let mut histogram = Histogram::new_with_bounds(1, u64::from(GREATEST_US), 2).ok()?;
        for &(floor, times) in &self.buckets {
            histogram.saturating_record_n(u64::from(floor), times);
        }
        Some(histogram)
    }

    /// Bytes held, roughly.
    pub fn bytes(&self) -> usize {
        std::mem::size_of::<Counts>() + self.buckets.capacity() * std::mem::size_of::<(u32, u32)>()
    }
}

/// A total, and a ring of slices for the windows.
#[derive(Debug, Clone, Default)]
pub struct Windowed {
    total: Counts,
    /// (number of the slice since the clock's start, its counts), oldest first
    slices: VecDeque<(u64, Counts)>,
}

impl Windowed {
    /// Counts `us` at `now_ns`.
    pub fn record(&mut self, us: u32, now_ns: Ns) {
        self.total.record(us);
        if let Some(counts) = self.slice(now_ns) {
            counts.record(us);
        }
    }

    /// Counts all of `counts` at `now_ns`.
    pub fn merge(&mut self, counts: &Counts, now_ns: Ns) {
        self.total.merge(counts);
        if let Some(slice) = self.slice(now_ns) {
            slice.merge(counts);
        }
    }

    /// The slice that `now_ns` falls into.
    fn slice(&mut self, now_ns: Ns) -> Option<&mut Counts> {
        let slice = now_ns / SLICE_NS;
        if self.slices.back().is_none_or(|(last, _)| *last < slice) {
            while self
                .slices
                .front()
                .is_some_and(|(old, _)| old + SLICES <= slice)
            {
                self.slices.pop_front();
            }
            self.slices.push_back((slice, Counts::default()));
        }
        self.slices.back_mut().map(|(_, counts)| counts)
    }

    /// Adds what falls into `window` to `into`.
    pub fn read(&self, window: Window, now_ns: Ns, into: &mut Counts) {
        let slices = match window {
            Window::Total => return into.merge(&self.total),
            Window::OneMinute => 6,
            Window::FiveMinutes => SLICES,
        };
        let now = now_ns / SLICE_NS;
        let recent = self.slices.iter().filter(|(slice, _)| slice + slices > now);
        recent.for_each(|(_, counts)| into.merge(counts));
    }

    /// Bytes held, roughly.
    pub fn bytes(&self) -> usize {
        self.total.bytes()
            + self
                .slices
                .iter()
                .map(|(_, counts)| counts.bytes() + 8)
                .sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn buckets_are_those_of_hdrhistogram(us in 1u32..GREATEST_US) {
            let histogram = Histogram::<u32>::new_with_bounds(1, u64::from(GREATEST_US), 2).unwrap();
            prop_assert_eq!(u64::from(bucket_floor_us(us)), histogram.lowest_equivalent(u64::from(us)));
        }

        #[test]
        fn quantiles_are_within_one_percent(
            values in prop::collection::vec(1u32..100_000_000, 1..500), quantile in 0.01f64..1.0,
        ) {
            let mut counts = Counts::default();
            values.iter().for_each(|&us| counts.record(us));
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let rank = (quantile * sorted.len() as f64).ceil() as usize;
            let truth = f64::from(sorted[rank.clamp(1, sorted.len()) - 1]);
            let found = counts.histogram().unwrap().value_at_quantile(quantile) as f64;
            prop_assert!((found - truth).abs() <= 0.01 * truth, "{} for {}", found, truth);
        }
    }

    #[test]
    fn windows_forget_and_the_total_does_not() {
        let mut windowed = Windowed::default();
        let second = 1_000_000_000u64;
        for at in 0..400u64 {
            windowed.record(1000, at * second);
        }
        let read = |window| {
            let mut counts = Counts::default();
            windowed.read(window, 399 * second, &mut counts);
            counts.count()
        };
        assert_eq!(read(Window::OneMinute), 60);
        assert_eq!(read(Window::FiveMinutes), 300);
        assert_eq!(read(Window::Total), 400);
        let mut later = Counts::default();
        windowed.read(Window::FiveMinutes, 5000 * second, &mut later);
        assert_eq!(later.count(), 0);
    }

    #[test]
    fn values_out_of_range_are_kept_at_its_ends() {
        let mut counts = Counts::default();
        counts.record(0);
        counts.record(u32::MAX);
        assert_eq!(
            (counts.count(), counts.greatest_us()),
            (2, Some(GREATEST_US))
        );
        assert_eq!(counts.at_most(1), 1);
    }
}
