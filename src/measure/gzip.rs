//! Reads a gzip or deflate body as it passes: one decoder a stream, little output at a time.
//!
//! The bytes go to the client as they came; this is for the meter's eyes only. However far a body
//! expands, only one step's output (32 KiB) is in memory, and one that expands absurdly is given up.

use std::io::{self, Write};

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

/// Decoded bytes up to which no ratio is too large.
const FREE_BYTES: u64 = 64 << 20;
/// Event streams shrink to a tenth; past this the body is an attack.
const MOST_RATIO: u64 = 300;

/// The stream could not be decoded (further).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the compressed body cannot be read")]
pub struct Undecodable;

#[derive(Debug)]
enum Inflate {
    Gzip(MultiGzDecoder<Vec<u8>>),
    Zlib(ZlibDecoder<Vec<u8>>),
    Raw(DeflateDecoder<Vec<u8>>),
    /// `deflate` whose first byte has not come: it may have a zlib header or not
    Unknown,
}

/// A streaming decoder.
#[derive(Debug)]
pub struct Decoder {
    inflate: Inflate,
    taken_bytes: u64,
    given_bytes: u64,
}

impl Decoder {
    /// For `content-encoding: gzip`.
    pub fn gzip() -> Decoder {
        Decoder::new(Inflate::Gzip(MultiGzDecoder::new(Vec::new())))
    }

    /// For `content-encoding: deflate`, with the zlib header the standard asks for or without.
    pub fn deflate() -> Decoder {
        Decoder::new(Inflate::Unknown)
    }

    fn new(inflate: Inflate) -> Decoder {
        Decoder {
            inflate,
            taken_bytes: 0,
            given_bytes: 0,
        }
    }

    /// Takes compressed bytes and hands out what they decode to, in small steps.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        sink: &mut impl FnMut(&[u8]),
    ) -> Result<(), Undecodable> {
        self.choose(bytes);
        while !bytes.is_empty() {
            let taken = self.step(bytes).map_err(|_| Undecodable)?;
            bytes = &bytes[taken..];
            self.taken_bytes += taken as u64;
            let given = self.hand_out(sink);
            if taken == 0 && given == 0 {
                return Err(Undecodable);
            }
            self.check_ratio()?;
        }
        self.flush().map_err(|_| Undecodable)?;
        self.hand_out(sink);
        self.check_ratio()
    }

    fn choose(&mut self, bytes: &[u8]) {
        if let (Inflate::Unknown, Some(first)) = (&self.inflate, bytes.first()) {
            self.inflate = match first & 0x0f {
                8 => Inflate::Zlib(ZlibDecoder::new(Vec::new())),
                _ => Inflate::Raw(DeflateDecoder::new(Vec::new())),
            };
        }
    }

    fn step(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.inflate {
            Inflate::Gzip(decoder) => decoder.write(bytes),
            Inflate::Zlib(decoder) => decoder.write(bytes),
            Inflate::Raw(decoder) => decoder.write(bytes),
            Inflate::Unknown => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.inflate {
            Inflate::Gzip(decoder) => decoder.flush(),
            Inflate::Zlib(decoder) => decoder.flush(),
            Inflate::Raw(decoder) => decoder.flush(),
            Inflate::Unknown => Ok(()),
        }
    }

    fn hand_out(&mut self, sink: &mut impl FnMut(&[u8])) -> usize {
        let plain = match &mut self.inflate {
            Inflate::Gzip(decoder) => decoder.get_mut(),
            Inflate::Zlib(decoder) => decoder.get_mut(),
            Inflate::Raw(decoder) => decoder.get_mut(),
            Inflate::Unknown => return 0,
        };
        let given = plain.len();
        if given > 0 {
            sink(plain);
            plain.clear();
            self.given_bytes += given as u64;
        }
        given
    }

    fn check_ratio(&self) -> Result<(), Undecodable> {
        let most = self.taken_bytes.saturating_mul(MOST_RATIO).max(FREE_BYTES);
        if self.given_bytes > most {
            Err(Undecodable)
        } else {
            Ok(())
        }
    }
}
