//! The access log: one line a request, text or JSON, to a file or standard error. Never blocks.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write};

use super::figures::Figures;
use super::summary::Exchange;
use super::writer::{LineWriter, Sink};
use crate::config::checked::{AccessFormat, AccessLog as AccessConfig};

/// Lines that may wait.
const QUEUE: usize = 8192;

struct LogSink {
    out: Box<dyn Write + Send>,
    buffer: Vec<u8>,
}

impl Sink for LogSink {
    type Item = String;

    fn take(&mut self, line: String) -> u64 {
        self.buffer.extend_from_slice(line.as_bytes());
        self.buffer.push(b'\n');
        1
    }

    fn buffered(&self) -> usize {
        self.buffer.len()
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = self
            .out
            .write_all(&self.buffer)
            .and_then(|()| self.out.flush());
        self.buffer.clear();
        written
    }
}

/// The access log's writer.
pub struct AccessLog {
    lines: LineWriter<String>,
    format: AccessFormat,
}

impl AccessLog {
    /// Opens the file (appending) or standard error, and starts the thread.
    pub fn start(config: &AccessConfig) -> io::Result<AccessLog> {
        let out: Box<dyn Write + Send> = match &config.path {
            Some(path) => Box::new(OpenOptions::new().append(true).create(true).open(path)?),
            None => Box::new(io::stderr()),
        };
        let sink = LogSink {
            out,
            buffer: Vec::new(),
        };
        Ok(AccessLog {
            lines: LineWriter::start("access-log", QUEUE, sink)?,
            format: config.format,
        })
    }

    /// Logs an ended request. Never waits; when the queue is full the line is dropped and counted.
    pub fn submit(&self, exchange: &Exchange) {
        self.lines.submit(match self.format {
            AccessFormat::Text => text_line(exchange),
            AccessFormat::Json => json_line(exchange),
        });
    }

    /// Lines dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.lines.dropped()
    }

    /// Waits until all lines submitted before are handed to the system.
    pub fn flush(&self) {
        self.lines.flush();
    }
}

/// The words of a line; absent ones are left out.
fn words(exchange: &Exchange) -> Vec<(&'static str, serde_json::Value)> {
    let figures = Figures::of(exchange);
    let ms = |ms: Option<f64>| ms.map(|ms| serde_json::json!((ms * 1e3).round() / 1e3));
    let text = |text: Option<&str>| text.map(|text| serde_json::json!(text));
    let all = [
        (
            "start_s",
            Some(serde_json::json!((exchange.wall_ns / 1000) as f64 / 1e6)),
        ),
        ("request_id", text(Some(&exchange.request_id))),
        ("path", text(Some(&exchange.path))),
        (
            "status",
            exchange.status.map(|status| serde_json::json!(status)),
        ),
        ("outcome", text(Some(exchange.outcome.name()))),
        ("cause", text(exchange.cause)),
        ("key", text(exchange.key.as_deref())),
        ("model", text(exchange.model.as_deref())),
        ("pool", text(exchange.pool.as_deref())),
        ("instance", text(exchange.instance.as_deref())),
        ("attempts", Some(serde_json::json!(exchange.attempts))),
        ("client_ttft_ms", ms(figures.client_ttft_ms)),
        ("server_ttft_ms", ms(figures.server_ttft_ms)),
        ("e2e_ms", ms(figures.e2e_ms)),
        (
            "prompt_tokens",
            figures
                .prompt_tokens
                .map(|tokens| serde_json::json!(tokens)),
        ),
        (
            "output_tokens",
            figures
                .output_tokens
                .map(|tokens| serde_json::json!(tokens)),
        ),
        (
            "response_bytes",
            Some(serde_json::json!(exchange.response_bytes)),
        ),
    ];
    all.into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
        .collect()
}

/// `key=value` words; a value that is not plain is quoted as JSON, so that a line stays a line.
fn text_line(exchange: &Exchange) -> String {
    let mut line = String::with_capacity(256);
    for (key, value) in words(exchange) {
        let gap = if line.is_empty() { "" } else { " " };
        let plain = value.as_str().filter(|text| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && !b"\"=\\".contains(&byte))
        });
        let _ = match plain {
            Some(text) => write!(line, "{gap}{key}={text}"),
            None => write!(line, "{gap}{key}={value}"),
        };
    }
    line
}

fn json_line(exchange: &Exchange) -> String {
    let words = words(exchange)
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value));
    serde_json::Value::Object(words.collect()).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::figures::tests::exchange;
    use super::*;

    #[test]
    fn a_line_cannot_be_forged_by_a_client() {
        let mut request = exchange("p", "i");
        request.request_id = "a\nstatus=500 b".into();
        let line = text_line(&request);
        assert!(!line.contains('\n'));
        assert!(line.contains(r#"request_id="a\nstatus=500 b""#), "{line}");
        assert!(
            line.contains(" status=200 ") && line.contains(" server_ttft_ms=80.0 "),
            "{line}"
        );
        let json: serde_json::Value = serde_json::from_str(&json_line(&request)).unwrap();
        assert_eq!(json["request_id"], "a\nstatus=500 b");
    }

    #[test]
    fn lines_reach_the_file() {
        let path = std::env::temp_dir().join(format!("evenkeel-access-{}.log", std::process::id()));
        let config = AccessConfig {
            path: Some(path.clone()),
            format: AccessFormat::Json,
        };
        let log = AccessLog::start(&config).unwrap();
        (0..3).for_each(|_| log.submit(&exchange("p", "i")));
        log.flush();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((text.lines().count(), log.dropped()), (3, 0));
    }
}
