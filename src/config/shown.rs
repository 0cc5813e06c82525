//! The text of a configuration as errors may show it: a secret can stand in any string, so strings are masked.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Keys whose strings help to find a place.
const PLAIN: [&str; 6] = ["name", "url", "kind", "models", "aliases", "listen"];

const MASK: u8 = b'*';

/// What a line of TOML is made of; in a text that is not TOML, the rest may be a secret without quotes.
const STRUCTURE: &[u8] = b" \t\r\n\"'[]{}=,#";

/// `text` with comments and strings masked, byte for byte, but for plain ones.
pub fn masked(text: &str) -> String {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut bytes = text.as_bytes().to_vec();
    if errors.is_empty() {
        mask_table(document.get_ref(), &mut bytes);
        mask_comments(&mut bytes);
    } else {
        mask_values(&mut bytes);
    }
    // whole characters were masked, so it is text still
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `masked` with the string at `at` as it stands in `text`; without it where that may be a secret.
pub fn quoting(masked: &str, text: &str, at: &Range<usize>) -> String {
    let is_string = |quoted: &&str| quoted.starts_with(['"', '\'']) && !has_user(quoted);
    let quoted = text.get(at.clone()).filter(is_string);
    let around = masked.get(..at.start).zip(masked.get(at.end..));
    match (quoted, around) {
        (Some(quoted), Some((before, after))) => [before, quoted, after].concat(),
        _ => masked.to_owned(),
    }
}

/// `message` with what stands in double quotes masked: serde repeats a value that it does not like.
pub fn without_quotes(message: &str) -> String {
    let parts = message.split('"').enumerate();
    let parts = parts.map(|(at, part)| if at % 2 == 1 { "***" } else { part });
    parts.collect::<Vec<_>>().join("\"")
}

/// A URL with a user may hold a password.
pub fn has_user(text: &str) -> bool {
    text.contains('@')
}

fn mask_table(table: &DeTable<'_>, bytes: &mut [u8]) {
    for (key, value) in table {
        mask_value(PLAIN.contains(&key.get_ref().as_ref()), value, bytes);
    }
}

fn mask_value(plain: bool, value: &Spanned<DeValue<'_>>, bytes: &mut [u8]) {
    match value.get_ref() {
        DeValue::String(text) if !plain || has_user(text) => {
            let quotes = |byte: &u8| matches!(byte, b'"' | b'\'' | b'\n' | b'\r');
            let inside = bytes.get_mut(value.span()).unwrap_or_default().iter_mut();
            inside
                .filter(|byte| !quotes(byte))
                .for_each(|byte| *byte = MASK);
        }
        DeValue::Array(items) => items.iter().for_each(|item| mask_value(plain, item, bytes)),
        DeValue::Table(table) => mask_table(table, bytes),
        _ => {}
    }
}

/// After the strings: what is left of `#` begins a comment.
fn mask_comments(bytes: &mut [u8]) {
    for line in bytes.split_mut(|byte| *byte == b'\n') {
        let comment = line.iter().position(|byte| *byte == b'#');
        mask(
            comment
                .and_then(|at| line.get_mut(at..))
                .unwrap_or_default(),
        );
    }
}

/// Masks what follows a key, and lines that have none.
fn mask_values(bytes: &mut [u8]) {
    for line in bytes.split_mut(|byte| *byte == b'\n') {
        let is_header = line.trim_ascii_start().starts_with(b"[");
        let value = line.iter().position(|byte| *byte == b'=').unwrap_or(0);
        if !is_header {
            mask(line.get_mut(value..).unwrap_or_default());
        }
    }
}

fn mask(bytes: &mut [u8]) {
    bytes
        .iter_mut()
        .filter(|byte| !STRUCTURE.contains(byte))
        .for_each(|byte| *byte = MASK);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TEXT: &str =
        "[admin]\ntoken = \"a:1\" # or \"b:1\"\nkeys = [{ name = 'k1', key = 'k#2', n = 7 }]\n";

    fn place(word: &str, text: &str) -> Range<usize> {
        let at = text.find(word).unwrap();
        at..at + word.len()
    }

    #[test]
    fn strings_and_comments_are_masked_and_keys_names_and_numbers_shown() {
        assert_eq!(
            masked(TEXT),
            "[admin]\ntoken = \"***\" # ** \"***\"\nkeys = [{ name = 'k1', key = '***', n = 7 }]\n"
        );
    }

    #[test]
    fn the_string_an_error_is_about_is_shown_unless_it_is_a_url_with_a_user() {
        let quoting = |word: &str, text: &str| quoting(&masked(text), text, &place(word, text));
        let kept = quoting("'k#2'", TEXT);
        assert!(kept.contains("'k#2'") && !kept.contains("a:1"), "{kept}");
        let table = quoting("[{ name = 'k1', key = 'k#2', n = 7 }]", TEXT);
        assert_eq!(table, masked(TEXT));
        let (url, value) = ("url = \"http://me:pass@host\"", "\"http://me:pass@host\"");
        assert_eq!(quoting(value, url), "url = \"*******************\"");
    }

    #[test]
    fn of_a_text_that_is_no_toml_only_the_structure_is_shown() {
        assert_eq!(
            masked("[admin]\ntoken = pass-1\nkeys = [\"a-b\nc\n"),
            "[admin]\ntoken = ******\nkeys = [\"***\n*\n"
        );
    }

    #[test]
    fn masking_keeps_lengths_and_lines_whatever_the_text() {
        let strange = [
            "a = \"\u{fc}\u{4e16}\"\nb = 1",
            "\u{fc} = \u{4e16}",
            "",
            "\n\n",
            "=",
            "[",
            "a = '''\nx\n'''",
        ];
        for text in strange {
            let masked = masked(text);
            assert_eq!(masked.len(), text.len(), "{text}");
            assert_eq!(masked.lines().count(), text.lines().count(), "{text}");
        }
    }

    #[test]
    fn a_message_keeps_no_value() {
        assert_eq!(
            without_quotes("invalid type: string \"hunter2\", expected a table"),
            "invalid type: string \"***\", expected a table"
        );
    }
}
