//! Which model a server has, for a command line that names none.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::BenchError;
use super::target::Target;
use crate::load::http1::{Body, parse_head};

const LIMIT: Duration = Duration::from_secs(10);
const MOST_BYTES: u64 = 4 << 20;

/// The first model that `GET /v1/models` lists.
pub fn first(target: &Target, headers: &str) -> Result<String, BenchError> {
    let failed = |why: String| {
        BenchError::Options(format!(
            "no --model was given, and {} does not say which it has ({why}): give --model NAME",
            target.authority
        ))
    };
    let body = get(target, headers).map_err(|error| failed(error.to_string()))?;
    let listed: serde_json::Value =
        serde_json::from_slice(&body).map_err(|_| failed("its /v1/models is no JSON".into()))?;
    match listed["data"][0]["id"].as_str() {
        Some(id) => Ok(id.to_owned()),
        None => Err(failed("its /v1/models lists none".into())),
    }
}

fn get(target: &Target, headers: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&target.addr, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let ask = format!(
        "GET {}/v1/models HTTP/1.1\r\nhost: {}\r\n{headers}connection: close\r\n\r\n",
        target.base_path, target.authority
    );
    stream.write_all(ask.as_bytes())?;
    let mut bytes = Vec::new();
    stream.take(MOST_BYTES).read_to_end(&mut bytes)?;
    let head = parse_head(&bytes).map_err(std::io::Error::other)?;
    let head = head.ok_or(std::io::ErrorKind::UnexpectedEof)?;
    if head.status != 200 {
        return Err(std::io::Error::other(format!(
            "/v1/models is answered with {}",
            head.status
        )));
    }
    let mut body = Vec::new();
    Body::new(head.framing)
        .read(&bytes[head.head_bytes..], |part| {
            body.extend_from_slice(part)
        })
        .map_err(std::io::Error::other)?;
    Ok(body)
}
