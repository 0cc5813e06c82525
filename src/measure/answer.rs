//! Reads the events of one answer into `summary::Answer`, by the API they came by.

pub mod body;
pub mod chat;
pub mod event;
pub mod figures;
pub mod json;
pub mod messages;
pub mod responses;
pub mod template;
pub mod templates;

use std::borrow::Cow;

use evenkeel_policies::shape::Api;

use self::event::{Event, Part, cut};
use self::json::Json;
use std::sync::Arc;

use self::template::Template;
use self::templates::Templates;
use super::chunk_log::{Chunk, ChunkKind};
use super::clock::Ns;
use super::summary::{Answer, Choice, Usage};

/// Choices told apart; those past it are folded into the last and the answer says so.
pub const CHOICES: usize = 128;
/// Longest finish reason kept.
const FINISH_BYTES: usize = 64;

/// Reads an event's JSON by its API.
pub fn read<'a>(api: Api, json: &Json<'a>, name: Option<&'a [u8]>) -> Event<'a> {
    match api {
        Api::Responses => responses::read(json, name),
        Api::Messages => messages::read(json, name),
        Api::Chat | Api::Completions | Api::Embeddings | Api::Other => chat::read(json, name),
    }
}

/// The answer under way.
#[derive(Debug)]
pub struct Reader {
    api: Api,
    answer: Answer,
    templates: Templates,
    /// running output tokens at the last output chunk, where every chunk carries them
    counted_tokens: Option<u64>,
}

impl Reader {
    /// A reader for one answer.
    pub fn new(api: Api) -> Reader {
        Reader {
            api,
            answer: Answer::default(),
            templates: Templates::default(),
            counted_tokens: Some(0),
        }
    }

    /// What is known so far.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    /// The same, to add what the transport tells.
    pub fn answer_mut(&mut self) -> &mut Answer {
        &mut self.answer
    }

    /// The answer, done.
    pub fn into_answer(self) -> Answer {
        self.answer
    }

    /// The template that the next event most likely fits.
    pub fn template(&self) -> Option<&Arc<Template>> {
        self.templates.last()
    }

    /// One event with output that fits `template`, completed by the read at `at_ns`.
    pub fn usual(&mut self, template: &Template, at_ns: Ns, output: &mut impl FnMut(Chunk)) {
        let index = self.answer.events;
        self.answer.events += 1;
        self.counted_tokens = None;
        let (choice, kind) = (template.choice(), template.kind());
        self.output(index, choice, kind, None, at_ns, output);
    }

    /// One event, completed by the read at `at_ns`. `output` is told of each output chunk.
    #[inline]
    pub fn event(
        &mut self,
        name: Option<&[u8]>,
        data: &[u8],
        at_ns: Ns,
        output: &mut impl FnMut(Chunk),
    ) {
        let index = self.answer.events;
        self.answer.events += 1;
        // An event named `error` is one, whatever it looks like.
        let skimmed = if name == Some(b"error") {
            None
        } else {
            self.templates.skim(data)
        };
        if let Some(skimmed) = skimmed {
            if skimmed.empty {
                self.answer.empty_chunks += 1;
                return;
            }
            self.counted_tokens = None;
            return self.output(index, skimmed.choice, skimmed.kind, None, at_ns, output);
        }
        self.read_in_full(index, name, data, at_ns, output);
    }

    fn read_in_full(
        &mut self,
        index: u64,
        name: Option<&[u8]>,
        data: &[u8],
        at_ns: Ns,
        output: &mut impl FnMut(Chunk),
    ) {
        if data.trim_ascii() == b"[DONE]" {
            self.answer.done_marker = true;
            return;
        }
        let Some(json) = Json::read(data) else {
            self.answer.unread_events += 1;
            return;
        };
        let event = read(self.api, &json, name);
        self.apply(index, &event, at_ns, output);
        // A template does not see the event's name: it must not matter for this one.
        let typed = matches!(self.api, Api::Responses | Api::Messages);
        if name != Some(b"error") && (!typed || json.text_at("type").is_some()) {
            self.learn(data, &event);
        }
    }

    /// Keeps the frame of a chunk that is one plain string of one choice and no more.
    fn learn(&mut self, data: &[u8], event: &Event<'_>) {
        let [part] = event.parts.as_slice() else {
            return;
        };
        let bare = event.usage.is_none() && event.error.is_none() && !event.done;
        let (Some(Cow::Borrowed(plain)), Some(kind)) = (&part.plain, part.output) else {
            return;
        };
        if bare && part.finish.is_none() {
            self.templates.learn(data, plain, part.choice, kind);
        }
    }

    fn apply(&mut self, index: u64, event: &Event<'_>, at_ns: Ns, output: &mut impl FnMut(Chunk)) {
        let tokens = self.chunk_tokens(event);
        let mut empty = false;
        let mut any = false;
        for part in &event.parts {
            self.see(part);
            empty |= part.empty;
            if let Some(kind) = part.output {
                // Several choices in one event are one output chunk of the answer.
                self.part_output(index, part.choice, kind, tokens, at_ns, !any, output);
                any = true;
            }
        }
        self.answer.empty_chunks += u64::from(empty && !any);
        self.answer.done_marker |= event.done;
        if let Some(usage) = event.usage {
            merge(&mut self.answer.usage, usage);
        }
        if self.answer.error.is_none() {
            self.answer.error.clone_from(&event.error);
        }
    }

    /// Tokens of this output chunk, where usage runs along with every chunk of a single choice.
    fn chunk_tokens(&mut self, event: &Event<'_>) -> Option<u32> {
        let [part] = event.parts.as_slice() else {
            self.counted_tokens = self.counted_tokens.filter(|_| event.parts.is_empty());
            return None;
        };
        part.output?;
        let before = self.counted_tokens.take().filter(|_| part.choice == 0)?;
        let now = event.usage?.output_tokens?;
        self.counted_tokens = Some(now);
        u32::try_from(now.checked_sub(before)?).ok()
    }

    fn slot(&mut self, choice: u32) -> &mut Choice {
        let at = (choice as usize).min(CHOICES - 1);
        self.answer.choices_folded |= choice as usize >= CHOICES;
        if self.answer.choices.len() <= at {
            self.answer.choices.resize_with(at + 1, Choice::default);
        }
        let slot = &mut self.answer.choices[at];
        slot.seen = true;
        slot
    }

    fn see(&mut self, part: &Part<'_>) {
        let slot = self.slot(part.choice);
        if let Some(finish) = &part.finish {
            slot.finish = Some(cut(finish, FINISH_BYTES));
            self.answer.aborted |= finish == "abort";
        }
    }

    #[inline]
    fn output(
        &mut self,
        index: u64,
        choice: u32,
        kind: ChunkKind,
        tokens: Option<u32>,
        at_ns: Ns,
        output: &mut impl FnMut(Chunk),
    ) {
        self.part_output(index, choice, kind, tokens, at_ns, true, output);
    }

    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn part_output(
        &mut self,
        index: u64,
        choice: u32,
        kind: ChunkKind,
        tokens: Option<u32>,
        at_ns: Ns,
        first_of_event: bool,
        output: &mut impl FnMut(Chunk),
    ) {
        let answer = &mut self.answer;
        answer.content_chunks += u64::from(first_of_event);
        answer.first_output_event.get_or_insert(index);
        answer.first_output_ns.get_or_insert(at_ns);
        answer.last_output_event = Some(index);
        answer.last_output_ns = Some(at_ns);
        if kind != ChunkKind::Reasoning {
            answer.first_answer_event.get_or_insert(index);
            answer.first_answer_ns.get_or_insert(at_ns);
        }
        let slot = self.slot(choice);
        slot.chunks = slot.chunks.saturating_add(1);
        slot.first_ns.get_or_insert(at_ns);
        let gap_ns = slot
            .last_ns
            .replace(at_ns)
            .map(|last| at_ns.saturating_sub(last));
        self.gap(gap_ns, tokens);
        output(Chunk {
            arrival_ns: at_ns,
            choice,
            kind,
            tokens,
            handed_ns: None,
        });
    }

    #[inline]
    fn gap(&mut self, gap_ns: Option<u64>, tokens: Option<u32>) {
        let answer = &mut self.answer;
        match tokens {
            Some(tokens) => {
                answer.counted_chunks += 1;
                if let Some(gap_ns) = gap_ns {
                    answer
                        .itl
                        .record_n(gap_ns / u64::from(tokens.max(1)), tokens);
                }
            }
            None => answer.uncounted_chunks += 1,
        }
        if let Some(gap_ns) = gap_ns {
            answer.gaps.record(gap_ns);
        }
    }
}

/// The last figure named wins, field by field.
fn merge(usage: &mut Usage, later: Usage) {
    usage.prompt_tokens = later.prompt_tokens.or(usage.prompt_tokens);
    usage.output_tokens = later.output_tokens.or(usage.output_tokens);
    usage.cached_tokens = later.cached_tokens.or(usage.cached_tokens);
}
