//! A request of a simulated run: as the fleet saw it, and as its client did.

use super::generator::Turn;
use super::outcome::SimRequest;
use crate::load::sample::{Failure, Sample};
use crate::load::workload::PlannedRequest;

/// Who sent it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sender {
    /// number of the flow
    pub(super) flow: usize,
    /// its place there, for a closed loop
    pub(super) place: u32,
}

/// A request that was issued.
pub(super) struct Job {
    pub(super) sender: Sender,
    pub(super) fleet: SimRequest,
    pub(super) client: Sample,
}

impl Job {
    pub(super) fn issued(
        request: &PlannedRequest,
        sender: Sender,
        planned_ns: u64,
        turn: &Turn,
    ) -> Job {
        let mut client = Sample::planned(request, planned_ns);
        client.issued_ns = Some(turn.begin_ns);
        client.sent_ns = Some(turn.end_ns);
        Job {
            sender,
            fleet: SimRequest {
                index: request.index,
                class: request.class,
                arrived_ns: turn.end_ns,
                sent_ns: None,
                instance: None,
                outstanding_requests: None,
                first_ns: None,
                last_ns: None,
                prompt_tokens: request.prompt_tokens,
                output_tokens: 0,
                refused: false,
            },
            client,
        }
    }

    pub(super) fn see_chunk(&mut self, read_ns: u64) {
        let client = &mut self.client;
        match client.last_output_ns {
            None => {
                client.status = Some(200);
                client.head_ns = Some(read_ns);
                client.first_output_ns = Some(read_ns);
            }
            Some(last_ns) => client.gaps_us.push(((read_ns - last_ns) / 1000) as u32),
        }
        client.last_output_ns = Some(read_ns);
        client.output_chunks += 1;
    }

    pub(super) fn see_end(&mut self, read_ns: u64) {
        self.client.end_ns = read_ns;
        self.client.prompt_tokens = Some(u64::from(self.fleet.prompt_tokens));
        self.client.output_tokens = Some(u64::from(self.fleet.output_tokens));
    }

    pub(super) fn see_refusal(&mut self, read_ns: u64, failure: Failure, status: u16) {
        self.fleet.refused = true;
        self.client.failure = Some(failure);
        self.client.status = Some(status);
        self.client.head_ns = Some(read_ns);
        self.client.end_ns = read_ns;
    }
}
