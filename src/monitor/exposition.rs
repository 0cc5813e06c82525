//! The text in which Prometheus exporters tell their figures. Pure.
//!
//! Both spellings are read, Prometheus' and OpenMetrics'. A line that is neither is counted and left out: exporters
//! have been seen to write half a line.

use std::borrow::Cow;

/// One figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample<'a> {
    /// name of the metric
    pub name: &'a str,
    /// labels in their order
    pub labels: Vec<(&'a str, Cow<'a, str>)>,
    /// value; may be NaN or infinite
    pub value: f64,
}

impl Sample<'_> {
    /// Value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        let found = self.labels.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_ref())
    }
}

/// All figures of a page.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page<'a> {
    /// in the order of the page
    pub samples: Vec<Sample<'a>>,
    /// lines that are no figure and no comment
    pub malformed: u64,
}

impl<'a> Page<'a> {
    /// Reads a page.
    pub fn read(text: &'a str) -> Page<'a> {
        let mut page = Page::default();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match sample(line) {
                Some(sample) => page.samples.push(sample),
                None => page.malformed += 1,
            }
        }
        page
    }

    /// Values of a metric that are numbers.
    pub fn values<'p>(&'p self, name: &'p str) -> impl Iterator<Item = f64> + 'p {
        self.named(name).map(|sample| sample.value)
    }

    /// Figures of this name whose values are numbers.
    pub fn named<'p>(&'p self, name: &'p str) -> impl Iterator<Item = &'p Sample<'a>> + 'p {
        let fits = move |sample: &&Sample<'a>| sample.name == name && sample.value.is_finite();
        self.samples.iter().filter(fits)
    }
}

fn is_name(text: &str, colons: bool) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || (colons && c == ':');
    !text.is_empty() && text.chars().all(fits) && !text.starts_with(|c: char| c.is_ascii_digit())
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, rest) = line.split_at(end);
    if !is_name(name, true) {
        return None;
    }
    let (labels, rest) = match rest.trim_start().strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (Vec::new(), rest),
    };
    // behind the value may be a timestamp, and in OpenMetrics an exemplar
    let mut words = rest.split_whitespace();
    let value = number(words.next()?)?;
    let is_end = |word: &str| word == "#" || word.parse::<f64>().is_ok();
    words.next().is_none_or(is_end).then_some(Sample {
        name,
        labels,
        value,
    })
}

fn number(word: &str) -> Option<f64> {
    match word {
        "NaN" | "Nan" => Some(f64::NAN),
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        _ if word.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => {
            word.parse().ok()
        }
        _ => None,
    }
}

type Labels<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// Reads to the closing brace; gives what follows it too.
fn labels(mut rest: &str) -> Option<(Labels<'_>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once('=')?;
        let name = name.trim();
        if !is_name(name, false) {
            return None;
        }
        let (value, after) = quoted(after.trim_start().strip_prefix('"')?)?;
        labels.push((name, value));
        rest = after.trim_start();
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None if rest.starts_with('}') => {}
            None => return None,
        }
    }
}

/// The text up to its closing quote, and what follows that.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let end = text.find(['"', '\\'])?;
    if text.as_bytes()[end] == b'"' {
        return Some((Cow::Borrowed(&text[..end]), &text[end + 1..]));
    }
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((Cow::Owned(value), &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_with_their_labels_in_both_spellings() {
        let text = "# HELP vllm:x Text.\n# TYPE vllm:x gauge\nvllm:x{engine=\"0\",model_name=\"a\\\"b\\\\\\nc, }\"} 1.5 1700000000000\n\
            plain 3\nspaced { a = \"1\" , } 2e3\nup_total{} +Inf # {trace=\"1\"} 0.5\nnone NaN\n# EOF\n";
        let page = Page::read(text);
        assert_eq!(page.malformed, 0);
        assert_eq!(page.samples.len(), 5);
        let first = &page.samples[0];
        assert_eq!((first.name, first.value), ("vllm:x", 1.5));
        assert_eq!(first.label("model_name"), Some("a\"b\\\nc, }"));
        assert_eq!(first.label("engine"), Some("0"));
        assert_eq!(page.samples[2].label("a"), Some("1"));
        assert_eq!(page.values("spaced").collect::<Vec<_>>(), [2000.0]);
        assert_eq!(page.values("none").count(), 0, "not a number is no value");
    }

    #[test]
    fn malformed_lines_are_counted_and_cost_no_other_line() {
        let text = "a 1\nb\nb{\nb{x} 1\nb{x=\"1} 1\nb{x=\"1\"\nb{x=\"1\"} one\n1b 1\nb{x=\"1\" y=\"2\"} 1\n\
            b 1 two\n<html>\nb{x=\"\\\nb inf\nz 2\n";
        let page = Page::read(text);
        let names: Vec<&str> = page.samples.iter().map(|sample| sample.name).collect();
        assert_eq!(names, ["a", "z"]);
        assert_eq!(page.malformed, 12);
    }

    proptest::proptest! {
        #[test]
        fn no_text_stops_the_reader(text in "\\PC{0,80}|[a-z{}=\",\\\\ 0-9\n]{0,80}") {
            let page = Page::read(&text);
            assert!(page.samples.len() as u64 + page.malformed <= text.lines().count() as u64);
        }
    }
}
