//! The head of an instance's response: status, headers, and how its body is framed. Pure.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::framing::Framing;

const HEADERS_MAX: usize = 128;

/// Why a head could not be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum HeadError {
    /// not HTTP/1
    #[error("the response is not HTTP/1: {0}")]
    NotHttp(httparse::Error),
    /// a field that headers may not hold, or lengths that contradict each other
    #[error("the response's {0} is not valid")]
    Field(&'static str),
}

/// A response's head.
#[derive(Debug)]
pub struct Head {
    /// status
    pub status: StatusCode,
    /// all fields
    pub headers: HeaderMap,
    /// where the body ends
    pub framing: Framing,
    /// whether the connection may carry another request afterwards
    pub keep_alive: bool,
}

/// Reads a head from the front of `bytes`; gives it with its length, or `None` while it is not whole.
///
/// Informational heads (1xx) are given too; they have no body.
pub fn read(bytes: &[u8], method: &Method) -> Result<Option<(Head, usize)>, HeadError> {
    let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut fields);
    let length = match parsed.parse(bytes).map_err(HeadError::NotHttp)? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let status = StatusCode::from_u16(parsed.code.unwrap_or_default())
        .map_err(|_| HeadError::Field("status"))?;
    let headers = header_map(parsed.headers)?;
    let framing = framing(method, status, &headers)?;
    let one_one = parsed.version == Some(1);
    let keep_alive = one_one && !names_close(&headers) && framing != Framing::ToEof;
    Ok(Some((
        Head {
            status,
            headers,
            framing,
            keep_alive,
        },
        length,
    )))
}

fn header_map(fields: &[httparse::Header<'_>]) -> Result<HeaderMap, HeadError> {
    let mut headers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes())
            .map_err(|_| HeadError::Field("header name"))?;
        let value = HeaderValue::from_maybe_shared(Bytes::copy_from_slice(field.value));
        headers.append(name, value.map_err(|_| HeadError::Field("header value"))?);
    }
    Ok(headers)
}

/// RFC 9112 section 6.3. A length beside a transfer coding is ignored, differing lengths are an error.
fn framing(method: &Method, status: StatusCode, headers: &HeaderMap) -> Result<Framing, HeadError> {
    let bodiless =
        status.is_informational() || matches!(status.as_u16(), 204 | 304) || method == Method::HEAD;
    if bodiless {
        return Ok(Framing::Length(0));
    }
    if let Some(coding) = headers.get_all(TRANSFER_ENCODING).iter().next_back() {
        let last = coding
            .as_bytes()
            .rsplit(|byte| *byte == b',')
            .next()
            .unwrap_or_default()
            .trim_ascii();
        return Ok(if last.eq_ignore_ascii_case(b"chunked") {
            Framing::chunked()
        } else {
            Framing::ToEof
        });
    }
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        for one in value.as_bytes().split(|byte| *byte == b',') {
            let one = content_length(one.trim_ascii()).ok_or(HeadError::Field("content-length"))?;
            if length.is_some_and(|known| known != one) {
                return Err(HeadError::Field("content-length"));
            }
            length = Some(one);
        }
    }
    Ok(length.map_or(Framing::ToEof, Framing::Length))
}

fn content_length(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn names_close(headers: &HeaderMap) -> bool {
    let tokens = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    tokens
        .into_iter()
        .any(|token| token.trim_ascii().eq_ignore_ascii_case(b"close"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Option<(Head, usize)>, HeadError> {
        read(text.as_bytes(), &Method::POST)
    }

    #[test]
    fn a_head_is_read_once_it_is_whole() {
        let text = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        for end in 0..text.len() {
            assert!(head(&text[..end]).unwrap().is_none(), "{end}");
        }
        let (head, length) = head(&format!("{text}5\r\n")).unwrap().unwrap();
        assert_eq!((head.status.as_u16(), length), (200, text.len()));
        assert_eq!(head.framing, Framing::chunked());
        assert!(head.keep_alive);
    }

    #[test]
    fn framing_follows_the_rfc() {
        let framing = |fields: &str| {
            head(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n")).map(|h| h.unwrap().0.framing)
        };
        assert_eq!(framing("content-length: 5"), Ok(Framing::Length(5)));
        assert_eq!(framing("content-length: 5, 5"), Ok(Framing::Length(5)));
        assert_eq!(
            framing("content-length: 5\r\ntransfer-encoding: gzip, chunked"),
            Ok(Framing::chunked())
        );
        assert_eq!(framing("transfer-encoding: gzip"), Ok(Framing::ToEof));
        assert_eq!(framing("x: y"), Ok(Framing::ToEof));
        for bad in [
            "content-length: 5\r\ncontent-length: 6",
            "content-length: +5",
            "content-length: ",
            "content-length: 5x",
        ] {
            assert_eq!(
                framing(bad),
                Err(HeadError::Field("content-length")),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_connection_is_kept_only_where_the_answer_allows_it() {
        let kept = |text: &str| head(text).unwrap().unwrap().0.keep_alive;
        assert!(!kept("HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n"));
        assert!(!kept(
            "HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 0\r\n\r\n"
        ));
        assert!(!kept("HTTP/1.1 200 OK\r\n\r\n"));
        assert!(kept("HTTP/1.1 204 No Content\r\n\r\n"));
    }
}
