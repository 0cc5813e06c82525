//! API keys of clients, and where secrets are kept: the rules for both.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::check::{Checker, Seen};
use super::checked::{Key, Rate};
use super::key_hash::KeyHash;
use super::place::Step;
use super::place::Step::{Index, Key as Name};
use super::raw;
use super::secret::{SOURCES, SecretSource};

/// Checks the list of keys; absent, everybody may come in.
pub fn check(checker: &mut Checker<'_>, raw: Option<Vec<raw::Key>>) -> Option<Vec<Key>> {
    let raw = raw?;
    if raw.is_empty() {
        let help =
            "leave `keys` out to let everybody in, or add `[[keys]]` with `name` and `sha256`";
        let message = "there are no keys: nobody could come in".into();
        checker.fault(&[Name("keys")], message, "empty", help.to_owned());
    }
    let (mut names, mut hashes) = (Seen::new(), Seen::new());
    let mut keys = Vec::with_capacity(raw.len());
    for (index, key) in raw.into_iter().enumerate() {
        super::pools::check_name(
            checker,
            &[Name("keys"), Index(index), Name("name")],
            &format!("keys[{index}].name"),
            &key.name,
            &mut names,
        );
        keys.extend(check_key(checker, key, index, &mut hashes));
    }
    Some(keys)
}

fn check_key(
    checker: &mut Checker<'_>,
    key: raw::Key,
    index: usize,
    hashes: &mut Seen,
) -> Option<Key> {
    let path = format!("keys[{index}]");
    let at = [Name("keys"), Index(index)];
    let Some(hash) = KeyHash::parse(&key.sha256) else {
        // not at the value: it may be the key itself
        let help = "`evenkeel hash-key` reads a key and prints its hash: 64 hexadecimal digits";
        let message = format!("`{path}.sha256` is no SHA-256 hash");
        checker.fault(&at, message, "in this key", help.to_owned());
        return None;
    };
    if let Some(first) = hashes.insert(hash.to_string(), path.clone()) {
        let help = "each key is listed once".to_owned();
        let message = format!("`{path}.sha256` is the hash of `{first}` too");
        checker.fault(&at, message, "listed twice", help);
    }
    if key.max_concurrent == Some(0) {
        let help = "a key that nobody may use is left out of the file".to_owned();
        let message = format!("`{path}.max_concurrent` must be at least 1");
        let place = [&at[..], &[Name("max_concurrent")]].concat();
        checker.fault(&place, message, "too small", help);
    }
    Some(Key {
        rate: rate(checker, &key, index),
        name: Arc::from(key.name),
        hash,
        max_concurrent: key.max_concurrent,
    })
}

fn rate(checker: &mut Checker<'_>, key: &raw::Key, index: usize) -> Option<Rate> {
    let at = |name| [Name("keys"), Index(index), Name(name)];
    let Some(per_s) = key.requests_per_s else {
        if key.burst.is_some() {
            let help = "add `requests_per_s`, or leave `burst` out".to_owned();
            let message = format!("`keys[{index}].burst` stands without `requests_per_s`");
            checker.fault(&at("burst"), message, "has nothing to soften", help);
        }
        return None;
    };
    if !(1e-4..=1e6).contains(&per_s) {
        let help = "write requests a second, such as 10 or 0.5".to_owned();
        let message = format!("`keys[{index}].requests_per_s` must be 0.0001 to 1,000,000");
        checker.fault(&at("requests_per_s"), message, "out of range", help);
        return None;
    }
    // a second's worth
    let burst = key.burst.unwrap_or(per_s.ceil() as u32);
    let Some(burst) = NonZeroU32::new(burst) else {
        let help = "at least one request must fit".to_owned();
        let message = format!("`keys[{index}].burst` must be at least 1");
        checker.fault(&at("burst"), message, "too small", help);
        return None;
    };
    Some(Rate { per_s, burst })
}

/// Checks where a secret is kept. What is wrong is told at `at`, not at the value: that may be the secret.
pub fn secret(
    checker: &mut Checker<'_>,
    at: &[Step<'_>],
    key: &str,
    text: Option<&str>,
) -> Option<SecretSource> {
    let text = text?;
    let source = SecretSource::parse(text);
    if source.is_none() {
        let message = format!("`{key}` does not say where the secret is kept");
        let help = format!("write {SOURCES}; secrets do not stand in the configuration itself");
        checker.fault(at, message, "in this table", help);
    }
    source
}
