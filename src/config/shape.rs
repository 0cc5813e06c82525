//! Does a file have the shape of the schema? Finds every unknown key, missing key, wrong type and
//! unknown word at once, where serde would stop at the first.

use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::Fault;
use super::units::ByteSize;

/// Everything in `document` that does not fit `schema`.
pub fn faults(document: &Spanned<DeTable<'_>>, schema: &Json) -> Vec<Fault> {
    let mut walk = Walk {
        root: schema,
        faults: Vec::new(),
    };
    walk.table(document.get_ref(), document.span(), schema, "");
    walk.faults
}

struct Walk<'s> {
    root: &'s Json,
    faults: Vec<Fault>,
}

impl<'s> Walk<'s> {
    fn value(&mut self, value: &Spanned<DeValue<'_>>, schema: &'s Json, path: &str) {
        let schema = self.resolved(schema);
        if let Some(choices) = alternatives(schema) {
            return self.choice(value, choices, path);
        }
        if let Some(words) = schema["enum"].as_array() {
            return self.word(
                value,
                &words.iter().filter_map(Json::as_str).collect::<Vec<_>>(),
                path,
            );
        }
        if !fits(value.get_ref(), schema) {
            return self.wrong_type(value, &[type_of(schema)], path);
        }
        match value.get_ref() {
            DeValue::Table(table) => self.table(table, value.span(), schema, path),
            DeValue::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(item, &schema["items"], &format!("{path}[{index}]"));
                }
            }
            // sizes are the only strings with a pattern
            DeValue::String(text) if schema["pattern"].is_string() => self.size(value, text, path),
            _ => {}
        }
    }

    /// One of several schemas: words, a table told by its kind, or values told by their type.
    fn choice(&mut self, value: &Spanned<DeValue<'_>>, choices: &'s [Json], path: &str) {
        let choices: Vec<&'s Json> = choices.iter().map(|choice| self.resolved(choice)).collect();
        let words: Vec<&str> = choices
            .iter()
            .filter_map(|choice| choice["const"].as_str())
            .collect();
        if words.len() == choices.len() {
            return self.word(value, &words, path);
        }
        if let (Some(tag), DeValue::Table(table)) = (tag_of(&choices), value.get_ref()) {
            return self.tagged(table, value.span(), &choices, tag, path);
        }
        let fitting: Vec<&&Json> = choices
            .iter()
            .filter(|choice| fits(value.get_ref(), choice))
            .collect();
        match fitting.as_slice() {
            [] => {
                let types: Vec<&str> = choices
                    .iter()
                    .map(|choice| type_of(choice))
                    .filter(|name| *name != "null")
                    .collect();
                self.wrong_type(value, &types, path);
            }
            [choice] => self.value(value, choice, path),
            _ => {}
        }
    }

    fn tagged(
        &mut self,
        table: &DeTable<'_>,
        span: std::ops::Range<usize>,
        choices: &[&'s Json],
        tag: &str,
        path: &str,
    ) {
        let words: Vec<&str> = choices
            .iter()
            .filter_map(|choice| choice["properties"][tag]["const"].as_str())
            .collect();
        let Some((_, value)) = table.iter().find(|(key, _)| key.get_ref() == tag) else {
            return self.missing(
                span,
                tag,
                path,
                &format!("{tag} is one of {}", listed(&words)),
            );
        };
        let chosen = choices.iter().find(|choice| {
            let word = choice["properties"][tag]["const"].as_str();
            word.is_some() && word == value.get_ref().as_str()
        });
        match chosen {
            Some(choice) => self.table(table, span, choice, path),
            None => self.word(value, &words, &joined(path, tag)),
        }
    }

    fn table(
        &mut self,
        table: &DeTable<'_>,
        span: std::ops::Range<usize>,
        schema: &'s Json,
        path: &str,
    ) {
        let known = schema["properties"].as_object();
        let mut slips = Vec::new();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            if let Some(inner) = known.and_then(|known| known.get(name)) {
                self.value(value, inner, &joined(path, name));
            } else if schema["additionalProperties"].is_object() {
                self.value(value, &schema["additionalProperties"], &joined(path, name));
            } else if schema["additionalProperties"] == Json::Bool(false) {
                let names: Vec<&str> = known
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| name.as_str())
                    .collect();
                slips.extend(self.unknown_key(key, &names, path));
            }
        }
        for name in schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
        {
            let written = table.iter().any(|(key, _)| key.get_ref() == name);
            // a slip of the key is one fault, not two
            if !written && !slips.contains(&name) {
                let described = known.and_then(|known| known.get(name)?["description"].as_str());
                let help = described
                    .map(|text| format!("`{name}` is {text}"))
                    .unwrap_or_default();
                self.missing(span.clone(), name, path, &help);
            }
        }
    }

    /// Gives the key that was probably meant.
    fn unknown_key<'n>(
        &mut self,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        names: &[&'n str],
        path: &str,
    ) -> Option<&'n str> {
        let name = key.get_ref();
        let near = nearest(name, names);
        let place = if path.is_empty() {
            "at the top of the file".to_owned()
        } else {
            format!("in `{path}`")
        };
        self.faults.push(Fault {
            span: key.span(),
            message: format!("unknown key `{name}` {place}"),
            quotes: false,
            label: "not known here".into(),
            help: Some(match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known keys here: {}", listed(names)),
            }),
        });
        near
    }

    fn size(&mut self, value: &Spanned<DeValue<'_>>, text: &str, path: &str) {
        if ByteSize::parse(text).is_none() {
            self.faults.push(Fault {
                span: value.span(),
                message: format!("`{path}` cannot be \"{text}\""),
                quotes: true,
                label: "not a size".into(),
                help: Some(
                    "write a number of bytes, or a size such as \"8 MiB\" or \"512 MB\"".into(),
                ),
            });
        }
    }

    fn missing(&mut self, span: std::ops::Range<usize>, name: &str, path: &str, help: &str) {
        self.faults.push(Fault {
            span,
            message: format!("missing key `{}`", joined(path, name)),
            quotes: false,
            label: format!("needs `{name}`"),
            help: (!help.is_empty()).then(|| help.to_owned()),
        });
    }

    fn word(&mut self, value: &Spanned<DeValue<'_>>, words: &[&str], path: &str) {
        let Some(text) = value.get_ref().as_str() else {
            return self.wrong_type(value, &["string"], path);
        };
        if words.contains(&text) {
            return;
        }
        let near = nearest(text, words).map(|near| format!("did you mean \"{near}\"? "));
        self.faults.push(Fault {
            span: value.span(),
            message: format!("`{path}` cannot be \"{text}\""),
            quotes: true,
            label: "not one of the allowed values".into(),
            help: Some(format!(
                "{}allowed: {}",
                near.unwrap_or_default(),
                listed(words)
            )),
        });
    }

    fn wrong_type(&mut self, value: &Spanned<DeValue<'_>>, types: &[&str], path: &str) {
        let expected = types
            .iter()
            .map(|name| in_words(name))
            .collect::<Vec<_>>()
            .join(" or ");
        self.faults.push(Fault {
            span: value.span(),
            message: format!("`{path}` must be {expected}"),
            quotes: false,
            label: format!("this is {}", in_words(value.get_ref().type_str())),
            help: None,
        });
    }

    fn resolved(&self, schema: &'s Json) -> &'s Json {
        let Some(name) = schema["$ref"]
            .as_str()
            .and_then(|path| path.strip_prefix("#/$defs/"))
        else {
            return schema;
        };
        self.resolved(&self.root["$defs"][name])
    }
}

fn alternatives(schema: &Json) -> Option<&[Json]> {
    schema["oneOf"]
        .as_array()
        .or(schema["anyOf"].as_array())
        .map(Vec::as_slice)
}

/// The key whose fixed value tells tables apart.
fn tag_of<'s>(choices: &[&'s Json]) -> Option<&'s str> {
    let properties = choices
        .iter()
        .find_map(|choice| choice["properties"].as_object())?;
    properties
        .iter()
        .find(|(_, schema)| schema["const"].is_string())
        .map(|(name, _)| name.as_str())
}

fn type_of(schema: &Json) -> &str {
    match &schema["type"] {
        Json::Array(types) => types.first().and_then(Json::as_str).unwrap_or("value"),
        name => name.as_str().unwrap_or("value"),
    }
}

fn fits(value: &DeValue<'_>, schema: &Json) -> bool {
    matches!(
        (type_of(schema), value),
        ("string", DeValue::String(_))
            | ("integer" | "number", DeValue::Integer(_))
            | ("number", DeValue::Float(_))
            | ("boolean", DeValue::Boolean(_))
            | ("array", DeValue::Array(_))
            | ("object", DeValue::Table(_))
            | ("value", _)
    )
}

fn in_words(name: &str) -> String {
    match name {
        "integer" => "a whole number".into(),
        "number" => "a number".into(),
        "float" => "a number with a fraction".into(),
        "boolean" => "true or false".into(),
        "array" => "a list".into(),
        "object" | "table" => "a table".into(),
        other => format!("a {other}"),
    }
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn listed(names: &[&str]) -> String {
    names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The name that `wrong` is most likely a slip of.
fn nearest<'n>(wrong: &str, names: &[&'n str]) -> Option<&'n str> {
    let scored = names.iter().map(|name| (edits(wrong, name), *name));
    let (edits, name) = scored.min_by_key(|(edits, _)| *edits)?;
    let contained = || {
        names
            .iter()
            .find(|name| wrong.len() > 3 && (name.contains(wrong) || wrong.contains(**name)))
    };
    if edits <= 1 + wrong.len().min(name.len()) / 4 {
        Some(name)
    } else {
        contained().copied()
    }
}

/// Levenshtein distance, where two swapped neighbours are one edit.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            row.push(if swap {
                best.min(rows[i - 2][j - 2] + 1)
            } else {
                best
            });
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}
