//! Estimates: exact where tokens are given, calibrated where engines report, bounded always.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use evenkeel_policies::estimate::{LengthEstimator, OutputPredictor, TokensPerChunk};
use evenkeel_policies::shape::{Api, PromptFacts, TextCounts};

fn letters(count: u64) -> PromptFacts {
    PromptFacts {
        text: TextCounts {
            letters: count,
            ..TextCounts::default()
        },
        prompts: 1,
        choices: 1,
        ..PromptFacts::default()
    }
}

fn actual(letters: u64) -> u64 {
    letters * 3 / 10 + 40
}

#[test]
fn token_ids_are_exact_and_teach_nothing() {
    let facts = PromptFacts {
        exact_tokens: 12,
        prompts: 1,
        choices: 1,
        ..PromptFacts::default()
    };
    let mut lengths = LengthEstimator::new(1000);
    lengths.observe("m", &facts, 900);
    lengths.observe("m", &letters(1000), actual(1000));
    assert_eq!(lengths.prompt_tokens("m", &facts), 12);
}

#[test]
fn a_picture_is_a_constant_and_leaves_the_text_s_fit_alone() {
    let mut lengths = LengthEstimator::new(1000);
    let text = lengths.prompt_tokens("m", &letters(400));
    let picture = PromptFacts {
        images: 2,
        ..letters(400)
    };
    assert_eq!(lengths.prompt_tokens("m", &picture), text + 2000);
    lengths.observe("m", &picture, 90_000);
    assert_eq!(lengths.prompt_tokens("m", &letters(400)), text);
}

#[test]
fn slope_and_template_are_learnt_per_model() {
    let mut lengths = LengthEstimator::new(1000);
    let before = lengths.prompt_tokens("other model", &letters(4000));
    for round in 0..200_u64 {
        let length = 50 + round * 7919 % 20_000;
        lengths.observe("m", &letters(length), actual(length));
    }
    for length in [100, 1000, 10_000, 40_000] {
        let (got, want) = (
            f64::from(lengths.prompt_tokens("m", &letters(length))),
            actual(length) as f64,
        );
        assert!(
            (got - want).abs() <= 0.05 * want + 2.0,
            "{length}: {got} for {want}"
        );
    }
    assert_eq!(lengths.prompt_tokens("other model", &letters(4000)), before);
}

#[test]
fn one_wild_answer_does_not_carry_the_fit_away() {
    let mut lengths = LengthEstimator::new(1000);
    for round in 0..100_u64 {
        let length = 100 + round * 100;
        lengths.observe("m", &letters(length), actual(length));
    }
    lengths.observe("m", &letters(500), u64::MAX);
    let got = f64::from(lengths.prompt_tokens("m", &letters(4000)));
    let want = actual(4000) as f64;
    assert!((got - want).abs() < want, "{got} for {want}");
}

#[test]
fn huge_prompts_and_many_models_stay_in_bounds() {
    let mut lengths = LengthEstimator::new(u32::MAX);
    let huge = PromptFacts {
        images: u32::MAX,
        exact_tokens: u64::MAX,
        ..letters(u64::MAX / 8)
    };
    assert_eq!(lengths.prompt_tokens("m", &huge), u32::MAX);
    for model in 0..1000 {
        lengths.observe(&model.to_string(), &letters(1000), 500);
    }
    // models past the bound share what all of them taught
    assert_eq!(
        lengths.prompt_tokens("998", &letters(1000)),
        lengths.prompt_tokens("never seen", &letters(1000))
    );
}

#[test]
fn output_is_the_limit_capped_by_what_was_seen() {
    let mut outputs = OutputPredictor::new(256);
    assert_eq!(outputs.predict("m", Api::Chat, None, None, 1), 256);
    assert_eq!(outputs.predict("m", Api::Chat, None, Some(16), 4), 64);
    assert_eq!(outputs.predict("m", Api::Embeddings, None, None, 1), 0);
    for _ in 0..10 {
        outputs.observe("m", Api::Chat, None, 80);
    }
    assert_eq!(outputs.predict("m", Api::Chat, None, Some(32_000), 1), 80);
    assert_eq!(
        outputs.predict("m", Api::Completions, None, None, 1),
        256,
        "another endpoint"
    );
    assert_eq!(
        outputs.predict("m", Api::Chat, None, None, u32::MAX),
        u32::MAX
    );
}

#[test]
fn a_key_with_answers_of_its_own_is_predicted_by_them() {
    let mut outputs = OutputPredictor::default();
    for _ in 0..50 {
        outputs.observe("m", Api::Chat, Some(1), 1000);
        outputs.observe("m", Api::Chat, Some(2), 10);
    }
    assert_eq!(outputs.predict("m", Api::Chat, Some(1), None, 1), 1000);
    assert_eq!(outputs.predict("m", Api::Chat, Some(2), None, 1), 10);
    for key in 10..20_000 {
        outputs.observe("m", Api::Chat, Some(key), 10);
    }
    assert!(
        outputs.predict("m", Api::Chat, Some(1), None, 1) < 100,
        "an old key is forgotten"
    );
}

#[test]
fn tokens_a_chunk_are_unknown_before_any_usage() {
    let mut ratio = TokensPerChunk::default();
    ratio.observe("m", Api::Chat, 0, 10);
    assert_eq!(ratio.estimate("m", Api::Chat, 5), None);
    ratio.observe("m", Api::Chat, 50, 100);
    assert_eq!(ratio.estimate("m", Api::Chat, 5), Some(10.0));
    assert_eq!(ratio.estimate("m", Api::Completions, 5), None);
}
