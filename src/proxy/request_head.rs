//! Whether an HTTP/1.1 request's head is well-formed, judged line by line as it comes. Pure.
//!
//! Stricter than the server behind it: whatever two implementations could read in two ways is refused, so that no
//! request can be smuggled past one of them inside another.

use memchr::memchr;

use super::framing::Framing;
use super::refusal::Refusal;

/// Fields in one head; hyper's limit too.
const FIELDS_MAX: usize = 100;

/// A head as far as it was judged. It looks at the same bytes again and again, more of them each time.
#[derive(Debug, Default)]
pub struct RequestHead {
    /// where the next line begins
    at: usize,
    lines: usize,
    one_zero: bool,
    /// of an absolute-form target: where it lies in the head
    authority: Option<(usize, usize)>,
    host: Option<(usize, usize)>,
    length: Option<u64>,
    chunked: bool,
}

impl RequestHead {
    /// Judges the whole lines among `bytes`, which begin where the head begins. Gives the head's length and how its
    /// body is framed once it is whole, `None` while it is not.
    pub fn judge(
        &mut self,
        bytes: &[u8],
        limit_bytes: usize,
    ) -> Result<Option<(usize, Framing)>, Refusal> {
        while let Some(length) = memchr(b'\n', &bytes[self.at..]) {
            let (start, end) = (self.at, self.at + length);
            self.at = end + 1;
            if self.at > limit_bytes {
                return Err(self.too_large(limit_bytes));
            }
            let line = bytes[start..end].strip_suffix(b"\r");
            let line = line.ok_or(Refusal::Malformed("a line ends in a bare LF"))?;
            if line.is_empty() && self.lines == 0 {
                // empty lines before a request say nothing
                continue;
            }
            if line.is_empty() {
                return self.whole(bytes).map(|framing| Some((end + 1, framing)));
            }
            match self.lines {
                0 => self.request_line(line, start)?,
                _ => self.field(line, start)?,
            }
            self.lines += 1;
            if self.lines > FIELDS_MAX + 1 {
                return Err(Refusal::HeadTooLarge { limit_bytes });
            }
        }
        if bytes.len() > limit_bytes {
            return Err(self.too_large(limit_bytes));
        }
        Ok(None)
    }

    fn too_large(&self, limit_bytes: usize) -> Refusal {
        match self.lines {
            0 => Refusal::TargetTooLong { limit_bytes },
            _ => Refusal::HeadTooLarge { limit_bytes },
        }
    }

    fn request_line(&mut self, line: &[u8], start: usize) -> Result<(), Refusal> {
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(Refusal::Malformed(
                "the first line is not `METHOD TARGET HTTP/1.1`, with one space between",
            ));
        };
        if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
            return Err(Refusal::Malformed("the method is not a token"));
        }
        self.one_zero = match version {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
                return Err(Refusal::HttpVersion);
            }
            _ => return Err(Refusal::Malformed("the first line names no HTTP version")),
        };
        if method == b"CONNECT" {
            return Err(Refusal::Tunnel);
        }
        self.target(method, target, start + method.len() + 1)
    }

    /// The request's target; it begins at `start` of the head.
    fn target(&mut self, method: &[u8], target: &[u8], start: usize) -> Result<(), Refusal> {
        let plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'#';
        if !target.iter().all(plain) {
            return Err(Refusal::Malformed(
                "the target holds a byte that must be escaped",
            ));
        }
        if target.starts_with(b"/") || (target == b"*" && method == b"OPTIONS") {
            return Ok(());
        }
        let scheme = [&b"http://"[..], b"https://"].into_iter().find(|scheme| {
            let start = target.get(..scheme.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        });
        let Some(scheme) = scheme else {
            return Err(Refusal::Malformed(
                "the target is neither a path nor an http URL",
            ));
        };
        let rest = &target[scheme.len()..];
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?'));
        let authority = &rest[..end.unwrap_or(rest.len())];
        if authority.is_empty() || !is_host(authority) {
            return Err(Refusal::Malformed("the target names no valid host"));
        }
        let start = start + scheme.len();
        self.authority = Some((start, start + authority.len()));
        Ok(())
    }

    /// One field; it begins at `start` of the head.
    fn field(&mut self, line: &[u8], start: usize) -> Result<(), Refusal> {
        if matches!(line[0], b' ' | b'\t') {
            return Err(Refusal::Malformed("a header is folded over two lines"));
        }
        let colon = memchr(b':', line).ok_or(Refusal::Malformed("a header line has no colon"))?;
        let (name, raw) = (&line[..colon], &line[colon + 1..]);
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return Err(Refusal::Malformed(match name.last() {
                Some(b' ' | b'\t') => "there is white space before a header's colon",
                _ => "a header's name is not a token",
            }));
        }
        if !raw.iter().all(|byte| is_text(*byte)) {
            return Err(Refusal::Malformed(
                "a header's value holds a control character",
            ));
        }
        let value = raw.trim_ascii();
        let before = raw.len() - raw.trim_ascii_start().len();
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.host(value, start + colon + 1 + before),
            6 if name.eq_ignore_ascii_case(b"expect") => expect(value),
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_coding(value),
            _ => Ok(()),
        }
    }

    fn host(&mut self, value: &[u8], start: usize) -> Result<(), Refusal> {
        if self.host.is_some() {
            return Err(Refusal::Malformed("there is more than one host header"));
        }
        if !is_host(value) {
            return Err(Refusal::Malformed("the host header names no valid host"));
        }
        self.host = Some((start, start + value.len()));
        Ok(())
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if self.length.is_some() {
            return Err(Refusal::Malformed("there is more than one content-length"));
        }
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let length = std::str::from_utf8(value).ok().filter(|_| digits);
        let length = length.and_then(|digits| digits.parse().ok());
        // hyper keeps the two greatest values for itself
        let length = length.filter(|length| *length < u64::MAX - 2);
        self.length = Some(length.ok_or(Refusal::Malformed("the content-length is no number"))?);
        self.one_framing()
    }

    fn transfer_coding(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if self.one_zero {
            return Err(Refusal::Malformed("HTTP/1.0 has no transfer-encoding"));
        }
        if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Refusal::TransferCoding);
        }
        self.chunked = true;
        self.one_framing()
    }

    fn one_framing(&self) -> Result<(), Refusal> {
        if self.chunked && self.length.is_some() {
            return Err(Refusal::Malformed(
                "there are both a content-length and a transfer-encoding",
            ));
        }
        Ok(())
    }

    fn whole(&self, bytes: &[u8]) -> Result<Framing, Refusal> {
        let at = |(start, end): (usize, usize)| &bytes[start..end];
        match (self.authority.map(at), self.host.map(at)) {
            (_, None) if !self.one_zero => {
                return Err(Refusal::Malformed("there is no host header"));
            }
            (Some(target), Some(host)) if !target.eq_ignore_ascii_case(host) => {
                return Err(Refusal::Malformed(
                    "the target names another host than the host header",
                ));
            }
            _ => {}
        }
        Ok(match self.chunked {
            true => Framing::chunked(),
            false => Framing::Length(self.length.unwrap_or(0)),
        })
    }
}

/// The same for a head that came as fields, as on HTTP/2: whoever names a host names a valid one, and all the same.
pub fn one_host<'a>(named: impl IntoIterator<Item = &'a [u8]>) -> Result<(), Refusal> {
    let mut first: Option<&[u8]> = None;
    for host in named {
        if !is_host(host) {
            return Err(Refusal::Malformed("the head names no valid host"));
        }
        if !first.get_or_insert(host).eq_ignore_ascii_case(host) {
            return Err(Refusal::Malformed("the head names two hosts"));
        }
    }
    Ok(())
}

fn expect(value: &[u8]) -> Result<(), Refusal> {
    match value.eq_ignore_ascii_case(b"100-continue") {
        true => Ok(()),
        false => Err(Refusal::Expectation),
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// What a value may hold: visible characters, space and tab between them, and bytes past ASCII.
fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

/// `name`, `name:port`, `[v6]:port`; whether the name exists is nobody's business here.
fn is_host(value: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=%:[]".contains(byte);
    value.iter().all(allowed)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LIMIT: usize = 8192;

    fn judge(text: &str) -> Result<Option<(usize, Framing)>, Refusal> {
        RequestHead::default().judge(text.as_bytes(), LIMIT)
    }

    /// A head with these fields after a request line and a host.
    fn with(fields: &str) -> Result<Framing, Refusal> {
        let head = format!("POST / HTTP/1.1\r\nhost: h\r\n{fields}\r\n\r\n");
        judge(&head).map(|whole| whole.unwrap().1)
    }

    #[test]
    fn a_head_is_judged_alike_in_any_pieces() {
        let text = "POST /v1/x?y HTTP/1.1\r\nHost: a:80\r\nContent-Length: 12\r\nx:\r\n\r\nbody";
        let whole = Some((text.len() - 4, Framing::Length(12)));
        assert_eq!(judge(text), Ok(whole));
        let mut head = RequestHead::default();
        for end in 0..text.len() - 4 {
            assert_eq!(
                head.judge(&text.as_bytes()[..end], LIMIT),
                Ok(None),
                "{end}"
            );
        }
        assert_eq!(head.judge(text.as_bytes(), LIMIT), Ok(whole));
    }

    #[test]
    fn framing_is_one_or_none() {
        assert_eq!(with("x: y"), Ok(Framing::Length(0)));
        assert_eq!(with("Transfer-Encoding: Chunked"), Ok(Framing::chunked()));
        for bad in [
            "content-length: 1\r\ntransfer-encoding: chunked",
            "transfer-encoding: chunked\r\ncontent-length: 1",
            "content-length: 1\r\ncontent-length: 1",
            "content-length: 1, 1",
            "content-length: +1",
            "content-length:",
            "content-length: 99999999999999999999",
        ] {
            assert!(matches!(with(bad), Err(Refusal::Malformed(_))), "{bad}");
        }
        for bad in [
            "gzip",
            "gzip, chunked",
            "chunked, chunked",
            "chunked\r\ntransfer-encoding: chunked",
            "xchunked",
            "chunked;q=1",
            "",
        ] {
            let field = format!("transfer-encoding: {bad}");
            assert_eq!(with(&field), Err(Refusal::TransferCoding), "{bad}");
        }
    }

    #[test]
    fn a_fault_is_told_before_the_head_is_whole() {
        for start in [
            "GET / HTTP/1.1\nhost",
            "GET / HTTP/1.1\r\na b: c\r\n",
            "\x16\x03\x01\n",
        ] {
            assert!(judge(start).is_err(), "{start:?}");
        }
        let long = format!("GET /{}", "x".repeat(LIMIT));
        assert_eq!(
            judge(&long),
            Err(Refusal::TargetTooLong { limit_bytes: LIMIT })
        );
        let large = format!("GET / HTTP/1.1\r\nx: {}", "x".repeat(LIMIT));
        assert_eq!(
            judge(&large),
            Err(Refusal::HeadTooLarge { limit_bytes: LIMIT })
        );
    }

    #[test]
    fn a_hundred_fields_are_let_through_and_no_more() {
        assert!(with(&["x: y"; 99].join("\r\n")).is_ok());
        assert!(with(&["x: y"; 100].join("\r\n")).is_err());
    }

    #[test]
    fn an_absolute_target_must_agree_with_the_host() {
        let head = |target: &str| judge(&format!("GET {target} HTTP/1.1\r\nhost: a:1\r\n\r\n"));
        assert!(head("http://a:1/v1/models").is_ok());
        assert!(head("HTTP://A:1").is_ok());
        assert!(judge("\r\n\r\nGET http://a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n").is_ok());
        for target in [
            "http://b/",
            "http://a/",
            "http://u@a:1/",
            "http:///",
            "ftp://a:1/",
            "a:1",
            "*",
        ] {
            assert!(head(target).is_err(), "{target}");
        }
    }
}
