//! Errors of a configuration file, shown with the lines they are on.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use super::shown;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigErrors {
    /// the file cannot be read
    #[error("cannot read the configuration {}: {source}", path.display())]
    Read {
        /// the file
        path: PathBuf,
        /// what the system says
        source: std::io::Error,
    },
    /// the file says something wrong
    #[error(transparent)]
    Invalid(#[from] Report),
}

/// Everything found wrong in one file; at least one fault.
#[derive(Debug)]
pub struct Report {
    /// name of the file
    pub name: String,
    /// its text
    pub text: String,
    /// the faults, in the order of the file
    pub faults: Vec<Fault>,
}

/// One thing wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// where in the text, in bytes
    pub span: Range<usize>,
    /// what is wrong, naming the key
    pub message: String,
    /// the value at this place may be shown: no secret stands there
    pub quotes: bool,
    /// short words under the place
    pub label: String,
    /// what would be right
    pub help: Option<String>,
}

impl std::error::Error for Report {}

impl Report {
    /// The report as text, coloured for a terminal or plain.
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let masked = shown::masked(&self.text);
        let faults = self.faults.iter().map(|fault| {
            let text = match fault.quotes {
                true => shown::quoting(&masked, &self.text, &fault.span),
                false => masked.clone(),
            };
            renderer.render(&[self.group(fault, &text)])
        });
        faults.collect::<Vec<_>>().join("\n\n")
    }

    /// The line a fault is on, from 1.
    pub fn line(&self, fault: &Fault) -> usize {
        let before = &self.text.as_bytes()[..fault.span.start.min(self.text.len())];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn group<'a>(&'a self, fault: &'a Fault, text: &'a str) -> Group<'a> {
        let annotation = AnnotationKind::Primary
            .span(self.within(&fault.span))
            .label(&fault.label);
        let snippet = Snippet::source(text)
            .path(&self.name)
            .annotation(annotation);
        let group = Level::ERROR.primary_title(&fault.message).element(snippet);
        match &fault.help {
            Some(help) => group.element(Level::HELP.message(help)),
            None => group,
        }
    }

    /// Spans that run past a line are cut to their first: a whole table is no pointer.
    fn within(&self, span: &Range<usize>) -> Range<usize> {
        let start = span.start.min(self.text.len());
        let end = span.end.clamp(start, self.text.len());
        let line = self
            .text
            .get(start..end)
            .and_then(|text| text.find('\n'))
            .unwrap_or(end - start);
        start..start + line
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}
