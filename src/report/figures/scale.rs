//! From values to places on an axis, and the ticks that a reader finds on it. Pure.

use crate::report::terminal::count;

/// Most ticks of an axis that is not told which.
const MOST_TICKS: f64 = 6.0;
/// Steps between the ticks of a low panel.
const FEW_TICKS: f64 = 3.0;

/// How values lie on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// equal steps for equal differences
    Linear,
    /// equal steps for equal ratios; values above 0 only
    Log,
}

/// An axis: values `low` to `high` onto `from` to `to`.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    kind: Kind,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// A scale on which all values have a place, widened to whole ticks where it is linear. Values that are not finite,
    /// and those a logarithm does not have, are left out; without any value it runs from 0 to 1 (log: 1 to 10).
    pub fn over(values: impl IntoIterator<Item = f64>, kind: Kind, from_zero: bool) -> Scale {
        let fit = |value: &f64| value.is_finite() && (kind == Kind::Linear || *value > 0.0);
        let (mut low, mut high) = values
            .into_iter()
            .filter(fit)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        if low > high {
            (low, high) = if kind == Kind::Log {
                (1.0, 10.0)
            } else {
                (0.0, 1.0)
            };
        }
        let (low, high) = match kind {
            Kind::Linear => linear_ends(low, high, from_zero),
            Kind::Log => log_ends(low, high),
        };
        Scale {
            kind,
            low,
            high,
            from: 0.0,
            to: 1.0,
        }
    }

    /// The same from `low` to `high` exactly.
    pub fn exact(low: f64, high: f64) -> Scale {
        Scale {
            kind: Kind::Linear,
            low,
            high: if high > low { high } else { low + 1.0 },
            from: 0.0,
            to: 1.0,
        }
    }

    /// The same onto these places.
    pub fn onto(mut self, from: f64, to: f64) -> Scale {
        (self.from, self.to) = (from, to);
        self
    }

    /// Ends of the axis.
    pub fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Place of a value; `None` for one that has none.
    pub fn place(&self, value: f64) -> Option<f64> {
        let share = match self.kind {
            Kind::Linear => (value - self.low) / (self.high - self.low),
            Kind::Log if value > 0.0 => (value / self.low).ln() / (self.high / self.low).ln(),
            Kind::Log => return None,
        };
        let place = self.from + share * (self.to - self.from);
        place.is_finite().then_some(place)
    }

    /// Ticks at round values.
    pub fn ticks(&self) -> Vec<f64> {
        match self.kind {
            Kind::Linear => self.linear_ticks(MOST_TICKS),
            Kind::Log => log_ticks(self.low, self.high),
        }
    }

    /// At most four of them, for a low panel.
    pub fn few_ticks(&self) -> Vec<f64> {
        if self.kind == Kind::Linear {
            return self.linear_ticks(FEW_TICKS);
        }
        let ticks = log_ticks(self.low, self.high);
        let every = ticks.len().div_ceil(FEW_TICKS as usize + 1).max(1);
        ticks.into_iter().step_by(every).collect()
    }

    fn linear_ticks(&self, most: f64) -> Vec<f64> {
        let step = round_step((self.high - self.low) / most);
        multiples(self.low, self.high, step)
    }

    /// Ticks at given values, without those whose label would come closer than `apart` to another's.
    pub fn ticks_at(&self, values: &[f64], apart: f64) -> Vec<f64> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.dedup();
        let mut kept: Vec<(f64, f64)> = Vec::new();
        for value in sorted {
            let Some(place) = self.place(value) else {
                continue;
            };
            let roomy = kept
                .last()
                .is_none_or(|(_, last)| (place - last).abs() >= apart);
            if roomy {
                kept.push((value, place));
            }
        }
        kept.into_iter().map(|(value, _)| value).collect()
    }
}

fn linear_ends(low: f64, high: f64, from_zero: bool) -> (f64, f64) {
    let low = if from_zero { low.min(0.0) } else { low };
    // One value has no length: give it room.
    let high = if high > low {
        high
    } else {
        low + low.abs().max(1.0)
    };
    let step = round_step((high - low) / MOST_TICKS);
    (
        (low / step).floor() * step,
        (high / step - 1e-9).ceil() * step,
    )
}

fn log_ends(low: f64, high: f64) -> (f64, f64) {
    if high > low {
        let room = (high / low).powf(0.04);
        (low / room, high * room)
    } else {
        (low / 2.0, high * 2.0)
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|step| step * power >= least * (1.0 - 1e-9));
    step.unwrap_or(10.0) * power
}

fn multiples(low: f64, high: f64, step: f64) -> Vec<f64> {
    let first = (low / step - 1e-9).ceil();
    let last = (high / step + 1e-9).floor();
    (0..=(last - first).max(0.0) as u32)
        .map(|nth| (first + f64::from(nth)) * step)
        .collect()
}

fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = (high / low).log10();
    let within: &[f64] = match decades {
        decades if decades <= 1.5 => &[1.0, 2.0, 5.0],
        decades if decades <= 3.0 => &[1.0, 3.0],
        _ => &[1.0],
    };
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    (first..=last)
        .flat_map(|power| within.iter().map(move |step| step * 10_f64.powi(power)))
        .filter(|tick| (low..=high).contains(tick))
        .collect()
}

/// A tick's label: as few digits as tell it.
pub fn label(value: f64) -> String {
    let size = value.abs();
    if size >= 1000.0 {
        count(value.round() as i64)
    } else {
        let text = format!("{value:.3}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        if text == "-0" {
            "0".to_owned()
        } else {
            text.to_owned()
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_are_round_and_enclose_the_values() {
        let scale = Scale::over([3.0, 97.0], Kind::Linear, true).onto(0.0, 100.0);
        assert_eq!(scale.ends(), (0.0, 100.0));
        assert_eq!(scale.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(scale.place(50.0), Some(50.0));
    }

    #[test]
    fn log_ticks_lie_within_the_axis_and_zero_has_no_place() {
        let scale = Scale::over([0.0, 16.0, 2048.0], Kind::Log, false).onto(0.0, 1.0);
        let ticks = scale.ticks();
        assert_eq!(ticks, [30.0, 100.0, 300.0, 1000.0]);
        assert_eq!(scale.place(0.0), None);
        assert!(scale.place(16.0).unwrap() >= 0.0 && scale.place(2048.0).unwrap() <= 1.0);
    }

    #[test]
    fn an_axis_with_one_value_or_none_has_a_length() {
        for values in [vec![], vec![5.0], vec![0.0], vec![f64::NAN], vec![-3.0]] {
            for kind in [Kind::Linear, Kind::Log] {
                let scale = Scale::over(values.clone(), kind, false);
                let (low, high) = scale.ends();
                assert!(low < high, "{values:?} {kind:?}");
                assert!(scale.ticks().len() < 20);
            }
        }
    }

    #[test]
    fn labels_that_would_touch_are_left_out() {
        let scale = Scale::over([1.0, 100.0], Kind::Linear, true).onto(0.0, 100.0);
        assert_eq!(scale.ticks_at(&[1.0, 2.0, 4.0, 100.0], 10.0), [1.0, 100.0]);
    }

    #[test]
    fn labels_are_short() {
        let labels: Vec<String> = [0.0, 0.25, 16.0, 12_000.0, -0.0001].map(label).into();
        assert_eq!(labels, ["0", "0.25", "16", "12,000", "0"]);
    }
}
