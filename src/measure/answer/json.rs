//! A tolerant view of the JSON of an event: only the keys that figures need, borrowed strings.
//!
//! Any value may have any type: an odd field is not the meter's business to refuse. Keys that are
//! not needed are skipped unread, lists are kept up to a length, so memory stays in proportion.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Elements kept of one list.
const LIST_CAP: usize = 256;

/// A JSON value, less what is not needed.
#[derive(Debug, Clone, PartialEq)]
pub enum Json<'a> {
    /// null, or a value that is not kept
    Null,
    /// true or false
    Bool(bool),
    /// any number
    Number(f64),
    /// a string; borrowed if it has no escapes
    Text(Cow<'a, str>),
    /// a list, up to a cap
    List(Vec<Json<'a>>),
    /// an object: known keys only, in order
    Object(Vec<(&'static str, Json<'a>)>),
}

macro_rules! known_keys {
    ($($key:literal)*) => {
        fn known(key: &str) -> Option<&'static str> {
            match key {
                $($key => Some($key),)*
                _ => None,
            }
        }
    };
}

known_keys! {
    "type" "object" "error" "choices" "usage" "index" "delta" "message" "text" "content"
    "reasoning_content" "reasoning" "refusal" "tool_calls" "function_call" "function" "name"
    "arguments" "finish_reason" "stop_reason" "code" "prompt_tokens" "completion_tokens"
    "input_tokens" "output_tokens" "prompt_tokens_details" "input_tokens_details" "cached_tokens"
    "cache_read_input_tokens" "cache_creation_input_tokens" "response" "status"
    "incomplete_details" "reason" "thinking" "partial_json"
}

impl<'a> Json<'a> {
    /// Reads a document; `None` if it is not one.
    pub fn read(bytes: &'a [u8]) -> Option<Json<'a>> {
        serde_json::from_slice(bytes).ok()
    }

    /// The value under a key (the last, if doubled); null counts as absent.
    pub fn get(&self, key: &str) -> Option<&Json<'a>> {
        let Json::Object(fields) = self else {
            return None;
        };
        let (_, value) = fields.iter().rev().find(|(name, _)| *name == key)?;
        (*value != Json::Null).then_some(value)
    }

    /// The string, if it is one.
    pub fn text(&self) -> Option<&Cow<'a, str>> {
        match self {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The string under a key.
    pub fn text_at(&self, key: &str) -> Option<&Cow<'a, str>> {
        self.get(key)?.text()
    }

    /// The count under a key: a whole number, not negative.
    pub fn count_at(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Json::Number(number) if *number >= 0.0 => Some(*number as u64),
            _ => None,
        }
    }

    /// The elements, if it is a list; else none.
    pub fn list_at(&self, key: &str) -> &[Json<'a>] {
        match self.get(key) {
            Some(Json::List(items)) => items,
            _ => &[],
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Json<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value as f64))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value))
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json<'de>, A::Error> {
        let mut items = Vec::new();
        while items.len() < LIST_CAP {
            match list.next_element()? {
                Some(item) => items.push(item),
                None => return Ok(Json::List(items)),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json<'de>, A::Error> {
        let mut fields = Vec::new();
        while let Some(Key(key)) = map.next_key()? {
            match key {
                Some(key) if fields.len() < LIST_CAP => fields.push((key, map.next_value()?)),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Json::Object(fields))
    }
}

struct Key(Option<&'static str>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(KeyVisitor)
    }
}

struct KeyVisitor;

impl Visitor<'_> for KeyVisitor {
    type Value = Key;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Key, E> {
        Ok(Key(known(key)))
    }
}
