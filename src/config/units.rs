//! Sizes as people write them, and how much memory there is.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A number of bytes: an integer, or a string such as "8 MiB".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 8] = [
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

impl ByteSize {
    /// Read "8 MiB", "1.5GB", "4096".
    pub fn parse(text: &str) -> Option<ByteSize> {
        let text = text.trim();
        let digits = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim().to_ascii_lowercase();
        let unit = if unit.is_empty() { "b" } else { unit.as_str() };
        let (_, bytes) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let whole = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(*bytes));
        whole.or_else(|| fraction(number, *bytes)).map(ByteSize)
    }
}

fn fraction(number: &str, bytes: u64) -> Option<u64> {
    let value = number.parse::<f64>().ok()? * bytes as f64;
    (number.contains('.') && value < u64::MAX as f64).then_some(value as u64)
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        match units.into_iter().find(|(_, bytes)| self.0 >= *bytes) {
            Some((unit, bytes)) if self.0.is_multiple_of(bytes) => {
                write!(f, "{} {unit}", self.0 / bytes)
            }
            Some((unit, bytes)) => write!(f, "{:.1} {unit}", self.0 as f64 / bytes as f64),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

impl Serialize for ByteSize {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes, or a string such as \"8 MiB\"")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<ByteSize, E> {
        u64::try_from(value)
            .map(ByteSize)
            .map_err(|_| E::custom("a size cannot be negative"))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<ByteSize, E> {
        Ok(ByteSize(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<ByteSize, E> {
        ByteSize::parse(value).ok_or_else(|| {
            E::custom(format!(
                "`{value}` is no size; write one like \"8 MiB\" or \"512 MB\""
            ))
        })
    }
}

impl schemars::JsonSchema for ByteSize {
    fn schema_name() -> Cow<'static, str> {
        "ByteSize".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "a number of bytes, or a string such as \"8 MiB\"",
            "anyOf": [
                { "type": "integer", "minimum": 0 },
                { "type": "string", "pattern": "^ *[0-9.]+ *([kKmMgG]?[bB]|[kKmMgGtT][iI][bB])? *$" }
            ]
        })
    }
}

/// Memory this process may use: the machine's, or the control group's if that is less.
pub fn memory_bytes() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| mem_total(&text));
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    machine.into_iter().chain(group).min()
}

fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let read = |text| ByteSize::parse(text).map(|size| size.0);
        assert_eq!(read("8 MiB"), Some(8 << 20));
        assert_eq!(read("512MB"), Some(512_000_000));
        assert_eq!(read("1.5 KiB"), Some(1536));
        assert_eq!(read("4096"), Some(4096));
        for wrong in ["", "MiB", "8 apples", "-1", "1..5 kb", "99999999999 TiB"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sizes_print_in_the_largest_fitting_unit() {
        assert_eq!(ByteSize(8 << 20).to_string(), "8 MiB");
        assert_eq!(ByteSize(1536 << 20).to_string(), "1.5 GiB");
        assert_eq!(ByteSize(100).to_string(), "100 bytes");
    }

    #[test]
    fn memory_is_read_from_meminfo() {
        assert_eq!(
            mem_total("Foo: 1 kB\nMemTotal:       2048 kB\n"),
            Some(2 << 20)
        );
        assert_eq!(mem_total("x"), None);
    }
}
