//! Faults on demand: what `POST /admin/fault` takes, and which requests it strikes.
//!
//! Every fault belongs to the instance whose port was asked. `count` (alias `for_requests`) ends it
//! after so many inference requests, `for_ms` after so long; else it stays until
//! `DELETE /admin/fault`.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FaultKind {
    /// Steps last `factor` times as long.
    Slow {
        /// Above 0.
        factor: f64,
    },
    /// No step runs: requests are taken, heads leave, tokens do not.
    Stall,
    /// The port is closed: connects are refused. Open connections go on, so the fault can be
    /// lifted over one; without `for_ms` it lasts 5 s.
    Refuse,
    /// The answer is an error of this status.
    Status {
        /// 400 to 599; 500 if left out.
        #[serde(default = "internal_error")]
        status: u16,
    },
    /// After `after_chunks` output chunks comes an `error` event, `[DONE]` and a clean end, as when
    /// vLLM's engine core dies.
    InBandError {
        /// Output chunks before it.
        #[serde(default)]
        after_chunks: u32,
    },
    /// After `after_chunks` output chunks the connection ends without the body's end.
    Cut {
        /// Output chunks before it.
        #[serde(default)]
        after_chunks: u32,
        /// By RST instead of FIN.
        #[serde(default)]
        reset: bool,
    },
    /// Nothing comes: no head, or with `head` nothing after the head.
    Silent {
        /// Whether the head is sent.
        #[serde(default)]
        head: bool,
    },
    /// After `after_chunks` output chunks the request ends with `finish_reason` `abort`, as on
    /// vLLM's SIGTERM.
    Abort {
        /// Output chunks before it, the last of them carrying the reason; at least 1.
        #[serde(default)]
        after_chunks: u32,
    },
}

fn internal_error() -> u16 {
    500
}

/// A fault and its scope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// What goes wrong.
    #[serde(flatten)]
    pub kind: FaultKind,
    /// Requests it strikes; without it, all.
    #[serde(
        default,
        alias = "for_requests",
        skip_serializing_if = "Option::is_none"
    )]
    pub count: Option<u64>,
    /// How long it lasts; without it, until lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
}

impl Fault {
    /// A fault that strikes everything until lifted.
    pub fn new(kind: FaultKind) -> Self {
        Fault {
            kind,
            count: None,
            for_ms: None,
        }
    }

    /// What is wrong with it, if anything.
    pub fn check(&self) -> Result<(), String> {
        match &self.kind {
            FaultKind::Slow { factor } if !factor.is_finite() || *factor <= 0.0 => {
                Err("factor must be above 0".to_owned())
            }
            FaultKind::Status { status } if !(400..=599).contains(status) => {
                Err("status must be 400 to 599".to_owned())
            }
            FaultKind::Slow { .. } | FaultKind::Stall | FaultKind::Refuse
                if self.count.is_some() =>
            {
                Err("slow, stall and refuse strike the whole instance: use for_ms".to_owned())
            }
            _ => Ok(()),
        }
    }
}

struct Active {
    fault: Fault,
    until: Option<Instant>,
}

/// The faults of one instance.
#[derive(Default)]
pub(crate) struct Faults {
    active: Mutex<Vec<Active>>,
}

impl Faults {
    pub(crate) fn add(&self, mut fault: Fault) {
        if fault.kind == FaultKind::Refuse {
            fault.for_ms.get_or_insert(5_000);
        }
        let until = fault
            .for_ms
            .and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
        self.active.lock().push(Active { fault, until });
    }

    pub(crate) fn clear(&self) {
        self.active.lock().clear();
    }

    pub(crate) fn list(&self) -> Vec<Fault> {
        self.with_live(|active| active.iter().map(|one| one.fault.clone()).collect())
    }

    /// The product of all factors.
    pub(crate) fn slow_factor(&self) -> f64 {
        self.with_live(|active| {
            let factors = active.iter().filter_map(|one| match one.fault.kind {
                FaultKind::Slow { factor } => Some(factor),
                _ => None,
            });
            factors.product()
        })
    }

    /// Whether `kind` holds the instance, and until when if that is known.
    pub(crate) fn holds(&self, kind: &FaultKind) -> Option<Option<Instant>> {
        self.with_live(|active| {
            active
                .iter()
                .find(|one| one.fault.kind == *kind)
                .map(|one| one.until)
        })
    }

    /// The oldest fault that strikes single requests; counts this request.
    pub(crate) fn strike(&self) -> Option<FaultKind> {
        self.with_live(|active| {
            let at = active.iter().position(|one| {
                !matches!(
                    one.fault.kind,
                    FaultKind::Slow { .. } | FaultKind::Stall | FaultKind::Refuse
                )
            })?;
            let kind = active[at].fault.kind.clone();
            match &mut active[at].fault.count {
                Some(0 | 1) => {
                    active.remove(at);
                }
                Some(left) => *left -= 1,
                None => {}
            }
            Some(kind)
        })
    }

    fn with_live<T>(&self, look: impl FnOnce(&mut Vec<Active>) -> T) -> T {
        let mut active = self.active.lock();
        if active.iter().any(|one| one.until.is_some()) {
            let now = Instant::now();
            active.retain(|one| one.until.is_none_or(|until| until > now));
        }
        look(&mut active)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_counted_fault_strikes_so_many_requests() {
        let faults = Faults::default();
        let fault: Fault =
            serde_json::from_str(r#"{"kind":"status","status":503,"for_requests":2}"#).unwrap();
        faults.add(fault);
        let struck = [faults.strike(), faults.strike(), faults.strike()];
        assert_eq!(struck.iter().filter(|one| one.is_some()).count(), 2);
        assert!(struck[2].is_none() && faults.list().is_empty());
    }

    #[test]
    fn a_timed_fault_ends_by_itself() {
        let faults = Faults::default();
        faults.add(Fault {
            for_ms: Some(0),
            ..Fault::new(FaultKind::Stall)
        });
        assert!(faults.holds(&FaultKind::Stall).is_none());
    }

    #[test]
    fn nonsense_is_refused() {
        let check = |text: &str| serde_json::from_str::<Fault>(text).unwrap().check();
        assert!(check(r#"{"kind":"slow","factor":0}"#).is_err());
        assert!(check(r#"{"kind":"stall","count":1}"#).is_err());
        assert!(check(r#"{"kind":"cut","after_chunks":3}"#).is_ok());
    }
}
