//! Asking an engine for token counts in place of a client that did not. Pure.
//!
//! Only the bytes of `stream_options.include_usage` change. The caller sends the new length, and
//! keeps the usage event that comes of it from the client.

use bytes::Bytes;
use evenkeel_policies::shape::Api;

use super::skim::Skim;
use super::skim::scalar::{Scalar, members};

const ASK: &str = r#"{"include_usage":true}"#;

/// The body with the question added; `None` if there is nothing to ask or the client asks itself.
///
/// Nothing is asked of a request that is not streamed (engines refuse `stream_options` there), of
/// an API that has no such option, or where the client set `continuous_usage_stats`: with usage on,
/// that would put counts into every event of a client that did not ask for any.
pub fn ask_usage(body: &Bytes, skim: &Skim) -> Option<Bytes> {
    let fits = matches!(skim.api, Api::Chat | Api::Completions) && skim.is_json && skim.stream;
    if !fits || skim.client_wants_usage {
        return None;
    }
    let Some(options) = skim.stream_options.clone() else {
        let open = body.iter().position(|byte| *byte == b'{')?;
        return Some(spliced(
            body,
            open + 1,
            open + 1,
            &format!("\"stream_options\":{ASK},"),
        ));
    };
    let raw = std::str::from_utf8(body.get(options.clone())?).ok()?;
    if raw == "null" {
        return Some(spliced(body, options.start, options.end, ASK));
    }
    let members = members(raw)?;
    let continuous = members.iter().any(|(key, value)| {
        key == "continuous_usage_stats"
            && matches!(serde_json::from_str(value), Ok(Scalar::Bool(true)))
    });
    if continuous {
        return None;
    }
    if members.is_empty() {
        return Some(spliced(body, options.start, options.end, ASK));
    }
    if let Some((_, value)) = members.iter().rfind(|(key, _)| key == "include_usage") {
        let start = options.start + (value.as_ptr() as usize - raw.as_ptr() as usize);
        return Some(spliced(body, start, start + value.len(), "true"));
    }
    let inside = options.start + 1;
    Some(spliced(body, inside, inside, "\"include_usage\":true,"))
}

fn spliced(body: &[u8], start: usize, end: usize, insert: &str) -> Bytes {
    let mut out = Vec::with_capacity(body.len() + insert.len());
    out.extend_from_slice(&body[..start]);
    out.extend_from_slice(insert.as_bytes());
    out.extend_from_slice(&body[end..]);
    Bytes::from(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::proxy::skim::skim;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn asked(api: Api, body: &str) -> Option<String> {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let asked = ask_usage(&body, &skim(api, &body))?;
        Some(String::from_utf8(asked.to_vec()).unwrap())
    }

    fn chat(body: &str) -> Option<String> {
        asked(Api::Chat, body)
    }

    #[test]
    fn a_streamed_request_without_options_is_asked_for_usage() {
        let body = " {\"stream\": true, \"seed\":9007199254740993, \"x\":1.0}\n";
        let expected = " {\"stream_options\":{\"include_usage\":true},\"stream\": true, \"seed\":9007199254740993, \"x\":1.0}\n";
        assert_eq!(chat(body).unwrap(), expected);
        assert!(asked(Api::Completions, body).is_some());
    }

    #[test]
    fn null_empty_and_false_count_as_not_asked() {
        let expected = r#"{"stream":true,"stream_options":{"include_usage":true},"n":1}"#;
        for options in [
            "null",
            "{}",
            "{ }",
            r#"{"include_usage":false}"#,
            r#"{"include_usage":null}"#,
        ] {
            let body = format!(r#"{{"stream":true,"stream_options":{options},"n":1}}"#);
            assert_eq!(chat(&body).unwrap(), expected, "{options}");
        }
    }

    #[test]
    fn other_options_stay_as_they_are() {
        let body = r#"{"stream":true,"stream_options":{ "include_obfuscation" : false }}"#;
        let expected = r#"{"stream":true,"stream_options":{"include_usage":true, "include_obfuscation" : false }}"#;
        assert_eq!(chat(body).unwrap(), expected);
    }

    #[test]
    fn the_last_of_doubled_options_is_the_one_changed() {
        let body =
            r#"{"stream_options":{"include_usage":true},"stream":true,"stream_options":null}"#;
        let expected = r#"{"stream_options":{"include_usage":true},"stream":true,"stream_options":{"include_usage":true}}"#;
        assert_eq!(chat(body).unwrap(), expected);
    }

    #[test]
    fn nothing_is_asked_where_it_would_harm() {
        for body in [
            r#"{"stream":false}"#,
            r#"{"model":"m"}"#,
            r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
            r#"{"stream":true,"stream_options":{"continuous_usage_stats":true}}"#,
            r#"{"stream":true,"stream_options":"yes"}"#,
            r#"{"stream":true"#,
            "[]",
            "",
        ] {
            assert_eq!(chat(body), None, "{body}");
        }
        for api in [Api::Responses, Api::Messages, Api::Embeddings, Api::Other] {
            assert_eq!(asked(api, r#"{"stream":true}"#), None);
        }
    }

    fn options() -> impl Strategy<Value = Option<Value>> {
        let keys = proptest::collection::btree_map(
            prop_oneof![Just("include_usage".to_owned()), "[a-z\"\\\\é]{1,6}"],
            prop_oneof![
                Just(json!(null)),
                Just(json!(false)),
                any::<i64>().prop_map(Value::from)
            ],
            0..4,
        );
        proptest::option::of(prop_oneof![
            Just(json!(null)),
            keys.prop_map(|keys| json!(keys))
        ])
    }

    proptest! {
        #[test]
        fn asking_changes_include_usage_and_nothing_else(options in options(), text in ".*", pretty: bool) {
            let mut value = json!({"a": text, "stream": true, "messages": [{"content": text}], "z": u64::MAX});
            if let Some(options) = options {
                value["stream_options"] = options;
            }
            let body = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let changed: Value = serde_json::from_str(&chat(&body).unwrap()).unwrap();
            if !value["stream_options"].is_object() {
                value["stream_options"] = json!({});
            }
            value["stream_options"]["include_usage"] = json!(true);
            prop_assert_eq!(changed, value);
        }
    }
}
