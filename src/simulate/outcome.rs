//! What a simulated run saw of each request, in virtual nanoseconds from the start of the run.

/// One request of a simulated run.
#[derive(Debug, Clone, PartialEq)]
pub struct SimRequest {
    /// position in the plan
    pub index: u32,
    /// class in the workload
    pub class: u16,
    /// when it came
    pub arrived_ns: u64,
    /// when it was sent to an instance
    pub sent_ns: Option<u64>,
    /// the instance
    pub instance: Option<u32>,
    /// requests open there before it
    pub outstanding_requests: Option<u32>,
    /// first output token
    pub first_ns: Option<u64>,
    /// last output token
    pub last_ns: Option<u64>,
    /// prompt tokens
    pub prompt_tokens: u32,
    /// output tokens made
    pub output_tokens: u32,
    /// refused by the scheduler or by the instance
    pub refused: bool,
}

impl SimRequest {
    /// Arrival → first output token, milliseconds: the client's TTFT on a network without delay.
    pub fn client_ttft_ms(&self) -> Option<f64> {
        Some((self.first_ns? - self.arrived_ns) as f64 / 1e6)
    }

    /// Sent to the instance → first output token, milliseconds.
    pub fn server_ttft_ms(&self) -> Option<f64> {
        Some((self.first_ns? - self.sent_ns?) as f64 / 1e6)
    }

    /// (last − first output token) / (tokens − 1), milliseconds; absent for fewer than two tokens.
    pub fn tpot_ms(&self) -> Option<f64> {
        if self.output_tokens < 2 {
            return None;
        }
        Some((self.last_ns? - self.first_ns?) as f64 / 1e6 / f64::from(self.output_tokens - 1))
    }
}

/// A simulated run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SimResult {
    /// one a request of the plan, in its order
    pub requests: Vec<SimRequest>,
    /// share of the run's time in which each instance was computing, 0 to 1
    pub busy: Vec<f64>,
    /// when the last token left, or the last request came
    pub end_ns: u64,
}
