//! The fewest outstanding tokens for its weight: (prompt tokens to prefill + predicted output left) / weight.
//!
//! Both kinds count the same, though engines prefill far faster than they decode: the plain
//! definition is the baseline that others are measured by.

use crate::shape::RequestShape;
use crate::view::{FleetView, least};
use crate::{Choice, Policy, PolicyRng};

/// The policy `least_outstanding_tokens`.
pub struct LeastOutstandingTokens;

impl Policy for LeastOutstandingTokens {
    fn name(&self) -> &'static str {
        "least_outstanding_tokens"
    }

    fn choose(
        &mut self,
        _: &RequestShape,
        fleet: &FleetView<'_>,
        rng: &mut PolicyRng,
    ) -> Option<Choice> {
        least(fleet, rng, |one| one.outstanding_tokens() / one.load.weight)
    }
}
