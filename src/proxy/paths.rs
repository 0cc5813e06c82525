//! Which paths are known, and what each is. What is not listed here does not reach an engine, so
//! that management paths stay closed from outside. Pure.
//!
//! Paths are compared as whole strings, undecoded: an escaped or dotted spelling of a known path
//! is an unknown path. One ending slash is allowed.

use evenkeel_policies::shape::Api;
use http::Method;

/// What a request's path and method ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathKind {
    /// inference that is understood and measured
    Inference(Api),
    /// `GET /v1/models`: merged over the pools
    Models,
    /// `GET /v1/models/{id}`; the id is decoded
    ModelById(String),
    /// answered by Evenkeel itself
    Own(Own),
    /// passed on and timed as [`Api::Other`]
    Passed,
    /// `/v1/responses/{id}` and below: goes to the instance that made the response
    ResponseById(String),
    /// a known path with a method it does not have: 405, and these are allowed
    WrongMethod(&'static str),
    /// 404, unless the operator passes it through (see [`is_listed`])
    Unknown,
}

/// Paths of the data port that Evenkeel answers itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// `/health`
    Health,
    /// `/ping`
    Ping,
    /// `/version`
    Version,
}

/// What `method` on `path` asks for; a query string is allowed in `path` and ignored.
pub fn classify(method: &Method, path: &str) -> PathKind {
    let path = without_query(path);
    let path = match path.strip_suffix('/') {
        Some(stem) if !stem.is_empty() => stem,
        _ => path,
    };
    let Some((kind, allowed)) = known(path) else {
        return PathKind::Unknown;
    };
    if allows(allowed, method) {
        return kind;
    }
    // a browser's preflight is the engine's to answer
    if *method == Method::OPTIONS && !matches!(kind, PathKind::Own(_)) {
        return PathKind::Passed;
    }
    PathKind::WrongMethod(allowed)
}

/// Whether the operator's `passthrough` list passes `path`: an entry names one path, or all paths
/// below it if it ends in `/*`. A path that could mean another one once decoded is never listed.
pub fn is_listed(passthrough: &[String], path: &str) -> bool {
    let path = without_query(path);
    if !is_plain(path) {
        return false;
    }
    passthrough
        .iter()
        .any(|entry| match entry.strip_suffix("/*") {
            Some(folder) => path
                .strip_prefix(folder)
                .is_some_and(|rest| rest.len() > 1 && rest.starts_with('/')),
            None => path == entry,
        })
}

fn without_query(path: &str) -> &str {
    path.split(['?', '#']).next().unwrap_or(path)
}

fn allows(allowed: &str, method: &Method) -> bool {
    allowed.split(", ").any(|one| one == method.as_str())
}

const GET: &str = "GET, HEAD";
const POST: &str = "POST";

fn known(path: &str) -> Option<(PathKind, &'static str)> {
    let inference = |api| Some((PathKind::Inference(api), POST));
    match path {
        "/v1/chat/completions" | "/chat/completions" => inference(Api::Chat),
        // without /v1 this is llama.cpp's own API, with other events
        "/v1/completions" => inference(Api::Completions),
        "/v1/responses" | "/responses" => inference(Api::Responses),
        "/v1/messages" | "/messages" => inference(Api::Messages),
        "/v1/embeddings" | "/embeddings" => inference(Api::Embeddings),
        "/v1/models" | "/models" => Some((PathKind::Models, GET)),
        "/health" => Some((PathKind::Own(Own::Health), GET)),
        "/ping" => Some((PathKind::Own(Own::Ping), "GET, HEAD, POST")),
        "/version" => Some((PathKind::Own(Own::Version), GET)),
        _ if is_passed(path) => Some((PathKind::Passed, POST)),
        _ => by_id(path),
    }
}

fn is_passed(path: &str) -> bool {
    matches!(
        path.strip_prefix("/v1").unwrap_or(path),
        "/tokenize"
            | "/detokenize"
            | "/completion"
            | "/rerank"
            | "/score"
            | "/pooling"
            | "/classify"
            | "/audio/transcriptions"
            | "/audio/translations"
            | "/audio/speech"
            | "/messages/count_tokens"
            | "/responses/input_tokens"
    ) || matches!(path, "/v2/rerank" | "/completions")
}

fn by_id(path: &str) -> Option<(PathKind, &'static str)> {
    if let Some(id) = path.strip_prefix("/v1/models/") {
        // answered by Evenkeel: nothing of it reaches an engine, so escapes do no harm
        return Some((PathKind::ModelById(decoded(id)), GET));
    }
    let rest = path.strip_prefix("/v1/responses/")?;
    let (id, below) = rest.split_once('/').unwrap_or((rest, ""));
    let allowed = match below {
        "" => "GET, DELETE",
        "cancel" => POST,
        "input_items" => GET,
        _ => return None,
    };
    is_id(id).then(|| (PathKind::ResponseById(id.to_owned()), allowed))
}

/// Ids as engines make them; no dots-only segment, no escape.
fn is_id(id: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    !id.is_empty()
        && id.len() <= 256
        && id.bytes().all(word)
        && id.bytes().any(|byte| byte.is_ascii_alphanumeric())
}

fn is_plain(path: &str) -> bool {
    path.starts_with('/')
        && !path.contains(['%', '\\', ';'])
        && !path.contains("//")
        && path
            .split('/')
            .all(|segment| segment != "." && segment != "..")
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match escaped(&bytes[at..]) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn escaped(bytes: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = bytes else {
        return None;
    };
    let digit = |byte: u8| (byte as char).to_digit(16);
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn post(path: &str) -> PathKind {
        classify(&Method::POST, path)
    }

    #[test]
    fn inference_paths_are_known_with_query_and_ending_slash() {
        assert_eq!(post("/v1/chat/completions"), PathKind::Inference(Api::Chat));
        assert_eq!(
            post("/v1/completions/"),
            PathKind::Inference(Api::Completions)
        );
        assert_eq!(
            post("/v1/messages?beta=true"),
            PathKind::Inference(Api::Messages)
        );
        assert_eq!(post("/v1/embeddings"), PathKind::Inference(Api::Embeddings));
        assert_eq!(post("/v1/responses"), PathKind::Inference(Api::Responses));
        assert_eq!(post("/v1/audio/transcriptions"), PathKind::Passed);
        assert_eq!(post("/tokenize"), PathKind::Passed);
        assert_eq!(post("/v2/rerank"), PathKind::Passed);
        assert_eq!(classify(&Method::GET, "/v1/models"), PathKind::Models);
        assert_eq!(
            classify(&Method::HEAD, "/health"),
            PathKind::Own(Own::Health)
        );
    }

    #[test]
    fn a_model_id_may_hold_a_slash_plain_or_escaped() {
        let qwen = PathKind::ModelById("Qwen/Qwen3".into());
        assert_eq!(classify(&Method::GET, "/v1/models/Qwen/Qwen3"), qwen);
        assert_eq!(classify(&Method::GET, "/v1/models/Qwen%2FQwen3"), qwen);
    }

    #[test]
    fn a_response_is_reached_by_id() {
        let by_id = PathKind::ResponseById("resp_1a-2".into());
        assert_eq!(
            classify(&Method::GET, "/v1/responses/resp_1a-2?stream=true"),
            by_id
        );
        assert_eq!(classify(&Method::DELETE, "/v1/responses/resp_1a-2"), by_id);
        assert_eq!(post("/v1/responses/resp_1a-2/cancel"), by_id);
        assert_eq!(
            post("/v1/responses/resp_1a-2"),
            PathKind::WrongMethod("GET, DELETE")
        );
    }

    #[test]
    fn wrong_methods_are_told_what_is_allowed_and_preflights_pass() {
        let get = classify(&Method::GET, "/v1/chat/completions");
        assert_eq!(get, PathKind::WrongMethod("POST"));
        assert_eq!(
            classify(&Method::OPTIONS, "/v1/chat/completions"),
            PathKind::Passed
        );
    }

    #[test]
    fn management_paths_stay_closed_however_they_are_spelled() {
        for path in [
            "/",
            "",
            "/metrics",
            "/v1/load_lora_adapter",
            "/v1/unload_lora_adapter",
            "/sleep",
            "/wake_up",
            "/reset_prefix_cache",
            "/start_profile",
            "/collective_rpc",
            "/update_weights",
            "/flush_cache",
            "/get_server_info",
            "/slots",
            "/props",
            "/docs",
            "/openapi.json",
            "/v1/responses/..",
            "/v1/responses/../load_lora_adapter",
            "/v1/responses/%2e%2e/cancel",
            "/v1/responses/a%2f..%2f..%2fsleep",
            "/v1/responses/a/b",
            "/v1/responses//cancel",
            "/v1/chat/completions/../../sleep",
            "/v1/chat/../load_lora_adapter",
            "//v1/chat/completions",
            "/v1//chat/completions",
            "/v1/chat%2fcompletions",
            "/V1/chat/completions",
            "/v1/audio/../sleep",
            "/v1/chat/completions//",
            "/sleep?/v1/chat/completions",
            "/sleep#/v1/chat/completions",
        ] {
            assert_eq!(post(path), PathKind::Unknown, "{path}");
        }
    }

    #[test]
    fn passthrough_lists_paths_and_folders_but_no_disguise() {
        let list = ["/v1/files".to_owned(), "/custom/*".to_owned()];
        assert!(is_listed(&list, "/v1/files"));
        assert!(is_listed(&list, "/v1/files?limit=3"));
        assert!(is_listed(&list, "/custom/a/b"));
        for path in [
            "/v1/files/x",
            "/custom",
            "/custom/",
            "/customx",
            "/custom/../sleep",
            "/custom/%2e%2e/sleep",
            "/custom/..;/sleep",
            "/custom//sleep",
            "/custom/..\\sleep",
            "custom/a",
        ] {
            assert!(!is_listed(&list, path), "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_path_is_classified(path in ".*") {
            let _ = classify(&Method::POST, &path);
            let _ = is_listed(&["/a/*".to_owned()], &path);
        }

        #[test]
        fn what_reaches_an_engine_has_no_escape_and_no_dots(path in "/(v1/)?(responses|audio|chat)/[a-z%./]{0,12}") {
            let kind = post(&path);
            let passes = matches!(kind, PathKind::Inference(_) | PathKind::Passed | PathKind::ResponseById(_));
            prop_assert!(!passes || (!path.contains('%') && !path.contains("/..")));
        }
    }
}
