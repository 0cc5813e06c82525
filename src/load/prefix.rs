//! Prompt text that requests share: the same block of a prefix is the same text, wherever it stands.
//!
//! Pure. A trace tells which prefix blocks a request has by numbers; each number becomes the seed
//! of a block's text, so that an engine's prefix cache hits exactly where the trace's engine could.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::splitmix::mix;

/// Words of a prompt: 64, so that one says six bits.
const WORDS: [&str; 64] = [
    "act", "add", "age", "air", "and", "any", "arm", "art", "ask", "bad", "bag", "bar", "bed",
    "big", "bit", "box", "boy", "bus", "but", "buy", "can", "car", "cat", "cup", "cut", "day",
    "dog", "dry", "eat", "end", "eye", "far", "fit", "fly", "for", "fun", "get", "god", "hat",
    "hit", "hot", "ice", "job", "key", "kid", "law", "leg", "let", "lot", "low", "man", "map",
    "mix", "net", "new", "now", "oil", "old", "one", "out", "own", "pay", "red", "sea",
];
const BITS_A_WORD: u32 = u64::BITS - (WORDS.len() as u64 - 1).leading_zeros();
/// Words that say a whole seed.
const SEED_WORDS: u32 = u64::BITS.div_ceil(BITS_A_WORD);

/// How the text of a request begins: blocks of equal size, the last of them perhaps cut short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedPrefix {
    /// tokens of a block
    pub block_tokens: u32,
    /// seed of each block's text, from the first block on
    pub block_seeds: Vec<u64>,
}

impl SharedPrefix {
    /// Blocks of a trace, by the numbers it gives them. Unlike numbers give unlike seeds; another
    /// `run_seed` gives other text, so that a second run does not hit what the first left in a cache.
    pub fn of_ids(block_tokens: u32, ids: &[u64], run_seed: u64) -> SharedPrefix {
        let salt = mix(run_seed);
        SharedPrefix {
            block_tokens,
            block_seeds: ids.iter().map(|id| mix(id ^ salt)).collect(),
        }
    }

    /// Tokens of a prompt of `prompt_tokens` that lie in blocks.
    pub fn tokens_of(&self, prompt_tokens: u32) -> u32 {
        let blocks = u32::try_from(self.block_seeds.len()).unwrap_or(u32::MAX);
        prompt_tokens.min(self.block_tokens.saturating_mul(blocks))
    }

    /// Adds the blocks' text, up to `prompt_tokens`, and says how many tokens that is.
    pub(super) fn push_text(&self, text: &mut String, prompt_tokens: u32) -> u32 {
        let shared_tokens = self.tokens_of(prompt_tokens);
        let mut left = shared_tokens;
        for seed in &self.block_seeds {
            let tokens = left.min(self.block_tokens);
            push_block(text, *seed, tokens);
            left -= tokens;
        }
        shared_tokens
    }
}

/// A block begins with its seed spelt in words: no two seeds give one text, not even by chance.
fn push_block(text: &mut String, seed: u64, tokens: u32) {
    for word in 0..tokens.min(SEED_WORDS) {
        let bits = seed >> (word * BITS_A_WORD);
        push_word(text, bits as usize % WORDS.len());
    }
    push_words(text, seed, tokens.saturating_sub(SEED_WORDS));
}

/// Adds so many words, drawn from a seed.
pub(super) fn push_words(text: &mut String, seed: u64, words: u32) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    for _ in 0..words {
        push_word(text, rng.random_range(0..WORDS.len()));
    }
}

/// Adds a word, and a blank before all but the first.
fn push_word(text: &mut String, word: usize) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(WORDS[word]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(prefix: &SharedPrefix, prompt_tokens: u32) -> Vec<String> {
        let mut text = String::new();
        let tokens = prefix.push_text(&mut text, prompt_tokens);
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        assert_eq!(words.len(), tokens as usize);
        words
    }

    #[test]
    fn the_words_are_all_different() {
        let mut words = WORDS.to_vec();
        words.sort_unstable();
        words.dedup();
        assert_eq!((words.len(), BITS_A_WORD, SEED_WORDS), (64, 6, 11));
    }

    #[test]
    fn another_run_seed_gives_other_text() {
        let of = |run_seed| words(&SharedPrefix::of_ids(16, &[7], run_seed), 16);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn a_prompt_shorter_than_its_blocks_is_cut_and_not_stretched() {
        let prefix = SharedPrefix::of_ids(16, &[1, 2, 3], 0);
        assert_eq!(words(&prefix, 40).len(), 40);
        assert_eq!(words(&prefix, 48), words(&prefix, 99));
        assert_eq!(words(&prefix, 48)[..40], words(&prefix, 40));
    }

    proptest! {
        #[test]
        fn requests_share_as_many_words_as_they_share_leading_blocks(
            shared in prop::collection::vec(0..1000_u64, 0..6),
            ends in (1000..1010_u64, 1010..1020_u64),
            block_tokens in 11..80_u32,
            seed: u64,
        ) {
            let ids = |end: u64| shared.iter().copied().chain([end]).collect::<Vec<u64>>();
            let of = |end| words(&SharedPrefix::of_ids(block_tokens, &ids(end), seed), u32::MAX);
            let (one, other) = (of(ends.0), of(ends.1));
            let common = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
            let whole = shared.len() * block_tokens as usize;
            // the next blocks differ within the words that spell their seeds
            prop_assert!((whole..whole + 11).contains(&common), "{} words of {}", common, whole);
        }
    }
}
