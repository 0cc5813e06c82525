//! Counting characters by class.

use evenkeel_policies::shape::TextCounts;
use memchr::memchr2;

/// Characters of UTF-8 text by class.
pub fn count(text: &[u8]) -> TextCounts {
    let mut sum = TextCounts::default();
    // runs of 255 let every counter be a byte, which the compiler turns into vector code
    for run in text.chunks(255) {
        if run.is_ascii() {
            let letters = run
                .iter()
                .fold(0_u8, |sum, byte| sum + u8::from(is_letter(*byte)));
            sum.letters += u64::from(letters);
            sum.symbols += run.len() as u64 - u64::from(letters);
            continue;
        }
        let mut ascii = 0_u8;
        let mut letters = 0_u8;
        let mut leads = 0_u8;
        let mut from_three = 0_u8;
        let mut four = 0_u8;
        for &byte in run {
            ascii += u8::from(byte < 0x80);
            letters += u8::from(is_letter(byte));
            leads += u8::from(byte >= 0xC0);
            from_three += u8::from(byte >= 0xE0);
            four += u8::from(byte >= 0xF0);
        }
        sum.letters += u64::from(letters);
        sum.symbols += u64::from(ascii - letters);
        sum.two_byte += u64::from(leads - from_three);
        sum.three_byte += u64::from(from_three - four);
        sum.four_byte += u64::from(four);
    }
    sum
}

/// An ASCII letter or white space.
fn is_letter(byte: u8) -> bool {
    ((byte | 0x20).wrapping_sub(b'a') < 26) | (byte == b' ') | (byte.wrapping_sub(b'\t') < 5)
}

/// Add `more` to `sum`.
pub fn add(sum: &mut TextCounts, more: TextCounts) {
    sum.letters += more.letters;
    sum.symbols += more.symbols;
    sum.two_byte += more.two_byte;
    sum.three_byte += more.three_byte;
    sum.four_byte += more.four_byte;
}

/// Where the contents of a string begin that the end of `json` leaves open.
pub fn unfinished_string(json: &[u8]) -> Option<usize> {
    let mut open = None;
    let mut at = 0;
    while let Some(found) = memchr2(b'"', b'\\', json.get(at..)?) {
        let found = at + found;
        if json[found] == b'\\' {
            at = found + 2;
            continue;
        }
        at = found + 1;
        open = if open.is_some() { None } else { Some(at) };
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_the_length_in_utf8() {
        let counts = count("aZ \t\n1,é漢😀".as_bytes());
        let expected = TextCounts {
            letters: 5,
            symbols: 2,
            two_byte: 1,
            three_byte: 1,
            four_byte: 1,
        };
        assert_eq!(counts, expected);
        let long = "x1é".repeat(1000);
        assert_eq!(count(long.as_bytes()).chars(), 3000);
    }

    #[test]
    fn an_open_string_is_found_behind_escapes() {
        assert_eq!(unfinished_string(br#"{"a":"x\"y","b":"zz"#), Some(17));
        assert_eq!(unfinished_string(br#"{"a":"x\"y""#), None);
        assert_eq!(
            unfinished_string(br#"{"a":"x\"#),
            None,
            "cut in an escape: nothing to count"
        );
    }
}
