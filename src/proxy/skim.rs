//! What a request's JSON body says to a router, read in one pass without building a tree. Pure.
//!
//! Text that will be prompt is counted by character class; everything else is skipped. Pictures
//! and sound in base64 are never text. The bytes themselves go on unchanged.

mod content;
pub(super) mod scalar;
#[cfg(test)]
mod tests;
mod text;

use std::ops::Range;

use evenkeel_policies::shape::{Api, PromptFacts, TextCounts};
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use content::{Content, Prompts};
use scalar::{Key, Scalar};

/// Longest model name kept; a longer one is cut, and so is unknown.
pub const MODEL_BYTES_MAX: usize = 256;

/// What was read of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skim {
    /// the API it was read as
    pub api: Api,
    /// the whole body is JSON; if not, the fields hold what was read before the fault
    pub is_json: bool,
    /// a prefix was read, and it was JSON as far as it went
    pub truncated_ok: bool,
    /// the model named
    pub model: Option<String>,
    /// `stream` is true
    pub stream: bool,
    /// output limit per choice
    pub max_output: Option<u32>,
    /// the prompt
    pub facts: PromptFacts,
    /// `stream_options.include_usage` is true
    pub client_wants_usage: bool,
    /// choices per prompt: the larger of `n` and `best_of`, at least 1
    pub n: u32,
    /// hash of `prompt_cache_key`, else of `user`, else of Messages' `metadata.user_id`
    pub session: Option<u64>,
    /// the response that this one continues
    pub previous_response_id: Option<String>,
    /// where the value of `stream_options` lies in the body
    pub stream_options: Option<Range<usize>>,
}

/// Hash of a session key; the same for keys from bodies and from headers, on every machine.
pub fn session_hash(key: &[u8]) -> u64 {
    // FNV-1a, then the finaliser of SplitMix64 to spread short keys
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// Read a whole body.
pub fn skim(api: Api, body: &[u8]) -> Skim {
    let mut reader = Reader::new(api, body);
    let is_json = reader.read().is_ok();
    Skim {
        is_json,
        ..reader.finish()
    }
}

/// Read the beginning of a body of `content_length` bytes (`None`: unknown, nothing is
/// extrapolated). What was counted in the prefix is scaled to the whole length.
pub fn skim_prefix(api: Api, first_bytes: &[u8], content_length: Option<u64>) -> Skim {
    let mut reader = Reader::new(api, first_bytes);
    let outcome = reader.read();
    let cut = matches!(&outcome, Err(error) if error.is_eof());
    if cut {
        reader.count_unfinished_text();
    }
    let mut skim = Skim {
        is_json: outcome.is_ok(),
        truncated_ok: cut,
        ..reader.finish()
    };
    if let (true, Some(total)) = (cut, content_length) {
        scale(&mut skim.facts, total, first_bytes.len() as u64);
    }
    skim
}

fn scale(facts: &mut PromptFacts, total: u64, seen: u64) {
    if seen == 0 || total <= seen {
        return;
    }
    let times = |count: u64| {
        let scaled = u128::from(count) * u128::from(total) / u128::from(seen);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    };
    let text = &mut facts.text;
    for count in [
        &mut text.letters,
        &mut text.symbols,
        &mut text.two_byte,
        &mut text.three_byte,
        &mut text.four_byte,
        &mut facts.exact_tokens,
    ] {
        *count = times(*count);
    }
    facts.images = u32::try_from(times(u64::from(facts.images))).unwrap_or(u32::MAX);
}

/// Places in a body that hold prompt; each counts for itself, so that a doubled key's last value wins.
#[derive(Debug, Clone, Copy)]
enum Slot {
    Messages,
    Prompt,
    Input,
    System,
    Instructions,
    Tools,
    Query,
    Documents,
}

const SLOTS: usize = 8;

/// What one slot holds.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    text: TextCounts,
    exact_tokens: u64,
    images: u32,
    prompts: u32,
}

struct Reader<'b> {
    api: Api,
    body: &'b [u8],
    slots: [Counts; SLOTS],
    /// whether the value begun last is prompt text; tells what a cut body was cut in
    inside_text: Option<Slot>,
    model: Option<String>,
    stream: bool,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    max_output_tokens: Option<u32>,
    n: u32,
    best_of: u32,
    user: Option<u64>,
    prompt_cache_key: Option<u64>,
    previous_response_id: Option<String>,
    stream_options: Option<Range<usize>>,
    client_wants_usage: bool,
}

impl<'b> Reader<'b> {
    fn new(api: Api, body: &'b [u8]) -> Self {
        Reader {
            api,
            body,
            slots: [Counts::default(); SLOTS],
            inside_text: None,
            model: None,
            stream: false,
            max_tokens: None,
            max_completion_tokens: None,
            max_output_tokens: None,
            n: 1,
            best_of: 1,
            user: None,
            prompt_cache_key: None,
            previous_response_id: None,
            stream_options: None,
            client_wants_usage: false,
        }
    }

    fn read(&mut self) -> serde_json::Result<()> {
        let mut json = serde_json::Deserializer::from_slice(self.body);
        (&mut json).deserialize_any(Top(self))?;
        json.end()
    }

    fn counts(&mut self, slot: Slot) -> &mut Counts {
        &mut self.slots[slot as usize]
    }

    /// One pair of the top object.
    fn pair<'de: 'b, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let slot = match key {
            "messages" => Slot::Messages,
            "prompt" => Slot::Prompt,
            "input" => Slot::Input,
            "system" => Slot::System,
            "instructions" => Slot::Instructions,
            "tools" | "functions" => Slot::Tools,
            "query" | "text_1" => Slot::Query,
            "documents" | "text_2" => Slot::Documents,
            _ => return self.setting(key, map),
        };
        *self.counts(slot) = Counts::default();
        self.inside_text = Some(slot);
        match slot {
            Slot::Tools => {
                // templates print tools as JSON, so their JSON is what counts
                let raw: &RawValue = map.next_value()?;
                self.counts(slot).text = text::count(raw.get().as_bytes());
                Ok(())
            }
            Slot::Prompt => map.next_value_seed(Prompts { reader: self, slot }),
            Slot::Input if self.api != Api::Responses => {
                map.next_value_seed(Prompts { reader: self, slot })
            }
            _ => map.next_value_seed(Content { reader: self, slot }),
        }
    }

    fn setting<'de: 'b, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        map: &mut A,
    ) -> Result<(), A::Error> {
        self.inside_text = None;
        match key {
            "stream_options" => return self.stream_options(map.next_value()?),
            "metadata" => return self.metadata(map.next_value()?),
            "model"
            | "stream"
            | "max_tokens"
            | "max_completion_tokens"
            | "max_output_tokens"
            | "n"
            | "best_of"
            | "user"
            | "prompt_cache_key"
            | "previous_response_id" => {}
            _ => {
                map.next_value::<IgnoredAny>()?;
                return Ok(());
            }
        }
        let value: Scalar<'de> = map.next_value()?;
        match key {
            "model" => self.model = value.text_up_to(MODEL_BYTES_MAX),
            "stream" => self.stream = value.is_true(),
            "max_tokens" => self.max_tokens = value.count(),
            "max_completion_tokens" => self.max_completion_tokens = value.count(),
            "max_output_tokens" => self.max_output_tokens = value.count(),
            "n" => self.n = value.count().unwrap_or(1),
            "best_of" => self.best_of = value.count().unwrap_or(1),
            "user" => self.user = value.hash(),
            "prompt_cache_key" => self.prompt_cache_key = value.hash(),
            _ => self.previous_response_id = value.text_up_to(MODEL_BYTES_MAX),
        }
        Ok(())
    }

    fn stream_options<E>(&mut self, raw: &RawValue) -> Result<(), E> {
        let raw = raw.get();
        let start = (raw.as_ptr() as usize).saturating_sub(self.body.as_ptr() as usize);
        self.stream_options = Some(start..start + raw.len());
        let include = scalar::member(raw, "include_usage");
        self.client_wants_usage = include.is_some_and(|value| value.is_true());
        Ok(())
    }

    fn metadata<E>(&mut self, raw: &RawValue) -> Result<(), E> {
        if self.api == Api::Messages {
            self.user = scalar::member(raw.get(), "user_id").and_then(|value| value.hash());
        }
        Ok(())
    }

    /// A string cut by the end of a prefix is not seen by the reader; count what is there of it.
    fn count_unfinished_text(&mut self) {
        let Some(slot) = self.inside_text else { return };
        let Some(start) = text::unfinished_string(self.body) else {
            return;
        };
        let rest = text::count(&self.body[start..]);
        text::add(&mut self.counts(slot).text, rest);
    }

    fn finish(self) -> Skim {
        let mut facts = PromptFacts::default();
        for counts in self.slots {
            text::add(&mut facts.text, counts.text);
            facts.exact_tokens += counts.exact_tokens;
            facts.images = facts.images.saturating_add(counts.images);
            facts.prompts = facts.prompts.max(counts.prompts);
        }
        let n = self.n.max(self.best_of).max(1);
        facts.prompts = facts.prompts.max(1);
        facts.choices = facts.prompts.saturating_mul(n);
        Skim {
            api: self.api,
            is_json: false,
            truncated_ok: false,
            model: self.model,
            stream: self.stream,
            max_output: match self.api {
                Api::Responses => self.max_output_tokens,
                Api::Messages | Api::Completions => self.max_tokens,
                Api::Chat => self.max_completion_tokens.or(self.max_tokens),
                _ => self
                    .max_completion_tokens
                    .or(self.max_tokens)
                    .or(self.max_output_tokens),
            },
            facts,
            client_wants_usage: self.client_wants_usage,
            n,
            session: self.prompt_cache_key.or(self.user),
            previous_response_id: self.previous_response_id,
            stream_options: self.stream_options,
        }
    }
}

/// The top value: an object is read, anything else is skipped.
struct Top<'r, 'b>(&'r mut Reader<'b>);

impl<'de: 'b, 'b> Visitor<'de> for Top<'_, 'b> {
    type Value = ();

    scalar::skip!(bool i64 u64 f64 str unit seq);

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            self.0.pair(&key, &mut map)?;
        }
        Ok(())
    }
}
