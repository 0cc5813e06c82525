//! Secrets: named in the configuration by where they are kept, never written in it, never shown.

use std::fmt;
use std::path::{Path, PathBuf};

use http::HeaderValue;

/// Where a secret is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// in a file of its own; white space around it does not count
    File(PathBuf),
    /// in an environment variable
    Env(String),
}

/// What may stand in a configuration.
pub const SOURCES: &str = "\"file:/path/to/it\" or \"env:NAME\"";

/// Why a secret cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// the file cannot be read
    #[error("cannot read {0}: {1}")]
    Read(SecretSource, std::io::Error),
    /// the variable is not there, or is no text
    #[error("{0} is not set to a text")]
    Unset(SecretSource),
    /// nothing in it
    #[error("{0} is empty")]
    Empty(SecretSource),
    /// it cannot go into a header
    #[error("{0} holds more than one line of printable characters")]
    NotPlain(SecretSource),
}

impl SecretSource {
    /// Reads `file:PATH` or `env:NAME`.
    pub fn parse(text: &str) -> Option<SecretSource> {
        match text.split_once(':')? {
            (_, "") => None,
            ("file", path) => Some(SecretSource::File(path.into())),
            ("env", name) if !name.contains(['=', '\0']) => {
                Some(SecretSource::Env(name.to_owned()))
            }
            _ => None,
        }
    }

    /// The file, if it is kept in one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            SecretSource::File(path) => Some(path),
            SecretSource::Env(_) => None,
        }
    }

    /// The secret itself.
    pub fn read(&self) -> Result<Secret, SecretError> {
        let text = match self {
            SecretSource::File(path) => std::fs::read_to_string(path)
                .map_err(|error| SecretError::Read(self.clone(), error))?,
            SecretSource::Env(name) => {
                std::env::var(name).map_err(|_| SecretError::Unset(self.clone()))?
            }
        };
        let text = text.trim();
        if text.is_empty() {
            return Err(SecretError::Empty(self.clone()));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(SecretError::NotPlain(self.clone()));
        }
        Ok(Secret(text.into()))
    }
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::File(path) => write!(f, "the file {}", path.display()),
            SecretSource::Env(name) => write!(f, "the environment variable {name}"),
        }
    }
}

/// A secret: printable, without white space. It cannot be printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// The text; for the one place that sends or hashes it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The text behind `prefix` as a header's value, marked as sensitive.
    pub fn header(&self, prefix: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::try_from(format!("{prefix}{}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_source_says_where_and_nothing_else() {
        let file = SecretSource::parse("file:/run/secrets/key").unwrap();
        assert_eq!(file, SecretSource::File("/run/secrets/key".into()));
        let env = SecretSource::parse("env:ENGINE_KEY").unwrap();
        assert_eq!(env, SecretSource::Env("ENGINE_KEY".into()));
        for text in ["sk-abc", "file:", "env:", "env:A=B", "", "http://x"] {
            assert_eq!(SecretSource::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_secret_is_read_trimmed_and_never_shown() {
        let path = std::env::temp_dir().join(format!("evenkeel-secret-{}", std::process::id()));
        let source = SecretSource::File(path.clone());
        std::fs::write(&path, "  sk-0123456789\n").unwrap();
        let secret = source.read().unwrap();
        assert_eq!(secret.expose(), "sk-0123456789");
        let header = secret.header("Bearer ").unwrap();
        assert_eq!(header, "Bearer sk-0123456789");
        assert!(!format!("{secret:?} {header:?}").contains("0123"));
        for (text, word) in [("\n", "empty"), ("a b", "one line"), ("a\nb", "one line")] {
            std::fs::write(&path, text).unwrap();
            let said = source.read().unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        }
        std::fs::remove_file(&path).unwrap();
        let said = source.read().unwrap_err().to_string();
        assert!(said.starts_with("cannot read the file /"), "{said}");
    }
}
