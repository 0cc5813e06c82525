//! The numbers of a trace: token counts and times, taken only where they make sense.

use super::TOKENS_MAX;

/// Characters of a field that an error repeats.
const SHOWN_CHARS: usize = 60;

/// A field as an error shows it.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// A count of tokens; 0 is one.
pub(super) fn tokens(field: &str, text: &str) -> Result<u32, String> {
    let wrong = || {
        let found = shown(text);
        Err(format!(
            "{field} is {found:?}: a whole number of tokens from 0 to {TOKENS_MAX} is wanted"
        ))
    };
    let count = match text.parse::<u64>() {
        Ok(count) => count as f64,
        // "374.0", as some tools write counts
        Err(_) => text.parse::<f64>().unwrap_or(f64::NAN),
    };
    if count.fract() == 0.0 && (0.0..=f64::from(TOKENS_MAX)).contains(&count) {
        return Ok(count as u32);
    }
    wrong()
}

/// A time in units of `unit_ns`, in nanoseconds.
pub(super) fn time_ns(field: &str, text: &str, unit_ns: f64) -> Result<i64, String> {
    let ns = text.parse::<f64>().unwrap_or(f64::NAN) * unit_ns;
    if (0.0..TIME_NS_MOST).contains(&ns) {
        return Ok(ns.round() as i64);
    }
    let found = shown(text);
    Err(format!(
        "{field} is {found:?}: a time of 0 or more is wanted"
    ))
}

/// Two centuries: all that is a time, since 1970 as well, and far from the end of 64 bits.
const TIME_NS_MOST: f64 = 6.3e18;

/// A number that is not negative.
pub(super) fn not_negative(field: &str, text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err(format!(
            "{field} is {:?}: a number of 0 or more is wanted",
            shown(text)
        )),
    }
}

/// What is wrong with a line's JSON; the place is a column, for its line is named already.
pub(super) fn json_words(error: &serde_json::Error) -> String {
    let words = error.to_string();
    match words.split_once(" at line ") {
        Some((what, _)) => format!("{what} in column {}", error.column()),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_counts_of_tokens_pass() {
        assert_eq!(tokens("x", "0"), Ok(0));
        assert_eq!(tokens("x", "374.0"), Ok(374));
        assert_eq!(tokens("x", "16777216"), Ok(TOKENS_MAX));
        for text in [
            "",
            "-1",
            "NaN",
            "inf",
            "1.5",
            "16777217",
            "99999999999999999999",
            "1e400",
            "0x10",
        ] {
            let error = tokens("ContextTokens", text);
            assert!(
                error.is_err_and(|words| words.contains("ContextTokens")),
                "{text}"
            );
        }
    }

    #[test]
    fn only_times_from_zero_on_pass() {
        assert_eq!(time_ns("t", "1.5", 1e9), Ok(1_500_000_000));
        // of times since 1970 some 256 ns are what 64 bits of floating point tell apart
        let since_1970 = time_ns("t", "1700000000.000001", 1e9).unwrap_or(0);
        assert!(
            since_1970.abs_diff(1_700_000_000_000_001_000) <= 256,
            "{since_1970}"
        );
        for text in ["-5", "NaN", "inf", "1e30", "noon"] {
            assert!(time_ns("t", text, 1e9).is_err(), "{text}");
        }
    }
}
