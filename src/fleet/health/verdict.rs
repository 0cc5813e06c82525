//! What the end of a request says of its instance's health.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::RETRY_AFTER;

use crate::measure::outcome::Outcome;

/// Evidence from one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// it answered as it should; a client's own mistake is such an answer
    Success,
    /// an error, a refused or broken connection, an answer cut off, silence
    Failure,
    /// too busy: to be left alone for so long
    Busy(Duration),
    /// nothing, such as when the client left
    Neutral,
}

impl Verdict {
    /// By status and outcome. `retry_after` is what the answer asked for.
    pub fn of(status: Option<u16>, outcome: Outcome, retry_after: Option<Duration>) -> Verdict {
        match (status, outcome) {
            (_, Outcome::ClientCancelled | Outcome::Rejected | Outcome::Shed) => Verdict::Neutral,
            (Some(429 | 503), _) => retry_after.map_or(Verdict::Neutral, Verdict::Busy),
            (_, Outcome::Ok | Outcome::ClientError) => Verdict::Success,
            (_, Outcome::Timeout | Outcome::EngineError | Outcome::Cut) => Verdict::Failure,
        }
    }
}

/// The wait that an answer asks for, in seconds or as a date.
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_end_says_what_it_should() {
        let s5 = Duration::from_secs(5);
        let table = [
            (Some(200), Outcome::Ok, None, Verdict::Success),
            (Some(400), Outcome::ClientError, None, Verdict::Success),
            (Some(404), Outcome::ClientError, None, Verdict::Success),
            (Some(408), Outcome::EngineError, None, Verdict::Failure),
            (Some(429), Outcome::EngineError, None, Verdict::Neutral),
            (Some(429), Outcome::EngineError, Some(s5), Verdict::Busy(s5)),
            (Some(503), Outcome::EngineError, None, Verdict::Neutral),
            (Some(503), Outcome::EngineError, Some(s5), Verdict::Busy(s5)),
            (Some(500), Outcome::EngineError, Some(s5), Verdict::Failure),
            (None, Outcome::EngineError, None, Verdict::Failure),
            (Some(200), Outcome::EngineError, None, Verdict::Failure),
            (Some(200), Outcome::Cut, None, Verdict::Failure),
            (Some(200), Outcome::Timeout, None, Verdict::Failure),
            (Some(200), Outcome::ClientCancelled, None, Verdict::Neutral),
            (None, Outcome::ClientCancelled, None, Verdict::Neutral),
        ];
        for (status, outcome, wait, verdict) in table {
            assert_eq!(
                Verdict::of(status, outcome, wait),
                verdict,
                "{status:?} {outcome:?}"
            );
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let wait = |text: &str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().ok()?)]);
            retry_after(
                &headers,
                SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770),
            )
        };
        assert_eq!(wait("7"), Some(Duration::from_secs(7)));
        assert_eq!(
            wait("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(Duration::from_secs(7))
        );
        assert_eq!(wait("Sat, 06 Nov 1993 08:49:37 GMT"), Some(Duration::ZERO));
        assert_eq!(wait("soon"), None);
        assert_eq!(wait("-1"), None);
    }
}
