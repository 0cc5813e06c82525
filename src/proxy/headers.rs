//! Header rules between the two sides: hop-by-hop headers end here, all else goes on.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST,
    HeaderMap, HeaderName, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

use crate::fleet::credentials::Credentials;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const STAYS: [HeaderName; 6] = [
    HOST,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    CONTENT_ENCODING,
    AUTHORIZATION,
    HeaderName::from_static("x-request-id"),
];

/// Removes Connection, every header it names (in all its lines), and the fixed hop-by-hop set.
///
/// What says how a message is to be read, and whose it is, stays even if a peer names it in Connection: removing it
/// on its word would change what the message says.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .filter_map(|token| HeaderName::from_bytes(token.trim_ascii()).ok())
        .filter(|name| !STAYS.contains(name))
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [
        CONNECTION,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        TE,
        // trailers are not sent on
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
    ] {
        headers.remove(name);
    }
}

/// What goes to an instance: end-to-end headers, without `Expect`, which was answered here, and with the credentials
/// that its pool is meant to get.
pub fn for_upstream(mut headers: HeaderMap, credentials: &Credentials) -> HeaderMap {
    strip_hop_by_hop(&mut headers);
    headers.remove(EXPECT);
    credentials.apply(&mut headers);
    headers
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_connection_counts_and_framing_survives_it() {
        let mut headers = HeaderMap::new();
        headers.append(CONNECTION, "close, X-One".parse().unwrap());
        headers.append(CONNECTION, "x-two , content-length, host".parse().unwrap());
        for (name, value) in [
            ("x-one", "1"),
            ("x-two", "2"),
            ("x-three", "3"),
            ("content-length", "4"),
            ("host", "h"),
        ] {
            headers.insert(HeaderName::from_static(name), value.parse().unwrap());
        }
        headers.insert(KEEP_ALIVE, "timeout=5".parse().unwrap());
        strip_hop_by_hop(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-length", "host", "x-three"]);
    }
}
