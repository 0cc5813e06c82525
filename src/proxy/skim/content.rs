//! The parts of a body that hold prompt: messages with their parts, and lists of prompts.

use evenkeel_policies::shape::TextCounts;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::scalar::{self, Key, Scalar};
use super::{Reader, Slot, text};

/// Messages, parts, and blocks of every API: strings are text, lists hold more of the same, and of
/// objects the members that reach the prompt are read.
pub struct Content<'r, 'b> {
    pub reader: &'r mut Reader<'b>,
    pub slot: Slot,
}

impl<'r, 'b> Content<'r, 'b> {
    fn again(&mut self) -> Content<'_, 'b> {
        Content {
            reader: self.reader,
            slot: self.slot,
        }
    }

    fn add(&mut self, more: TextCounts) {
        text::add(&mut self.reader.counts(self.slot).text, more);
    }
}

impl<'de> DeserializeSeed<'de> for Content<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.reader.inside_text = Some(self.slot);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Content<'_, '_> {
    type Value = ();

    scalar::skip!(bool i64 u64 f64 unit);

    fn visit_str<E>(mut self, value: &str) -> Result<(), E> {
        self.add(text::count(value.as_bytes()));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(self.again())?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut image = false;
        while let Some(Key(key)) = map.next_key()? {
            match key.as_ref() {
                "content" | "text" | "name" | "function" | "arguments" | "output" | "refusal"
                | "tool_calls" => {
                    map.next_value_seed(self.again())?;
                }
                // a tool's input as templates print it
                "input" => {
                    let raw: &RawValue = map.next_value()?;
                    self.add(text::count(raw.get().as_bytes()));
                }
                "type" => {
                    let kind: Scalar<'de> = map.next_value()?;
                    image |= matches!(&kind, Scalar::Text(kind) if is_image(kind));
                }
                "source" => {
                    self.reader.inside_text = None;
                    let source = map.next_value_seed(Source)?;
                    self.add(source);
                }
                other => {
                    self.reader.inside_text = None;
                    image |= other == "image_url";
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let counts = self.reader.counts(self.slot);
        counts.images = counts.images.saturating_add(u32::from(image));
        Ok(())
    }
}

fn is_image(kind: &str) -> bool {
    matches!(
        kind,
        "image"
            | "image_url"
            | "input_image"
            | "image_pil"
            | "image_embeds"
            | "computer_screenshot"
    )
}

/// Anthropic's `source` of a picture or document; only a document of plain text is text.
struct Source;

impl<'de> DeserializeSeed<'de> for Source {
    type Value = TextCounts;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<TextCounts, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Source {
    type Value = TextCounts;

    scalar::skip!(bool i64 u64 f64 str unit seq);

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TextCounts, A::Error> {
        let mut is_text = false;
        let mut data = Scalar::Other;
        while let Some(Key(key)) = map.next_key()? {
            match key.as_ref() {
                "type" => {
                    let kind: Scalar<'de> = map.next_value()?;
                    is_text = matches!(&kind, Scalar::Text(kind) if kind == "text");
                }
                "data" => data = map.next_value()?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match data {
            Scalar::Text(data) if is_text => Ok(text::count(data.as_bytes())),
            _ => Ok(TextCounts::default()),
        }
    }
}

/// A prompt, or a list of them: text, or tokens by id.
pub struct Prompts<'r, 'b> {
    pub reader: &'r mut Reader<'b>,
    pub slot: Slot,
}

impl<'de> DeserializeSeed<'de> for Prompts<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Prompts<'_, '_> {
    type Value = ();

    scalar::skip!(bool i64 u64 f64 unit);

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        let counts = self.reader.counts(self.slot);
        text::add(&mut counts.text, text::count(value.as_bytes()));
        counts.prompts = 1;
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut prompts = 0_u32;
        let mut ids = false;
        while let Some(item) = seq.next_element_seed(Item {
            reader: self.reader,
            slot: self.slot,
        })? {
            match item {
                Found::Id => ids = true,
                Found::Prompt => prompts = prompts.saturating_add(1),
            }
        }
        self.reader.counts(self.slot).prompts = prompts.saturating_add(u32::from(ids));
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        Content {
            reader: self.reader,
            slot: self.slot,
        }
        .visit_map(map)
    }
}

/// What one item of a list of prompts was.
#[derive(Default)]
enum Found {
    /// one token: the whole list is one prompt
    Id,
    /// a prompt of its own
    #[default]
    Prompt,
}

struct Item<'r, 'b> {
    reader: &'r mut Reader<'b>,
    slot: Slot,
}

impl<'de> DeserializeSeed<'de> for Item<'_, '_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Item<'_, '_> {
    type Value = Found;

    scalar::skip!(bool i64 f64 unit);

    fn visit_u64<E>(self, _: u64) -> Result<Found, E> {
        self.reader.counts(self.slot).exact_tokens += 1;
        Ok(Found::Id)
    }

    fn visit_str<E>(self, value: &str) -> Result<Found, E> {
        text::add(
            &mut self.reader.counts(self.slot).text,
            text::count(value.as_bytes()),
        );
        Ok(Found::Prompt)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Found, A::Error> {
        while seq
            .next_element_seed(Item {
                reader: self.reader,
                slot: self.slot,
            })?
            .is_some()
        {}
        Ok(Found::Prompt)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Found, A::Error> {
        Content {
            reader: self.reader,
            slot: self.slot,
        }
        .visit_map(map)?;
        Ok(Found::Prompt)
    }
}
