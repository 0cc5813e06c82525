//! Waits until a fleet answers.

use std::net::ToSocketAddrs;
use std::time::{Duration, Instant};

use http::HeaderValue;

use super::SweepError;
use super::interrupt::Interrupt;
use super::plan::Live;
use crate::config::Upstream;
use crate::load::fetch::Ask;

/// Longest wait for one answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// Asks every page again and again until it answers with 200; false if it was interrupted.
pub fn wait(live: &Live, limit: Duration, interrupt: &Interrupt) -> Result<bool, SweepError> {
    let mut pages = live.ready.clone();
    if pages.is_empty() {
        let models = Upstream {
            base_path: format!("{}/v1/models", live.upstream.base_path),
            ..live.upstream.clone()
        };
        pages.push(models);
    }
    let begun = Instant::now();
    for page in &pages {
        while let Err(why) = answers(page, &key_header(live)) {
            if begun.elapsed() > limit {
                return Err(SweepError::NotReady {
                    url: page.to_string(),
                    limit_s: limit.as_secs_f64(),
                    why,
                });
            }
            if interrupt.wait(PAUSE) {
                return Ok(false);
            }
        }
    }
    Ok(!interrupt.is_set())
}

/// The API key as a header's line, if there is one that can be sent.
fn key_header(live: &Live) -> String {
    let key = std::env::var(&live.api_key_env).unwrap_or_default();
    let key = key.trim();
    match HeaderValue::from_str(key) {
        Ok(_) if !key.is_empty() => format!("authorization: Bearer {key}\r\n"),
        _ => String::new(),
    }
}

fn answers(page: &Upstream, headers: &str) -> Result<(), String> {
    let ask = Ask {
        authority: page.authority.clone(),
        path: match page.base_path.is_empty() {
            true => "/".to_owned(),
            false => page.base_path.clone(),
        },
        headers: headers.to_owned(),
    };
    let text = |error: std::io::Error| error.to_string();
    let addrs = (page.host.as_str(), page.port)
        .to_socket_addrs()
        .map_err(text)?;
    let mut why = "its name has no address".to_owned();
    for addr in addrs {
        match ask.get(addr, ANSWER_LIMIT) {
            Ok(answer) if answer.status == 200 => return Ok(()),
            Ok(answer) => why = format!("it answered with status {}", answer.status),
            Err(error) => why = format!("it did not answer ({error})"),
        }
    }
    Err(why)
}
