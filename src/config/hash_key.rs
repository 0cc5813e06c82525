//! `evenkeel hash-key`: a key on standard input, its hash for the configuration on standard output.

use std::io::Read;

use anyhow::{Context as _, bail};

use super::key_hash::KeyHash;

/// A hash is no protection for a key that can be guessed.
const KEY_BYTES_MIN: usize = 16;
/// Longer ones are not looked at when a client sends them.
pub const KEY_BYTES_MAX: usize = 512;

/// Arguments of `evenkeel hash-key`: none, so that the key stays out of the shell's history and the list of processes.
#[derive(Debug, clap::Args)]
pub struct HashKeyArgs {}

/// Reads, hashes, prints.
pub fn run(_: &HashKeyArgs) -> anyhow::Result<()> {
    let mut key = Vec::new();
    let most = KEY_BYTES_MAX as u64 + 2;
    std::io::stdin()
        .take(most)
        .read_to_end(&mut key)
        .context("cannot read the key from standard input")?;
    println!("{}", hash(&key)?);
    Ok(())
}

fn hash(input: &[u8]) -> anyhow::Result<KeyHash> {
    let key = input.trim_ascii();
    if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len()) {
        bail!(
            "a key has {KEY_BYTES_MIN} to {KEY_BYTES_MAX} characters and is made at random (openssl rand -hex 32); \
             this one has {}",
            key.len()
        );
    }
    if !key.iter().all(u8::is_ascii_graphic) {
        bail!("a key is one line of printable ASCII characters without spaces");
    }
    Ok(KeyHash::of(key))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_hashed_without_what_surrounds_it() {
        let key = "0123456789abcdef";
        let hashed = hash(format!(" {key}\n").as_bytes()).unwrap();
        assert!(hashed.matches(&KeyHash::of(key.as_bytes())));
    }

    #[test]
    fn a_key_that_cannot_be_one_is_not_echoed() {
        for wrong in ["secret", "0123456789 abcdef", &"x".repeat(513), ""] {
            let said = hash(wrong.as_bytes()).unwrap_err().to_string();
            assert!(wrong.is_empty() || !said.contains(wrong), "{said}");
        }
    }
}
