//! Configuration: a TOML file, read as written (`raw`), checked into what the rest uses (`checked`).
//!
//! A file is judged in three steps, each with all its faults at once: is it TOML, has it the shape
//! of the schema (`shape`), do its values make sense (`check`, `pools`).

mod check;
pub mod checked;
pub mod cli;
pub mod edit;
pub mod error;
pub mod fixed;
pub mod hash_key;
mod health;
pub mod key_hash;
mod keys;
pub(crate) mod place;
mod pools;
mod raw;
pub mod secret;
mod shape;
mod shown;
mod summary;
#[cfg(test)]
mod tests;
pub(crate) mod units;
pub(crate) mod url;

use std::path::Path;

pub use checked::*;
pub use error::{ConfigErrors, Fault, Report};
pub use summary::summary;
pub use units::ByteSize;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, Deserializer};

/// Read and check a file.
pub fn load(path: &Path) -> Result<Config, ConfigErrors> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigErrors::Read {
        path: path.to_owned(),
        source,
    })?;
    parse(&text, &path.display().to_string())
}

/// Check the text of a file; `name` stands for it in errors.
pub fn parse(text: &str, name: &str) -> Result<Config, ConfigErrors> {
    judged(text, name, &schema(), |file, document| {
        check::check(file, document, text)
    })
}

/// Judge a file of any kind: is it TOML, has it the shape of `schema`, and does it fit the `rules` of its kind?
pub(crate) fn judged<F: DeserializeOwned, T>(
    text: &str,
    name: &str,
    schema: &serde_json::Value,
    rules: impl FnOnce(F, &Spanned<DeTable<'_>>) -> Result<T, Vec<Fault>>,
) -> Result<T, ConfigErrors> {
    judge(text, schema, rules).map_err(|faults| {
        Report {
            name: name.to_owned(),
            text: text.to_owned(),
            faults: in_order(faults),
        }
        .into()
    })
}

fn judge<F: DeserializeOwned, T>(
    text: &str,
    schema: &serde_json::Value,
    rules: impl FnOnce(F, &Spanned<DeTable<'_>>) -> Result<T, Vec<Fault>>,
) -> Result<T, Vec<Fault>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(errors.iter().map(not_toml).collect());
    }
    let faults = shape::faults(&document, schema);
    if !faults.is_empty() {
        return Err(faults);
    }
    let file = F::deserialize(Deserializer::from(document.clone()))
        .map_err(|error| vec![not_fitting(&error)])?;
    rules(file, &document)
}

fn in_order(mut faults: Vec<Fault>) -> Vec<Fault> {
    faults.sort_by_key(|fault| fault.span.start);
    faults
}

fn not_toml(error: &toml::de::Error) -> Fault {
    Fault {
        span: error.span().unwrap_or_default(),
        message: format!("not TOML: {}", error.message()),
        quotes: false,
        label: "here".into(),
        help: error
            .message()
            .starts_with("invalid")
            .then(|| "text stands in double quotes: key = \"value\"".into()),
    }
}

fn not_fitting(error: &toml::de::Error) -> Fault {
    Fault {
        span: error.span().unwrap_or_default(),
        message: shown::without_quotes(error.message()),
        quotes: false,
        label: "here".into(),
        help: None,
    }
}

/// The JSON schema of a configuration file.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(raw::File).to_value()
}
