//! What goes into the scheduler and what comes out: ids, grants, actions, and the log of both.

use serde::{Deserialize, Serialize};

use crate::config::PolicyConfig;
use crate::load::{EngineGauges, InstanceState};
use crate::shape::RequestShape;

/// An instance, by a number its owner chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InstanceId(pub u32);

/// A request that arrives, by a number its owner chooses; unique among those that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ticket(pub u64);

/// A place on an instance. Its slot is used again, its generation is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseId {
    /// place in the slab
    pub slot: u32,
    /// number of the grant
    pub generation: u64,
}

/// What came of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// whether the answer was complete and free of errors
    pub ok: bool,
    /// prompt tokens as the engine counted them
    pub prompt_tokens: Option<u64>,
    /// output tokens as the engine counted them
    pub output_tokens: Option<u64>,
    /// time to the first output chunk
    pub server_ttft_ns: Option<u64>,
    /// time to the last output chunk
    pub end_ns: Option<u64>,
}

/// A request was given an instance and counted there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// the request
    pub ticket: Ticket,
    /// its place, to be given to `finish` once
    pub lease: LeaseId,
    /// where it goes
    pub instance: InstanceId,
    /// its lane
    pub lane: Option<usize>,
    /// it shows whether an instance that was taken out answers again
    pub probe: bool,
    /// requests open there before this one
    pub outstanding_requests: u32,
    /// tokens outstanding there before this one
    pub outstanding_tokens: u64,
    /// uncached prompt tokens counted
    pub predicted_prefill_tokens: u32,
    /// output tokens counted
    pub predicted_output_tokens: u32,
    /// time it waited in the queue
    pub waited_ns: u64,
}

/// Why a request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShedReason {
    /// as many wait as may
    QueueFull,
    /// bodies that wait hold as many bytes as they may
    QueueBytes,
    /// it waited as long as it may
    QueueWait,
    /// no instance is up
    NoInstance,
}

/// A request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shed {
    /// why
    pub reason: ShedReason,
    /// when it may be worth another try
    pub retry_after_s: u32,
}

/// Answer to an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// send it now
    Send(Grant),
    /// it waits; an [`Action`] will name its ticket
    Queued {
        /// the lane it waits in
        lane: usize,
    },
    /// not taken
    Shed(Shed),
}

/// What happened to a request that waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// send it now
    Grant(Grant),
    /// not taken
    Shed {
        /// the request
        ticket: Ticket,
        /// why
        reason: ShedReason,
        /// when it may be worth another try
        retry_after_s: u32,
    },
}

/// One call of the scheduler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[allow(missing_docs)] // fields are the arguments of the methods of the same name
pub enum Input {
    AddInstance {
        id: InstanceId,
        weight: f64,
    },
    RemoveInstance {
        id: InstanceId,
    },
    SetState {
        id: InstanceId,
        state: InstanceState,
    },
    SetWeight {
        id: InstanceId,
        weight: f64,
    },
    SlowStart {
        id: InstanceId,
        length_ns: u64,
    },
    SetGauges {
        id: InstanceId,
        gauges: EngineGauges,
    },
    SetPolicy {
        config: PolicyConfig,
    },
    Arrive {
        ticket: Ticket,
        shape: RequestShape,
        exclude: Vec<InstanceId>,
    },
    ArrivePinned {
        ticket: Ticket,
        shape: RequestShape,
        instance: InstanceId,
    },
    Cancel {
        ticket: Ticket,
    },
    FirstOutput {
        lease: LeaseId,
    },
    Progress {
        lease: LeaseId,
        output_tokens: u64,
    },
    Finish {
        lease: LeaseId,
        observation: Observation,
    },
    Expire,
}

/// One call with its number and time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// number of the call; the first is 1
    pub seq: u64,
    /// time given to the call
    pub at_ns: u64,
    /// the call
    pub input: Input,
}

/// What a call decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Decision {
    Grant {
        seq: u64,
        grant: Grant,
    },
    Shed {
        seq: u64,
        ticket: Ticket,
        shed: Shed,
    },
}

/// A run that can be replayed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EventLog {
    /// calls in order
    pub events: Vec<Event>,
    /// decisions in order
    pub decisions: Vec<Decision>,
}
