//! Any instance, in proportion to weight.

use rand::RngExt;

use crate::shape::RequestShape;
use crate::view::FleetView;
use crate::{Choice, Policy, PolicyRng};

/// The policy `random`.
pub struct Random;

impl Policy for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    fn choose(
        &mut self,
        _: &RequestShape,
        fleet: &FleetView<'_>,
        rng: &mut PolicyRng,
    ) -> Option<Choice> {
        let total: f64 = fleet.candidates().map(|one| one.load.weight).sum();
        let mut left = rng.random::<f64>() * total;
        let mut last = None;
        for one in fleet.candidates() {
            last = Some(Choice { index: one.index });
            left -= one.load.weight;
            if left < 0.0 {
                break;
            }
        }
        last
    }
}
