//! A file's lines, one after the other: numbered, of bounded length, and checked to be text.
//!
//! CRLF, a byte order mark and a missing last newline are all fine. A line that is too long or no
//! UTF-8 is said to be so and passed over; only its begin is ever held.

use std::io::{BufRead, Read as _};

use super::{DOCUMENT_BYTES_MAX, TraceError};

/// A line that is not blank.
pub(super) struct Line<'a> {
    /// from 1
    pub(super) number: u64,
    /// without its end; or what is wrong with it
    pub(super) text: Result<&'a str, String>,
}

/// The lines of a source.
pub(super) struct Lines<'a, R> {
    name: &'a str,
    source: R,
    bytes_max: usize,
    number: u64,
    buffer: Vec<u8>,
}

impl<'a, R: BufRead> Lines<'a, R> {
    pub(super) fn new(name: &'a str, source: R, bytes_max: usize) -> Lines<'a, R> {
        Lines {
            name,
            source,
            bytes_max,
            number: 0,
            buffer: Vec::new(),
        }
    }

    /// The next line that is not blank.
    pub(super) fn next_filled(&mut self) -> Result<Option<Line<'_>>, TraceError> {
        while self.fill()? {
            if self.buffer.len() > self.bytes_max {
                return Ok(Some(Line {
                    number: self.number,
                    text: Err(format!("a line of more than {} bytes", self.bytes_max)),
                }));
            }
            if !self.buffer.trim_ascii().is_empty() {
                return Ok(Some(Line {
                    number: self.number,
                    text: std::str::from_utf8(&self.buffer)
                        .map(str::trim)
                        .map_err(|error| no_text(&self.buffer, error.valid_up_to())),
                }));
            }
        }
        Ok(None)
    }

    /// Reads a line into the buffer, its end taken off; of one that is too long a byte more than may be.
    fn fill(&mut self) -> Result<bool, TraceError> {
        self.buffer.clear();
        let most = self.bytes_max as u64 + 2;
        let mut part = (&mut self.source).take(most);
        let read = part.read_until(b'\n', &mut self.buffer);
        if self.failed(read)? == 0 {
            return Ok(false);
        }
        self.number += 1;
        if self.number == 1 && self.buffer.starts_with(b"\xef\xbb\xbf") {
            self.buffer.drain(..3);
        }
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
            self.buffer.pop_if(|byte| *byte == b'\r');
        } else if self.buffer.len() > self.bytes_max {
            let skipped = self.source.skip_until(b'\n');
            self.failed(skipped)?;
        }
        Ok(true)
    }

    /// Everything from `first` on, for files that are one JSON text.
    pub(super) fn rest(mut self, first: String) -> Result<Vec<u8>, TraceError> {
        let mut text = first.into_bytes();
        text.push(b'\n');
        let most = (DOCUMENT_BYTES_MAX + 1).saturating_sub(text.len()) as u64;
        let read = (&mut self.source).take(most).read_to_end(&mut text);
        self.failed(read)?;
        if text.len() > DOCUMENT_BYTES_MAX {
            return Err(TraceError::TooLarge(self.name.to_owned()));
        }
        Ok(text)
    }

    fn failed<T>(&self, read: std::io::Result<T>) -> Result<T, TraceError> {
        read.map_err(|source| TraceError::Read {
            name: self.name.to_owned(),
            source,
        })
    }
}

fn no_text(bytes: &[u8], valid_up_to: usize) -> String {
    match bytes.get(valid_up_to) {
        Some(byte) => format!("no UTF-8: byte 0x{byte:02x} in column {}", valid_up_to + 1),
        None => "no UTF-8".to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], bytes_max: usize) -> Vec<(u64, Result<String, String>)> {
        // the smallest buffer, so that every line crosses its edges
        let source = std::io::BufReader::with_capacity(1, bytes);
        let mut lines = Lines::new("t", source, bytes_max);
        let mut all = Vec::new();
        while let Some(line) = lines.next_filled().unwrap() {
            all.push((line.number, line.text.map(str::to_owned)));
        }
        all
    }

    #[test]
    fn ends_marks_and_blank_lines_do_not_matter_and_numbers_are_the_files() {
        let found = all(b"\xef\xbb\xbfa,b\r\n\r\n \n1,2\n3,4", 100);
        let right = [(1, "a,b"), (4, "1,2"), (5, "3,4")].map(|(n, text)| (n, Ok(text.to_owned())));
        assert_eq!(found, right);
        assert_eq!(all(b"", 100), []);
        assert_eq!(all(b"\n\n\r\n", 100), []);
    }

    #[test]
    fn a_long_line_and_one_that_is_no_text_are_said_to_be_so_and_the_next_is_read() {
        let found = all(b"12345\n123456\r\n1234567890\n\xff\nok\n123456", 5);
        let too_long = Err("a line of more than 5 bytes".to_owned());
        assert_eq!(found[0], (1, Ok("12345".to_owned())));
        assert_eq!(found[1], (2, too_long.clone()));
        assert_eq!(found[2], (3, too_long.clone()));
        assert_eq!(
            found[3],
            (4, Err("no UTF-8: byte 0xff in column 1".to_owned()))
        );
        assert_eq!(found[4], (5, Ok("ok".to_owned())));
        assert_eq!(found[5], (6, too_long));
    }
}
