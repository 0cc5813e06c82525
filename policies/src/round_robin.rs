//! Each instance in turn, in proportion to weight: nginx's smooth weighted round robin.

use crate::event::InstanceId;
use crate::shape::RequestShape;
use crate::view::FleetView;
use crate::{Choice, Policy, PolicyRng};

/// The policy `round_robin`.
#[derive(Default)]
pub struct RoundRobin {
    /// credit of the instance at each place; a newcomer at a place starts at 0
    credits: Vec<(InstanceId, f64)>,
}

impl Policy for RoundRobin {
    fn name(&self) -> &'static str {
        "round_robin"
    }

    fn choose(
        &mut self,
        _: &RequestShape,
        fleet: &FleetView<'_>,
        _: &mut PolicyRng,
    ) -> Option<Choice> {
        self.credits
            .resize(fleet.instances(), (InstanceId(u32::MAX), 0.0));
        let mut total = 0.0;
        let mut best: Option<(f64, usize)> = None;
        for one in fleet.candidates() {
            let credit = &mut self.credits[one.index];
            if credit.0 != one.id {
                *credit = (one.id, 0.0);
            }
            credit.1 += one.load.weight;
            total += one.load.weight;
            if best.is_none_or(|(highest, _)| credit.1 > highest) {
                best = Some((credit.1, one.index));
            }
        }
        let (_, index) = best?;
        self.credits[index].1 -= total;
        Some(Choice { index })
    }
}
