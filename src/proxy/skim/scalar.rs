//! Single values: read whatever their type, used only where they fit.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::session_hash;

/// Visitor methods that take a value of the named kinds and do nothing with it.
macro_rules! skip {
    ($($kind:ident)*) => {
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("any JSON value")
        }
        $($crate::proxy::skim::scalar::skip!(@ $kind);)*
    };
    (@ bool) => { fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> { Ok(Default::default()) } };
    (@ i64) => { fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> { Ok(Default::default()) } };
    (@ u64) => { fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> { Ok(Default::default()) } };
    (@ f64) => { fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> { Ok(Default::default()) } };
    (@ str) => { fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> { Ok(Default::default()) } };
    (@ unit) => { fn visit_unit<E>(self) -> Result<Self::Value, E> { Ok(Default::default()) } };
    (@ seq) => {
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok(Default::default())
        }
    };
    (@ map) => {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(Default::default())
        }
    };
}
pub(crate) use skip;

/// A key of an object, borrowed unless it has escapes.
#[derive(Deserialize)]
pub struct Key<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// A value that is used only if it is a number, a string or a truth value.
#[derive(Debug, Default)]
pub enum Scalar<'a> {
    /// `true` or `false`
    Bool(bool),
    /// a whole number, 0 or more
    Whole(u64),
    /// a string
    Text(Cow<'a, str>),
    /// anything else
    #[default]
    Other,
}

impl Scalar<'_> {
    /// It is `true`.
    pub fn is_true(&self) -> bool {
        matches!(self, Scalar::Bool(true))
    }

    /// A count; one too large for the type is the largest.
    pub fn count(&self) -> Option<u32> {
        match self {
            Scalar::Whole(number) => Some(u32::try_from(*number).unwrap_or(u32::MAX)),
            _ => None,
        }
    }

    /// A string that is not empty, cut to `bytes_max`.
    pub fn text_up_to(&self, bytes_max: usize) -> Option<String> {
        match self {
            Scalar::Text(text) if !text.is_empty() => {
                Some(text[..text.floor_char_boundary(bytes_max)].to_owned())
            }
            _ => None,
        }
    }

    /// Hash of a string that is not empty.
    pub fn hash(&self) -> Option<u64> {
        match self {
            Scalar::Text(text) if !text.is_empty() => Some(session_hash(text.as_bytes())),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Scalar<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar<'de>;

    skip!(i64 unit seq map);

    fn visit_bool<E>(self, value: bool) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Whole(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Scalar<'de>, E> {
        // engines take 50.0 for 50
        let whole = value >= 0.0 && value.fract() == 0.0;
        Ok(if whole {
            Scalar::Whole(value as u64)
        } else {
            Scalar::Other
        })
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(Cow::Owned(value.to_owned())))
    }
}

/// Members of the object `raw`, in order, each as its JSON; `None` if it is no object.
pub fn members(raw: &str) -> Option<Vec<(Cow<'_, str>, &str)>> {
    struct Members;
    impl<'de> Visitor<'de> for Members {
        type Value = Option<Vec<(Cow<'de, str>, &'de str)>>;

        skip!(bool i64 u64 f64 str unit seq);

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = Vec::new();
            while let Some((Key(key), value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
                found.push((key, value.get()));
            }
            Ok(Some(found))
        }
    }
    serde_json::Deserializer::from_str(raw)
        .deserialize_any(Members)
        .ok()
        .flatten()
}

/// The last member named `key` of the object `raw`.
pub fn member<'a>(raw: &'a str, key: &str) -> Option<Scalar<'a>> {
    let (_, value) = members(raw)?.into_iter().rfind(|(name, _)| name == key)?;
    serde_json::from_str(value).ok()
}
