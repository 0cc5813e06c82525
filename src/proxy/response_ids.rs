//! Which instance holds a stored response: `/v1/responses/{id}` must go where the response was made.

use std::collections::VecDeque;
use std::sync::Arc;

use dashmap::DashMap;
use evenkeel_policies::scheduler::InstanceId;
use memchr::memmem;
use parking_lot::Mutex;

/// Ids remembered; the oldest is forgotten first.
const IDS_MAX: usize = 100_000;
/// An answer names its id in its first bytes.
const LOOK_BYTES_MAX: usize = 64 * 1024;
const ID_BYTES_MAX: usize = 256;

/// Where a response was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// pool's serial number
    pub pool: u64,
    /// instance in it
    pub instance: InstanceId,
}

/// A bounded map from response id to its place.
#[derive(Default)]
pub struct ResponseIds {
    places: DashMap<Box<str>, Place>,
    order: Mutex<VecDeque<Box<str>>>,
}

impl ResponseIds {
    /// Where `id` was made.
    pub fn place(&self, id: &str) -> Option<Place> {
        self.places.get(id).map(|place| *place)
    }

    fn remember(&self, id: &str, place: Place) {
        if self.places.insert(id.into(), place).is_some() {
            return;
        }
        let mut order = self.order.lock();
        order.push_back(id.into());
        let forgotten = if order.len() > IDS_MAX {
            order.pop_front()
        } else {
            None
        };
        drop(order);
        if let Some(id) = forgotten {
            self.places.remove(&id);
        }
    }
}

/// Looks for the id in the first bytes of an answer of the Responses API.
pub struct IdSniffer {
    ids: Arc<ResponseIds>,
    place: Place,
    seen: Vec<u8>,
}

impl IdSniffer {
    /// What it finds is remembered as made at `place`.
    pub fn new(ids: Arc<ResponseIds>, place: Place) -> Self {
        Self {
            ids,
            place,
            seen: Vec::new(),
        }
    }

    /// Looks at a read; true once there is nothing more to look for.
    pub fn look(&mut self, data: &[u8]) -> bool {
        self.seen
            .extend_from_slice(&data[..data.len().min(LOOK_BYTES_MAX)]);
        if let Some(id) = response_id(&self.seen) {
            self.ids.remember(id, self.place);
            return true;
        }
        self.seen.len() >= LOOK_BYTES_MAX
    }
}

/// The first `"id": "resp…"` of the answer.
fn response_id(bytes: &[u8]) -> Option<&str> {
    for at in memmem::find_iter(bytes, b"\"id\"") {
        let rest = bytes[at + 4..]
            .trim_ascii_start()
            .strip_prefix(b":")?
            .trim_ascii_start();
        let Some(rest) = rest
            .strip_prefix(b"\"")
            .filter(|rest| rest.starts_with(b"resp"))
        else {
            continue;
        };
        let end = memchr::memchr(b'"', rest)?;
        return std::str::from_utf8(&rest[..end])
            .ok()
            .filter(|id| id.len() <= ID_BYTES_MAX);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_found_across_reads_and_other_ids_are_not_taken() {
        let ids = Arc::new(ResponseIds::default());
        let place = Place {
            pool: 1,
            instance: InstanceId(2),
        };
        let mut sniffer = IdSniffer::new(ids.clone(), place);
        assert!(!sniffer.look(b"data: {\"id\":\"msg_1\",\"response\":{\"id\": \"resp_a"));
        assert!(sniffer.look(b"bc\",\"x\":1}"));
        assert_eq!(ids.place("resp_abc"), Some(place));
        assert_eq!(ids.place("msg_1"), None);
    }

    #[test]
    fn the_oldest_id_is_forgotten() {
        let ids = ResponseIds::default();
        let place = Place {
            pool: 0,
            instance: InstanceId(0),
        };
        for n in 0..=IDS_MAX {
            ids.remember(&format!("resp_{n}"), place);
        }
        assert_eq!(
            (ids.place("resp_0"), ids.place("resp_1")),
            (None, Some(place))
        );
        assert_eq!(ids.places.len(), IDS_MAX);
    }
}
