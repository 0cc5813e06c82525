//! The SHA-256 of a key: what a configuration holds in the key's place.

use std::fmt::{self, Write as _};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// A key's hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// The hash of a key.
    pub fn of(key: &[u8]) -> KeyHash {
        KeyHash(Sha256::digest(key).into())
    }

    /// Reads 64 hexadecimal digits.
    pub fn parse(hex: &str) -> Option<KeyHash> {
        let digit = |byte: u8| (byte as char).to_digit(16);
        let digits: &[u8; 64] = hex.as_bytes().try_into().ok()?;
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
        }
        Some(KeyHash(hash))
    }

    /// Whether they are the same, in a time that does not tell where they differ.
    pub fn matches(&self, other: &KeyHash) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(")?;
        self.0[..4]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_char('…')?;
        f.write_char(')')
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_what_sha256sum_prints() {
        let hash = KeyHash::of(b"abc");
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash.to_string(), hex);
        assert!(KeyHash::parse(hex).unwrap().matches(&hash));
        assert!(KeyHash::parse(&hex.to_uppercase()).unwrap().matches(&hash));
        assert!(!KeyHash::of(b"abd").matches(&hash));
        for wrong in ["", &hex[1..], &hex.replace('b', "g"), "é"] {
            assert_eq!(KeyHash::parse(wrong), None);
        }
    }
}
