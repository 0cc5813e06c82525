//! The simulated engine's tokens: one token is up to four bytes of the text, in order. Its id is
//! these bytes as a little-endian number, so `/detokenize` gives back the text (but for NULs).

use crate::splitmix::mix;

/// Bytes of text in a token.
const TOKEN_BYTES: usize = 4;

/// Words of four bytes, so that output counts the same when it comes back as a prompt.
const WORDS: [&str; 16] = [
    " the", " and", " for", " you", " are", " not", " can", " one", " all", " out", " way", " new",
    " day", " two", " see", " now",
];

/// A prompt, ready for the model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Prompt {
    bytes: Vec<u8>,
}

impl Prompt {
    pub(crate) fn text(text: &str) -> Self {
        Prompt {
            bytes: text.as_bytes().to_vec(),
        }
    }

    pub(crate) fn ids(ids: &[u32]) -> Self {
        Prompt {
            bytes: ids.iter().flat_map(|id| id.to_le_bytes()).collect(),
        }
    }

    pub(crate) fn tokens(&self) -> u32 {
        u32::try_from(self.bytes.len().div_ceil(TOKEN_BYTES)).unwrap_or(u32::MAX)
    }

    pub(crate) fn token_ids(&self) -> Vec<u32> {
        self.bytes
            .chunks(TOKEN_BYTES)
            .map(|piece| {
                piece
                    .iter()
                    .rev()
                    .fold(0, |id, byte| (id << 8) | u32::from(*byte))
            })
            .collect()
    }

    /// Chained hashes of the full blocks: a block's hash covers everything before it.
    pub(crate) fn block_hashes(&self, block_size_tokens: u32) -> Vec<u64> {
        let mut chain = 0;
        self.bytes
            .chunks_exact(block_size_tokens as usize * TOKEN_BYTES)
            .map(|block| {
                chain = hash(chain, block);
                chain
            })
            .collect()
    }

    /// A number that stands for the whole prompt.
    pub(crate) fn fingerprint(&self) -> u64 {
        hash(1, &self.bytes)
    }
}

fn hash(seed: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(mix(seed), |state, piece| {
        let word = piece
            .iter()
            .fold(0u64, |word, byte| (word << 8) | u64::from(*byte));
        mix(state ^ word)
    })
}

/// The text of `ids`; invalid UTF-8 becomes U+FFFD.
pub(crate) fn detokenize(ids: &[u32]) -> String {
    let bytes: Vec<u8> = ids
        .iter()
        .flat_map(|id| id.to_le_bytes())
        .filter(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Text of an output token; plain ASCII that needs no JSON escape.
pub(crate) fn word(seed: u64, token_index: u32) -> &'static str {
    WORDS[(mix(seed ^ u64::from(token_index)) % WORDS.len() as u64) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_lead_back_to_the_text() {
        let prompt = Prompt::text("Grüße an alle");
        assert_eq!(prompt.token_ids().len(), prompt.tokens() as usize);
        assert_eq!(detokenize(&prompt.token_ids()), "Grüße an alle");
    }

    #[test]
    fn output_counts_the_same_when_it_comes_back() {
        let text: String = (0..37).map(|index| word(9, index)).collect();
        assert_eq!(Prompt::text(&text).tokens(), 37);
    }

    #[test]
    fn prompts_share_hashes_as_far_as_they_are_equal() {
        let a = Prompt::text(&"x".repeat(640)).block_hashes(16);
        let b = Prompt::text(&format!("{}y", "x".repeat(639))).block_hashes(16);
        assert_eq!((a.len(), &a[..9]), (10, &b[..9]));
        assert_ne!(a[9], b[9]);
        assert_ne!(a[0], a[1]);
    }
}
