//! The fewest open requests for its weight.

use crate::shape::RequestShape;
use crate::view::{FleetView, least};
use crate::{Choice, Policy, PolicyRng};

/// The policy `least_requests`.
pub struct LeastRequests;

impl Policy for LeastRequests {
    fn name(&self) -> &'static str {
        "least_requests"
    }

    fn choose(
        &mut self,
        _: &RequestShape,
        fleet: &FleetView<'_>,
        rng: &mut PolicyRng,
    ) -> Option<Choice> {
        least(fleet, rng, |one| one.requests() / one.load.weight)
    }
}
