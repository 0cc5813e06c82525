//! The table of malformed and hostile requests. The fuzzer begins with them too, so nothing but `std` is used here.

/// A status and an `error.code` that a client is told.
pub type Told = (u16, &'static str);

pub const MALFORMED: Told = (400, "request_malformed");
pub const BODY: Told = (400, "body_unreadable");
pub const CODING: Told = (501, "transfer_coding_not_supported");
pub const VERSION: Told = (505, "http_version_not_supported");
pub const UPGRADE: Told = (501, "upgrade_not_supported");
pub const CLOSED_PATH: Told = (404, "path_not_served");

/// A request by its name, its bytes, and what its client is told.
pub type Case = (&'static str, Vec<u8>, Told);

/// A request for an inference path with these fields, and what follows its head.
pub fn post(fields: &str, rest: &str) -> Vec<u8> {
    format!("POST /v1/completions HTTP/1.1\r\nhost: t\r\n{fields}\r\n\r\n{rest}").into_bytes()
}

/// A chunked request with this on the wire for a body.
pub fn chunked(wire: &str) -> Vec<u8> {
    post("transfer-encoding: chunked", wire)
}

/// A request for this target, with a body that an engine would take.
pub fn to(method: &str, target: &str) -> Vec<u8> {
    format!("{method} {target} HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\n{{}}").into_bytes()
}

/// A well-formed request that must never be answered: it lies in the body of the one before it.
pub const SMUGGLED: &str =
    "POST /v1/completions HTTP/1.1\r\nhost: t\r\nx-smuggled: 1\r\ncontent-length: 2\r\n\r\n{}";

/// Two readers could see two ends of these.
pub fn framing() -> Vec<Case> {
    let both = |first, second| {
        post(
            &format!("{first}\r\n{second}"),
            &format!("0\r\n\r\n{SMUGGLED}"),
        )
    };
    let (length, coding) = ("content-length: 5", "transfer-encoding: chunked");
    vec![
        ("length, then chunked", both(length, coding), MALFORMED),
        ("chunked, then length", both(coding, length), MALFORMED),
        ("two lengths", post("content-length: 2\r\ncontent-length: 3", "{}"), MALFORMED),
        ("one length twice", post("content-length: 2\r\ncontent-length: 2", "{}"), MALFORMED),
        ("a list of lengths", post("content-length: 2, 3", "{}"), MALFORMED),
        ("a signed length", post("content-length: +2", "{}"), MALFORMED),
        ("a negative length", post("content-length: -2", "{}"), MALFORMED),
        ("a hexadecimal length", post("content-length: 0x2", "{}"), MALFORMED),
        ("an empty length", post("content-length:", "{}"), MALFORMED),
        ("a length past 64 bits", post("content-length: 99999999999999999999", "{}"), MALFORMED),
        ("gzip", post("transfer-encoding: gzip", "0\r\n\r\n"), CODING),
        ("gzip, chunked", post("transfer-encoding: gzip, chunked", "0\r\n\r\n"), CODING),
        ("chunked, gzip", post("transfer-encoding: chunked, gzip", "0\r\n\r\n"), CODING),
        ("chunked twice", post("transfer-encoding: chunked, chunked", "0\r\n\r\n"), CODING),
        ("chunked in two lines", post("transfer-encoding: chunked\r\ntransfer-encoding: chunked", "0\r\n\r\n"), CODING),
        ("xchunked", post("transfer-encoding: xchunked", "0\r\n\r\n"), CODING),
        ("identity", post("transfer-encoding: identity", "0\r\n\r\n"), CODING),
        ("a coding behind a form feed", post("transfer-encoding: \x0cchunked", "0\r\n\r\n"), MALFORMED),
        ("a folded coding", post("transfer-encoding:\r\n chunked", "0\r\n\r\n"), CODING),
        ("a coding in HTTP/1.0", b"POST /v1/completions HTTP/1.0\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".to_vec(), MALFORMED),
    ]
}

/// Bodies whose chunks are no chunks.
pub fn chunks() -> Vec<Case> {
    vec![
        ("no chunk size", chunked("\r\n{}\r\n0\r\n\r\n"), BODY),
        ("no hexadecimal size", chunked("g\r\n{}\r\n0\r\n\r\n"), BODY),
        ("0x before a size", chunked("0x2\r\n{}\r\n0\r\n\r\n"), BODY),
        ("a negative size", chunked("-2\r\n{}\r\n0\r\n\r\n"), BODY),
        ("a signed size", chunked("+2\r\n{}\r\n0\r\n\r\n"), BODY),
        (
            "a size past 64 bits",
            chunked("fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
            BODY,
        ),
        (
            "white space before a size",
            chunked(" 2\r\n{}\r\n0\r\n\r\n"),
            BODY,
        ),
        (
            "a size's line ends in LF",
            chunked("2\n{}\r\n0\r\n\r\n"),
            BODY,
        ),
        (
            "data longer than its size",
            chunked("1\r\n{}\r\n0\r\n\r\n"),
            BODY,
        ),
        (
            "an LF in an extension",
            chunked("2;a\nb\r\n{}\r\n0\r\n\r\n"),
            BODY,
        ),
        ("data ends in LF", chunked("2\r\n{}\n0\r\n\r\n"), BODY),
        (
            "a request behind a broken size",
            chunked(&format!("x\r\n\r\n{SMUGGLED}")),
            BODY,
        ),
        (
            "a request as a trailer",
            chunked(&format!("0\r\n{SMUGGLED}")),
            BODY,
        ),
    ]
}

/// Heads that are none, or too large.
pub fn heads() -> Vec<Case> {
    let raw = |text: &str| text.as_bytes().to_vec();
    vec![
        (
            "lines end in LF",
            raw("POST /v1/completions HTTP/1.1\nhost: t\ncontent-length: 2\n\n{}"),
            MALFORMED,
        ),
        (
            "one line ends in LF",
            post("x: y\ncontent-length: 2", "{}"),
            MALFORMED,
        ),
        (
            "a CR within a value",
            post("x: a\rtransfer-encoding: chunked", "{}"),
            MALFORMED,
        ),
        (
            "a folded value",
            post("x: a\r\n b\r\ncontent-length: 2", "{}"),
            MALFORMED,
        ),
        (
            "the first header is folded",
            raw("POST /v1/completions HTTP/1.1\r\n host: t\r\n\r\n"),
            MALFORMED,
        ),
        (
            "white space before a colon",
            post("content-length : 2", "{}"),
            MALFORMED,
        ),
        (
            "a tab before a colon",
            post("transfer-encoding\t: chunked", "0\r\n\r\n"),
            MALFORMED,
        ),
        ("no colon", post("content-length 2", "{}"), MALFORMED),
        ("no name", post(": 2", "{}"), MALFORMED),
        ("a NUL in a name", post("x\0y: 2", "{}"), MALFORMED),
        (
            "a control byte in a name",
            post("x\x08y: 2", "{}"),
            MALFORMED,
        ),
        (
            "a byte past ASCII in a name",
            post("caf\u{e9}: 2", "{}"),
            MALFORMED,
        ),
        ("a NUL in a value", post("x: a\0b", "{}"), MALFORMED),
        (
            "a control byte in a value",
            post("x: a\x1bb", "{}"),
            MALFORMED,
        ),
        ("DEL in a value", post("x: a\x7fb", "{}"), MALFORMED),
        (
            "no host",
            raw("POST /v1/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}"),
            MALFORMED,
        ),
        ("two hosts", post("host: u", "{}"), MALFORMED),
        (
            "a host with a path",
            raw("GET /health HTTP/1.1\r\nhost: t/x\r\n\r\n"),
            MALFORMED,
        ),
        (
            "a host with a user",
            raw("GET /health HTTP/1.1\r\nhost: u@t\r\n\r\n"),
            MALFORMED,
        ),
        (
            "a list of hosts",
            raw("GET /health HTTP/1.1\r\nhost: t, u\r\n\r\n"),
            MALFORMED,
        ),
        (
            "another host in the target",
            to("POST", "http://elsewhere/v1/completions"),
            MALFORMED,
        ),
        (
            "a target of another scheme",
            to("POST", "file:///v1/completions"),
            MALFORMED,
        ),
        (
            "a target without a slash",
            to("POST", "v1/completions"),
            MALFORMED,
        ),
        (
            "a space in the target",
            to("POST", "/v1/completions x"),
            MALFORMED,
        ),
        (
            "a control byte in the target",
            to("POST", "/v1/\x01completions"),
            MALFORMED,
        ),
        (
            "a byte past ASCII in the target",
            to("POST", "/v1/completions?\u{e9}"),
            MALFORMED,
        ),
        (
            "a fragment in the target",
            to("POST", "/v1/completions#x"),
            MALFORMED,
        ),
        (
            "two spaces",
            raw("POST  /v1/completions HTTP/1.1\r\nhost: t\r\n\r\n"),
            MALFORMED,
        ),
        (
            "a tab for a space",
            raw("POST\t/v1/completions HTTP/1.1\r\nhost: t\r\n\r\n"),
            MALFORMED,
        ),
        (
            "a method that is no token",
            to("PO(ST", "/v1/completions"),
            MALFORMED,
        ),
        (
            "an expectation unheard of",
            post("expect: 200-ok\r\ncontent-length: 2", "{}"),
            (417, "expectation_failed"),
        ),
        (
            "two expectations",
            post("expect: 100-continue, x\r\ncontent-length: 2", "{}"),
            (417, "expectation_failed"),
        ),
        ("HTTP/0.9", raw("GET /v1/models\r\n\r\n"), MALFORMED),
        (
            "HTTP/1.2",
            raw("GET /v1/models HTTP/1.2\r\nhost: t\r\n\r\n"),
            VERSION,
        ),
        (
            "HTTP/2.0 in HTTP/1.1's form",
            raw("GET /v1/models HTTP/2.0\r\nhost: t\r\n\r\n"),
            VERSION,
        ),
        (
            "HTTP/1.10",
            raw("GET /v1/models HTTP/1.10\r\nhost: t\r\n\r\n"),
            MALFORMED,
        ),
        (
            "http in small letters",
            raw("GET /v1/models http/1.1\r\nhost: t\r\n\r\n"),
            MALFORMED,
        ),
        (
            "another protocol",
            raw("\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n"),
            MALFORMED,
        ),
        (
            "a request line without end",
            format!("GET /{}", "x".repeat(70_000)).into_bytes(),
            (414, "target_too_long"),
        ),
        (
            "a header without end",
            post(&format!("x: {}", "y".repeat(70_000)), ""),
            (431, "head_too_large"),
        ),
        (
            "headers without end",
            post(&"x: y\r\n".repeat(12_000), ""),
            (431, "head_too_large"),
        ),
        (
            "101 headers",
            post(&["x: y"; 100].join("\r\n"), ""),
            (431, "head_too_large"),
        ),
    ]
}

/// Well-formed requests for what is not served.
pub fn meanings() -> Vec<Case> {
    let upgrade = |to: &str| {
        post(
            &format!(
                "connection: upgrade, http2-settings\r\nupgrade: {to}\r\nhttp2-settings: AAMAAABkAAQAAP__\r\ncontent-length: {}",
                SMUGGLED.len()
            ),
            SMUGGLED,
        )
    };
    let mut cases = vec![
        ("an upgrade to h2c", upgrade("h2c"), UPGRADE),
        ("an upgrade to websocket", upgrade("websocket"), UPGRADE),
        (
            "CONNECT to a host",
            b"CONNECT engine:8000 HTTP/1.1\r\nhost: engine:8000\r\n\r\n".to_vec(),
            (501, "connect_not_supported"),
        ),
        (
            "CONNECT to a path",
            to("CONNECT", "/v1/completions"),
            (501, "connect_not_supported"),
        ),
        (
            "TRACE",
            to("TRACE", "/v1/completions"),
            (405, "method_not_allowed"),
        ),
        (
            "DELETE of a path for POST",
            to("DELETE", "/v1/completions"),
            (405, "method_not_allowed"),
        ),
        (
            "a method in small letters",
            to("post", "/v1/completions"),
            (405, "method_not_allowed"),
        ),
        ("a star", to("OPTIONS", "*"), CLOSED_PATH),
    ];
    for target in [
        "/metrics",
        "/v1/load_lora_adapter",
        "/v1/../metrics",
        "/v1/completions/../../metrics",
        "/v1/./completions",
        "//v1/completions",
        "/v1//completions",
        "/v1/%2e%2e/metrics",
        "/v1/completions%2f..%2f..%2fmetrics",
        "/%76%31/completions",
        "/v1/completions%00",
        "/v1/completions;/../../metrics",
        "/v1\\..\\metrics",
        "/v1/responses/../load_lora_adapter",
        "/v1/responses/%2e%2e/cancel",
        "/V1/COMPLETIONS",
        "/sleep?/v1/completions",
        "http://t/metrics",
        "http://t//v1/completions",
    ] {
        cases.push((target, to("POST", target), CLOSED_PATH));
    }
    cases
}
