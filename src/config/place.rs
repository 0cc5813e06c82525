//! Where in the file a key or value stands, by its path.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One step from a table or list to what is in it.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// a key of a table
    Key(&'a str),
    /// a place in a list
    Index(usize),
}

/// Span of the value at `path`, or of the nearest thing above it that is in the file.
pub fn span_of(document: &Spanned<DeTable<'_>>, path: &[Step<'_>]) -> Range<usize> {
    let Some((Step::Key(first), rest)) = path.split_first() else {
        return document.span();
    };
    let Some((_, value)) = entry(document.get_ref(), first) else {
        return 0..0;
    };
    let mut value = value;
    for step in rest {
        let Some(inner) = next(value, step) else {
            break;
        };
        value = inner;
    }
    value.span()
}

/// The value at `path`, if it is in the file.
pub fn value_at<'t, 'i>(
    document: &'t Spanned<DeTable<'i>>,
    path: &[Step<'_>],
) -> Option<&'t Spanned<DeValue<'i>>> {
    let (Step::Key(first), rest) = path.split_first()? else {
        return None;
    };
    let (_, mut value) = entry(document.get_ref(), first)?;
    for step in rest {
        value = next(value, step)?;
    }
    Some(value)
}

fn next<'t, 'i>(
    value: &'t Spanned<DeValue<'i>>,
    step: &Step<'_>,
) -> Option<&'t Spanned<DeValue<'i>>> {
    match (value.get_ref(), step) {
        (DeValue::Table(table), Step::Key(key)) => entry(table, key).map(|(_, inner)| inner),
        (DeValue::Array(items), Step::Index(index)) => items.get(*index),
        _ => None,
    }
}

/// The steps of a key as people write it, `lanes[0].reserve`.
pub fn steps(key: &str) -> Vec<Step<'_>> {
    let words = key.split(['.', '[', ']']).filter(|word| !word.is_empty());
    words
        .map(|word| word.parse().map_or(Step::Key(word), Step::Index))
        .collect()
}

type Entry<'t, 'i> = (
    &'t Spanned<std::borrow::Cow<'i, str>>,
    &'t Spanned<DeValue<'i>>,
);

fn entry<'t, 'i>(table: &'t DeTable<'i>, key: &str) -> Option<Entry<'t, 'i>> {
    table.iter().find(|(name, _)| name.get_ref() == key)
}
