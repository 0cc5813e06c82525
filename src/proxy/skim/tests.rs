//! Bodies of every API and what is read of them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use proptest::prelude::*;

use super::*;

fn chars(skim: &Skim) -> u64 {
    skim.facts.text.chars()
}

/// The request bodies of the wire cases, each with what its sidecar expects.
#[test]
fn wire_bodies_give_their_expected_values() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
    let mut read = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "json") {
            continue;
        }
        let body = std::fs::read(&path).unwrap();
        let sidecar = std::fs::read_to_string(format!("{}.toml", path.display())).unwrap();
        let sidecar: toml::Table = sidecar.parse().unwrap();
        let expect = sidecar["expect"].as_table().unwrap();
        let api = if body.windows(10).any(|bytes| bytes == b"\"messages\"") {
            Api::Chat
        } else {
            Api::Completions
        };
        let skim = skim(api, &body);
        assert!(skim.is_json);
        for (key, value) in expect {
            let got: toml::Value = match key.as_str() {
                "text_chars" => (chars(&skim) as i64).into(),
                "exact_tokens" => (skim.facts.exact_tokens as i64).into(),
                "images" => i64::from(skim.facts.images).into(),
                "prompts" => i64::from(skim.facts.prompts).into(),
                "choices" => i64::from(skim.facts.choices).into(),
                "max_output" => i64::from(skim.max_output.unwrap()).into(),
                "client_wants_usage" => skim.client_wants_usage.into(),
                "forward" => {
                    let asked = crate::proxy::usage_ask::ask_usage(&body.clone().into(), &skim);
                    assert!(asked.is_none(), "goes on verbatim even when told to ask");
                    "verbatim".into()
                }
                other => panic!("{}: nothing known of {other}", path.display()),
            };
            assert_eq!(&got, value, "{}: {key}", path.display());
        }
        if !expect.contains_key("max_output") {
            assert_eq!(skim.max_output, None, "{}", path.display());
        }
        read += 1;
    }
    assert!(read >= 6, "only {read} bodies in {}", folder.display());
}

#[test]
fn chat_counts_text_of_messages_tool_calls_and_tools() {
    let body = br#"{"model":"m","stream":true,"n":3,"user":"u1","messages":[
        {"role":"system","content":"abc"},
        {"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function",
            "function":{"name":"go","arguments":"{\"a\":1}"}}]},
        {"role":"tool","tool_call_id":"call_1","content":[{"type":"text","text":"done"}]},
        {"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AAAAAAAA","format":"wav"}}]}]}"#;
    let skim = skim(Api::Chat, body);
    assert!(skim.is_json && skim.stream);
    assert_eq!(chars(&skim), 3 + 2 + 7 + 4);
    assert_eq!((skim.n, skim.facts.prompts, skim.facts.choices), (3, 1, 3));
    assert_eq!(skim.session, Some(session_hash(b"u1")));
    assert_eq!(skim.max_output, None);

    let with_tools = br#"{"tools":[{"a":"b"}],"messages":[]}"#;
    assert_eq!(chars(&super::skim(Api::Chat, with_tools)), 11);
}

#[test]
fn messages_count_system_blocks_and_tool_results_but_no_base64() {
    let body = br#"{"model":"m","max_tokens":9,"metadata":{"user_id":"u1"},
        "system":[{"type":"text","text":"abc","cache_control":{"type":"ephemeral"}}],
        "messages":[{"role":"user","content":[
            {"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAAAAAAAAAAAAAA"}},
            {"type":"document","source":{"data":"plain","media_type":"text/plain","type":"text"}},
            {"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAAAAAA"}},
            {"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"xy"},
                {"type":"image","source":{"type":"url","url":"https://pictures.example/a.png"}}]}]},
            {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"k":1}}]}]}"#;
    let skim = skim(Api::Messages, body);
    assert_eq!(chars(&skim), 3 + 5 + 2 + 1 + 7);
    assert_eq!(skim.facts.images, 2);
    assert_eq!(skim.max_output, Some(9));
    assert_eq!(skim.session, Some(session_hash(b"u1")));
}

#[test]
fn responses_count_input_items_and_instructions() {
    let body = br#"{"model":"m","max_output_tokens":7,"max_tokens":1,"instructions":"be",
        "previous_response_id":"resp_1","prompt_cache_key":"k","user":"u","input":[
            {"role":"user","content":[{"type":"input_text","text":"abc"},
                {"type":"input_image","image_url":"data:image/png;base64,AAAAAAAA"}]},
            {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
            {"type":"function_call_output","call_id":"c","output":"ok"}]}"#;
    let skim = skim(Api::Responses, body);
    assert_eq!(chars(&skim), 2 + 3 + 1 + 2 + 2);
    assert_eq!(skim.facts.images, 1);
    assert_eq!(skim.max_output, Some(7));
    assert_eq!(skim.previous_response_id.as_deref(), Some("resp_1"));
    assert_eq!(skim.session, Some(session_hash(b"k")));
    let plain = super::skim(Api::Responses, br#"{"input":"hello"}"#);
    assert_eq!((chars(&plain), plain.facts.prompts), (5, 1));
}

#[test]
fn lists_of_prompts_may_be_mixed_and_embeddings_have_them_too() {
    let mixed = skim(
        Api::Completions,
        br#"{"prompt":["ab",[1,2,3]],"n":2,"best_of":4}"#,
    );
    assert_eq!((chars(&mixed), mixed.facts.exact_tokens), (2, 3));
    assert_eq!((mixed.facts.prompts, mixed.facts.choices), (2, 8));
    let embeddings = skim(Api::Embeddings, br#"{"input":["ab","c"]}"#);
    assert_eq!((chars(&embeddings), embeddings.facts.prompts), (3, 2));
    let rerank = skim(
        Api::Other,
        br#"{"query":"ab","documents":["c",{"text":"de"}]}"#,
    );
    assert_eq!(chars(&rerank), 5);
}

#[test]
fn the_last_of_doubled_keys_wins() {
    let body = br#"{"model":"a","messages":[{"content":"long text"}],"max_tokens":1,
        "messages":[{"content":"ab"}],"max_tokens":2,"model":"b"}"#;
    let skim = skim(Api::Chat, body);
    assert_eq!(
        (skim.model.as_deref(), skim.max_output, chars(&skim)),
        (Some("b"), Some(2), 2)
    );
}

#[test]
fn odd_values_are_left_to_the_engine() {
    let body = br#"{"model":7,"stream":"yes","max_tokens":-1,"n":null,"user":"","messages":"plain",
        "stream_options":3,"metadata":[],"input":{"a":1},"seed":123456789012345678901234567890}"#;
    let skim = skim(Api::Chat, body);
    assert!(skim.is_json);
    assert_eq!(
        (skim.model, skim.stream, skim.max_output, skim.n),
        (None, false, None, 1)
    );
    assert_eq!(skim.session, None);
    assert_eq!(
        super::skim(Api::Chat, br#"{"max_tokens":50.0}"#).max_output,
        Some(50)
    );
    assert_eq!(
        super::skim(Api::Chat, br#"{"max_tokens":99999999999}"#).max_output,
        Some(u32::MAX)
    );
    let long = format!(r#"{{"model":"{}"}}"#, "é".repeat(1000));
    assert_eq!(
        super::skim(Api::Chat, long.as_bytes()).model.unwrap().len(),
        MODEL_BYTES_MAX
    );
    assert_eq!(
        super::skim(Api::Chat, br#"{"mod\u0065l":"m\u0061"}"#)
            .model
            .as_deref(),
        Some("ma")
    );
}

#[test]
fn what_is_no_json_says_so_and_keeps_what_was_read() {
    for body in [
        &b""[..],
        b"hello",
        b"\xff\xfe",
        b"{\"a\":1}x",
        b"{\"model\":\"m\",",
    ] {
        assert!(!skim(Api::Chat, body).is_json, "{body:?}");
    }
    assert_eq!(
        skim(Api::Chat, br#"{"model":"m","x":NaN}"#)
            .model
            .as_deref(),
        Some("m")
    );
    assert!(skim(Api::Chat, b"[1]").is_json);
}

#[test]
fn nesting_without_end_is_refused_without_a_deep_stack() {
    let body = format!(r#"{{"model":"m","messages":{}"#, "[".repeat(1_000_000));
    let skim = skim(Api::Chat, body.as_bytes());
    assert!(!skim.is_json);
    assert_eq!(skim.model.as_deref(), Some("m"));
}

#[test]
fn a_prefix_is_scaled_to_the_whole_length() {
    let whole = format!(
        r#"{{"model":"m","stream":true,"messages":[{{"role":"user","content":"{}"}}]}}"#,
        "lorem ipsum. ".repeat(10_000)
    );
    let truth = chars(&skim(Api::Chat, whole.as_bytes())) as f64;
    let prefix = &whole.as_bytes()[..20_000];
    let guess = skim_prefix(Api::Chat, prefix, Some(whole.len() as u64));
    assert!(guess.truncated_ok && !guess.is_json && guess.stream);
    assert_eq!(guess.model.as_deref(), Some("m"));
    let ratio = chars(&guess) as f64 / truth;
    assert!((0.99..1.01).contains(&ratio), "{ratio}");
    let unknown = skim_prefix(Api::Chat, prefix, None);
    assert!(
        chars(&unknown) < 20_000,
        "nothing is extrapolated from an unknown length"
    );
}

#[test]
fn a_prefix_cut_in_a_picture_does_not_make_text_of_it() {
    let image = format!(
        r#"{{"messages":[{{"content":[{{"type":"text","text":"what is it"}},{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{}"}}}}]}}]}}"#,
        "A".repeat(100_000)
    );
    let guess = skim_prefix(
        Api::Chat,
        &image.as_bytes()[..50_000],
        Some(image.len() as u64),
    );
    assert!(chars(&guess) <= 21, "{}", chars(&guess));
}

#[test]
fn a_body_that_fits_is_read_whole_by_the_prefix_reader() {
    let body = br#"{"model":"m","prompt":"abc"}"#;
    let prefix = skim_prefix(Api::Completions, body, Some(body.len() as u64));
    assert_eq!(prefix, skim(Api::Completions, body));
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(body in proptest::collection::vec(any::<u8>(), 0..400), length: u64) {
        for api in [Api::Chat, Api::Completions, Api::Responses, Api::Messages, Api::Embeddings, Api::Other] {
            skim(api, &body);
            skim_prefix(api, &body, Some(length));
        }
    }

    #[test]
    fn any_cut_of_a_real_body_is_read_without_panic(cut in 0_usize..300) {
        let body = br#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a\u00e9\"\\"},{"type":"image_url","image_url":{"url":"x"}}]}],"stream_options":{"include_usage":true},"prompt":[[1,2],"x"],"tools":[{}],"max_tokens":1e2}"#;
        let cut = cut.min(body.len());
        let guess = skim_prefix(Api::Chat, &body[..cut], Some(body.len() as u64));
        prop_assert!(guess.is_json == (cut == body.len()));
        prop_assert!(guess.truncated_ok == (cut < body.len()));
    }

    #[test]
    fn text_is_counted_whatever_its_escapes(text in "\\PC{0,300}") {
        let body = serde_json::json!({"messages": [{"role": "user", "content": text}]}).to_string();
        prop_assert_eq!(chars(&skim(Api::Chat, body.as_bytes())), text.chars().count() as u64);
    }
}
