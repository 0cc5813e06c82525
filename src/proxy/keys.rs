//! API keys of clients: who comes in, how often, and how many at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::refusal::Refusal;
use crate::config::checked::{Key, Rate};
use crate::config::hash_key::KEY_BYTES_MAX;
use crate::config::key_hash::KeyHash;
use crate::fleet::credentials::API_KEY;

/// All keys that are let in.
pub struct Keyring {
    keys: Vec<Held>,
}

struct Held {
    key: Key,
    rate: Option<Arc<DefaultDirectRateLimiter>>,
    /// requests open; the same over all generations of the configuration
    open: Arc<AtomicUsize>,
}

/// A request's place among those its key may have open; given back when dropped.
pub struct KeyPlace {
    open: Option<Arc<AtomicUsize>>,
}

impl Drop for KeyPlace {
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            open.fetch_sub(1, Relaxed);
        }
    }
}

/// Who asks, as far as that is known, and whether it may.
pub struct Entry {
    /// the key's name
    pub key: Option<Arc<str>>,
    /// its place, or why it has none
    pub place: Result<KeyPlace, Refusal>,
}

impl Entry {
    /// Everybody may come in.
    pub fn open() -> Entry {
        let place = Ok(KeyPlace { open: None });
        Entry { key: None, place }
    }
}

impl Keyring {
    /// The keys of the configuration. One that `before` holds under the same name goes on: its open requests count,
    /// and what it has used up of an unchanged rate.
    pub fn new(keys: &[Key], before: Option<&Keyring>) -> Keyring {
        let before = before.map_or(&[][..], |ring| &ring.keys);
        let known = |key: &Key| before.iter().find(|held| held.key.name == key.name);
        Keyring {
            keys: keys.iter().map(|key| Held::new(key, known(key))).collect(),
        }
    }

    /// Looks at a request's credentials and counts it against its key's limits.
    pub fn enter(&self, headers: &HeaderMap) -> Entry {
        let Some(presented) = presented(headers) else {
            let place = Err(Refusal::KeyMissing);
            return Entry { key: None, place };
        };
        match self.find(presented) {
            Some(held) => Entry {
                key: Some(held.key.name.clone()),
                place: held.enter(),
            },
            None => Entry {
                key: None,
                place: Err(Refusal::KeyUnknown),
            },
        }
    }

    /// Compares with every key, and each in constant time.
    fn find(&self, presented: &[u8]) -> Option<&Held> {
        if presented.len() > KEY_BYTES_MAX {
            return None;
        }
        let hash = KeyHash::of(presented);
        let mut found = None;
        for held in &self.keys {
            if held.key.hash.matches(&hash) {
                found = Some(held);
            }
        }
        found
    }
}

impl Held {
    fn new(key: &Key, before: Option<&Held>) -> Held {
        let same_rate = before.filter(|held| held.key.rate == key.rate);
        let rate = match same_rate {
            Some(held) => held.rate.clone(),
            None => key.rate.and_then(limiter).map(Arc::new),
        };
        Held {
            rate,
            open: before.map_or_else(Arc::default, |held| held.open.clone()),
            key: key.clone(),
        }
    }

    /// A place first: a request that gets none does not use the rate up.
    fn enter(&self) -> Result<KeyPlace, Refusal> {
        let most = self.key.max_concurrent.unwrap_or(usize::MAX);
        let one_more = |open| (open < most).then_some(open + 1);
        let taken = self.open.fetch_update(Relaxed, Relaxed, one_more);
        taken.map_err(|_| self.busy())?;
        let place = KeyPlace {
            open: Some(self.open.clone()),
        };
        match self.rate.as_ref().map(|rate| rate.check()) {
            Some(Err(not_until)) => {
                let wait = not_until.wait_time_from(DefaultClock::default().now());
                Err(Refusal::KeyRate {
                    key: self.key.name.to_string(),
                    retry_after_s: (wait.as_secs_f64().ceil() as u32).max(1),
                })
            }
            _ => Ok(place),
        }
    }

    fn busy(&self) -> Refusal {
        Refusal::KeyBusy {
            key: self.key.name.to_string(),
            most: self.key.max_concurrent.unwrap_or_default(),
        }
    }
}

fn limiter(rate: Rate) -> Option<DefaultDirectRateLimiter> {
    let period = std::time::Duration::from_secs_f64(1.0 / rate.per_s);
    let quota = Quota::with_period(period)?.allow_burst(rate.burst);
    Some(RateLimiter::direct(quota))
}

/// The key a client sends: as a bearer token, or as Anthropic's clients do.
fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers
        .get(AUTHORIZATION)
        .and_then(|value| bearer_token(value.as_bytes()));
    let key = bearer.or_else(|| {
        headers
            .get(API_KEY)
            .map(|value| value.as_bytes().trim_ascii())
    });
    key.filter(|key| !key.is_empty())
}

/// What follows `Bearer`, in any case of letters.
pub fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(b"bearer".len())?;
    let fits = scheme.eq_ignore_ascii_case(b"bearer") && rest.first() == Some(&b' ');
    fits.then(|| rest.trim_ascii())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn key(name: &str, secret: &str, rate: Option<Rate>, max_concurrent: Option<usize>) -> Key {
        Key {
            name: name.into(),
            hash: KeyHash::of(secret.as_bytes()),
            rate,
            max_concurrent,
        }
    }

    fn sent(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        headers
    }

    #[test]
    fn a_key_is_known_by_either_header_and_by_nothing_else() {
        let ring = Keyring::new(
            &[key("a", "key-a", None, None), key("b", "key-b", None, None)],
            None,
        );
        for (headers, name) in [
            (sent("authorization", "Bearer key-a"), "a"),
            (sent("authorization", "bearer  key-b "), "b"),
            (sent("x-api-key", "key-b"), "b"),
        ] {
            let entry = ring.enter(&headers);
            assert_eq!(entry.key.as_deref(), Some(name));
            assert!(entry.place.is_ok());
        }
        let mut both = sent("authorization", "Basic dXNlcg==");
        both.insert("x-api-key", "key-a".parse().unwrap());
        assert_eq!(ring.enter(&both).key.as_deref(), Some("a"));
        for headers in [
            HeaderMap::new(),
            sent("authorization", "Bearer"),
            sent("authorization", "Bearer "),
            sent("authorization", "key-a"),
            sent("authorization", "Bearerkey-a"),
            sent("x-api-key", ""),
            sent("api-key", "key-a"),
        ] {
            let refused = ring.enter(&headers).place.err();
            assert_eq!(refused, Some(Refusal::KeyMissing), "{headers:?}");
        }
        for wrong in ["key-c", "key-", "key-aa", &"k".repeat(KEY_BYTES_MAX + 1)] {
            let entry = ring.enter(&sent("x-api-key", wrong));
            assert_eq!(entry.key, None);
            assert_eq!(entry.place.err(), Some(Refusal::KeyUnknown));
        }
    }

    #[test]
    fn a_place_is_free_again_when_it_is_dropped() {
        let ring = Keyring::new(&[key("a", "key-a", None, Some(2))], None);
        let headers = sent("x-api-key", "key-a");
        let first = ring.enter(&headers).place.ok();
        let second = ring.enter(&headers).place.ok();
        assert!(first.is_some() && second.is_some());
        let refused = ring.enter(&headers);
        assert_eq!(refused.key.as_deref(), Some("a"));
        let busy = Refusal::KeyBusy {
            key: "a".into(),
            most: 2,
        };
        assert_eq!(refused.place.err(), Some(busy));
        drop(first);
        assert!(ring.enter(&headers).place.is_ok());
    }

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let rate = Rate {
            per_s: 0.01,
            burst: 3.try_into().unwrap(),
        };
        let ring = Keyring::new(&[key("a", "key-a", Some(rate), Some(1))], None);
        let headers = sent("x-api-key", "key-a");
        let held = ring.enter(&headers).place.ok();
        // a refusal for want of a place uses nothing up
        for _ in 0..5 {
            assert!(matches!(
                ring.enter(&headers).place.err(),
                Some(Refusal::KeyBusy { .. })
            ));
        }
        drop(held);
        assert!(ring.enter(&headers).place.is_ok());
        assert!(ring.enter(&headers).place.is_ok());
        let Some(Refusal::KeyRate { retry_after_s, .. }) = ring.enter(&headers).place.err() else {
            panic!("a fourth request within a second");
        };
        assert!((90..=100).contains(&retry_after_s), "{retry_after_s}");
    }

    #[test]
    fn a_key_that_stays_keeps_what_it_has_open_and_used_up() {
        let rate = Rate {
            per_s: 0.01,
            burst: 3.try_into().unwrap(),
        };
        let ring = Keyring::new(&[key("a", "key-a", Some(rate), Some(4))], None);
        let headers = sent("x-api-key", "key-a");
        let held = (
            ring.enter(&headers).place.ok(),
            ring.enter(&headers).place.ok(),
        );
        // the secret was renewed, and fewer may be open
        let ring = Keyring::new(&[key("a", "key-b", Some(rate), Some(2))], Some(&ring));
        assert_eq!(ring.enter(&headers).place.err(), Some(Refusal::KeyUnknown));
        let headers = sent("x-api-key", "key-b");
        let busy = ring.enter(&headers).place.err();
        assert!(matches!(busy, Some(Refusal::KeyBusy { .. })), "{busy:?}");
        drop(held);
        let third = ring.enter(&headers).place.ok();
        assert!(third.is_some());
        let spent = ring.enter(&headers).place.err();
        assert!(matches!(spent, Some(Refusal::KeyRate { .. })), "{spent:?}");
        // a key that comes back after it was gone begins anew
        let none = Keyring::new(&[], Some(&ring));
        let ring = Keyring::new(&[key("a", "key-b", None, Some(1))], Some(&none));
        assert!(ring.enter(&headers).place.is_ok());
    }
}
