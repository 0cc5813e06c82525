//! The templates of one stream, and those of a thread: streams of one model share them.
//!
//! Sharing saves memory a stream, and keeps what is looked at with every event in the cache however many
//! streams there are. A template is only tried on a stream that a full parse has shown to have it.

use std::cell::RefCell;
use std::sync::Arc;

use smallvec::SmallVec;

use super::template::{Skimmed, Template};
use crate::measure::chunk_log::ChunkKind;

/// Templates kept of one stream: choices, and kinds of output.
const OF_A_STREAM: usize = 4;
/// Templates a thread remembers: models, APIs, engine versions, choices.
const OF_A_THREAD: usize = 32;

thread_local! {
    static SHARED: RefCell<Ring<OF_A_THREAD>> = const { RefCell::new(Ring::new()) };
}

/// A few templates; past `N` the oldest one goes.
#[derive(Debug)]
struct Ring<const N: usize> {
    kept: SmallVec<[Arc<Template>; 1]>,
    next: usize,
}

impl<const N: usize> Ring<N> {
    const fn new() -> Ring<N> {
        Ring {
            kept: SmallVec::new_const(),
            next: 0,
        }
    }

    /// Gives where it is.
    fn keep(&mut self, template: Arc<Template>) -> usize {
        if self.kept.len() < N {
            self.kept.push(template);
            return self.kept.len() - 1;
        }
        let at = self.next;
        self.kept[at] = template;
        self.next = (at + 1) % N;
        at
    }
}

/// The one that all streams of this thread share.
fn shared(template: Template) -> Arc<Template> {
    SHARED.with_borrow_mut(|ring| {
        if let Some(known) = ring.kept.iter().find(|known| ***known == template) {
            return known.clone();
        }
        let template = Arc::new(template);
        ring.keep(template.clone());
        template
    })
}

/// The templates of one stream, last used first tried.
#[derive(Debug)]
pub struct Templates {
    known: Ring<OF_A_STREAM>,
    last: usize,
}

impl Default for Templates {
    fn default() -> Templates {
        Templates {
            known: Ring::new(),
            last: 0,
        }
    }
}

impl Templates {
    /// Reads an event by a template, if one fits.
    #[inline]
    pub fn skim(&mut self, data: &[u8]) -> Option<Skimmed> {
        if let Some(skimmed) = self.last()?.skim(data) {
            return Some(skimmed);
        }
        let mut known = self.known.kept.iter().enumerate();
        let (at, skimmed) = known.find_map(|(at, template)| Some((at, template.skim(data)?)))?;
        self.last = at;
        Some(skimmed)
    }

    /// The one last used or learned.
    pub fn last(&self) -> Option<&Arc<Template>> {
        self.known.kept.get(self.last)
    }

    /// Keeps the frame of a chunk whose only output is `output`, a slice of `data` without escapes.
    pub fn learn(&mut self, data: &[u8], output: &str, choice: u32, kind: ChunkKind) {
        if let Some(template) = Template::learn(data, output, choice, kind) {
            self.last = self.known.keep(shared(template));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn learned(id: &str, model: &str) -> Templates {
        let chunk = format!("{{\"id\":\"{id}\",\"model\":\"{model}\",\"text\":\"OUT\"}}");
        let at = chunk.find("OUT").unwrap();
        let mut templates = Templates::default();
        templates.learn(chunk.as_bytes(), &chunk[at..at + 3], 0, ChunkKind::Text);
        templates
    }

    #[test]
    fn streams_of_one_model_share_a_template() {
        let (one, other, third) = (learned("a", "m"), learned("b", "m"), learned("c", "n"));
        let [one, other, third] = [&one, &other, &third].map(|known| known.last().unwrap());
        assert!(Arc::ptr_eq(one, other));
        assert!(!Arc::ptr_eq(one, third));
    }

    #[test]
    fn a_thread_and_a_stream_remember_so_many_and_streams_keep_theirs() {
        let first = learned("a", "first");
        let mut stream = Templates::default();
        for n in 0..2 * OF_A_THREAD {
            let chunk = format!("{{\"model\":\"m{n}\",\"text\":\"OUT\"}}");
            let at = chunk.find("OUT").unwrap();
            stream.learn(chunk.as_bytes(), &chunk[at..at + 3], 0, ChunkKind::Text);
        }
        assert_eq!(stream.known.kept.len(), OF_A_STREAM);
        assert_eq!(SHARED.with_borrow(|ring| ring.kept.len()), OF_A_THREAD);
        let again = learned("a", "first");
        assert!(!Arc::ptr_eq(first.last().unwrap(), again.last().unwrap()));
        assert_eq!(first.last().unwrap(), again.last().unwrap());
    }
}
