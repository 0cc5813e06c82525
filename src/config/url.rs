//! Base URLs of instances.

use super::checked::Upstream;

/// Read a base URL; an error says what is wrong and what would be right.
pub fn parse(text: &str) -> Result<Upstream, (String, String)> {
    let wrong = |what: &str, right: String| Err((what.to_owned(), right));
    let like = "write one like \"http://10.0.0.1:8000\"";
    // before anything is repeated: it may be a password
    if let Some((user, host)) = text.rsplit_once('@') {
        let scheme = user.split_once("://").map_or("http", |(scheme, _)| scheme);
        return wrong(
            "a base URL has no user or password",
            format!("write \"{scheme}://{host}\""),
        );
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return wrong("the URL has no scheme", format!("write \"http://{text}\""));
    };
    let (tls, default_port) = match scheme.to_ascii_lowercase().as_str() {
        "http" => (false, 80),
        "https" => (true, 443),
        other => {
            return wrong(
                &format!("the scheme `{other}` is not spoken"),
                like.to_owned(),
            );
        }
    };
    let scheme = if tls { "https" } else { "http" };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    if rest.contains(['?', '#']) {
        return wrong(
            "a base URL has no query",
            format!("write \"{scheme}://{authority}\""),
        );
    }
    let base_path = path.trim_end_matches('/');
    if let Some(stem) = base_path.strip_suffix("/v1") {
        return wrong(
            "request paths begin with /v1 already",
            format!("write \"{scheme}://{authority}{stem}\""),
        );
    }
    if http::uri::PathAndQuery::try_from(if base_path.is_empty() { "/" } else { base_path })
        .is_err()
    {
        return wrong("the path is not valid", like.to_owned());
    }
    let Ok(parsed) = http::uri::Authority::try_from(authority) else {
        return wrong("the host or port is not valid", like.to_owned());
    };
    let after_host = authority
        .rsplit_once(':')
        .map(|(_, port)| port)
        .filter(|port| !port.ends_with(']'));
    let port = match after_host.map(str::parse::<u16>) {
        None => default_port,
        Some(Ok(port)) if port > 0 => port,
        Some(_) => {
            return wrong(
                "the port is not valid",
                "a port is a number from 1 to 65535".to_owned(),
            );
        }
    };
    let bracketed = parsed.host();
    let host = bracketed.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return wrong("the URL has no host", like.to_owned());
    }
    let authority = if port == default_port {
        bracketed.to_owned()
    } else {
        format!("{bracketed}:{port}")
    };
    Ok(Upstream {
        tls,
        host: host.to_owned(),
        port,
        authority,
        base_path: base_path.to_owned(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls_are_taken_apart() {
        let url = parse("http://gpu-1:8000/team/a/").unwrap();
        assert_eq!((url.host.as_str(), url.port), ("gpu-1", 8000));
        assert_eq!(
            (url.authority.as_str(), url.base_path.as_str()),
            ("gpu-1:8000", "/team/a")
        );
        let url = parse("HTTP://[::1]:9/").unwrap();
        assert_eq!(
            (url.host.as_str(), url.authority.as_str()),
            ("::1", "[::1]:9")
        );
        let url = parse("http://[::1]").unwrap();
        assert_eq!(
            (url.port, url.authority.as_str(), url.base_path.as_str()),
            (80, "[::1]", "")
        );
        let url = parse("https://gpu-1/").unwrap();
        assert_eq!(
            (url.tls, url.port, url.authority.as_str()),
            (true, 443, "gpu-1")
        );
        assert_eq!(parse("https://gpu-1:80").unwrap().authority, "gpu-1:80");
    }

    #[test]
    fn wrong_urls_say_what_would_be_right() {
        let right = |text| parse(text).unwrap_err().1;
        assert_eq!(right("gpu-1:8000"), "write \"http://gpu-1:8000\"");
        assert_eq!(
            right("http://gpu-1:8000/v1/"),
            "write \"http://gpu-1:8000\""
        );
        assert_eq!(right("https://gpu-1/v1"), "write \"https://gpu-1\"");
        assert_eq!(right("http://u:p@gpu-1/x"), "write \"http://gpu-1/x\"");
        for text in [
            "http://",
            "http://:80",
            "http://a:0",
            "http://a:b",
            "http://a:70000",
            "ftp://a",
            "http://a b",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in ".*", rest in "[\\[\\]:@/a0-9.]{0,20}") {
            let _ = parse(&text);
            let _ = parse(&format!("http://{rest}"));
        }
    }
}
