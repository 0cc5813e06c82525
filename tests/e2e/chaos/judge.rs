//! What is right: holds what a client saw, what the fault proxies did and what the record says against
//! the plan.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::INSTANCES;
use super::fleet::Spell;
use super::lanes::View;
use super::plan::{Conduct, Kind};
use crate::support::fault_pipe::Ending;
use crate::support::fault_proxy::Sighting;

/// All that is known of one request.
pub struct Case<'a> {
    pub view: &'a View,
    pub records: &'a [Value],
    /// the instance and what befell the request there, in order of time
    pub sightings: &'a [(usize, Sighting)],
    pub spells: &'a [Spell],
    /// the text that its prompt gets
    pub text: &'a str,
}

/// An answer's content, read by the client.
#[derive(Debug, Default)]
struct Told {
    text: String,
    finish: Option<String>,
    done: bool,
    error: bool,
}

impl Told {
    fn complete(&self) -> bool {
        self.finish.is_some() || self.done
    }
}

type Verdict = Result<(), String>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

impl Case<'_> {
    /// The recorded outcome, `none` without a record; or what is wrong.
    pub fn judge(&self) -> Result<String, String> {
        let view = self.view;
        ensure(!view.hung, || "it hung".to_owned())?;
        if let Some(wrong) = &view.wrong {
            return Err(wrong.clone());
        }
        self.sightings_are_right()?;
        let told = self.answer_is_its_own()?;
        // on HTTP/2 a client may be gone before its request went out
        let unsent = view.plan.http2 && view.plan.conduct == Conduct::LeaveAtOnce;
        if self.records.is_empty() && unsent {
            return Ok("none".to_owned());
        }
        let count = self.records.len();
        ensure(count == 1, || format!("{count} records"))?;
        let record = &self.records[0];
        let outcome = record["outcome"].as_str().unwrap_or_default();
        let expected = if view.left {
            self.of_leaver(&told)
        } else {
            self.of_stayer(&told)?
        };
        ensure(expected.contains(&outcome), || {
            format!("outcome {outcome}, expected {expected:?}")
        })?;
        self.record_is_right(record)?;
        Ok(outcome.to_owned())
    }

    /// The instance that its record names.
    fn named(&self) -> Option<usize> {
        let name = self.records.first()?["instance"].as_str()?;
        name.strip_prefix('i')?.parse().ok()
    }

    /// The last attempt if its fault proxy saw it: an instance that dies may have accepted and read nothing.
    fn last(&self) -> Option<&Sighting> {
        let (at, sighting) = self.sightings.last()?;
        (self.named() == Some(*at)).then_some(sighting)
    }

    /// One of the instances it went to was not well meanwhile.
    fn spell(&self) -> bool {
        let named = self.named();
        let meanwhile = |spell: &Spell| {
            let there = self.sightings.iter().any(|(at, _)| *at == spell.instance);
            (there || named == Some(spell.instance))
                && overlaps(spell, self.view.begun, self.view.ended)
        };
        self.spells.iter().any(meanwhile)
    }

    /// No instance was well throughout: each died meanwhile, or was still out after an ill spell.
    fn nobody_was_well(&self) -> bool {
        let ill = |instance: usize| {
            let since = self.view.begun.checked_sub(OUT_MAX);
            self.spells.iter().any(|spell| {
                spell.instance == instance
                    && overlaps(spell, since.unwrap_or(self.view.begun), self.view.ended)
            })
        };
        (0..INSTANCES).all(ill)
    }

    /// A reset may take away bytes that Evenkeel had not read yet; a death may follow right on the last of them.
    fn may_be_lost(&self, one: &Sighting) -> bool {
        match one.end {
            Some(Ending::Reset | Ending::Killed) => true,
            Some(Ending::Whole) => self.spell(),
            _ => false,
        }
    }

    /// Each is over, and what was sent again could be: the last one alone may have told the client something.
    fn sightings_are_right(&self) -> Verdict {
        for (_, one) in self.sightings {
            ensure(one.end.is_some(), || {
                format!("still open upstream: {one:?}")
            })?;
        }
        let Some((_, earlier)) = self.sightings.split_last() else {
            return Ok(());
        };
        let kind = self.view.plan.kind;
        for (_, one) in earlier {
            let busy = matches!(kind, Kind::BusyOnce | Kind::BusyEverywhere)
                && one.end == Some(Ending::Whole);
            let unanswered = one.reuse > 0 && (one.down_bytes == 0 || self.may_be_lost(one));
            ensure(busy || unanswered, || format!("sent again after {one:?}"))?;
        }
        Ok(())
    }

    /// No other request's answer, none twice, in order, and whole where the end is clean.
    fn answer_is_its_own(&self) -> Result<Told, String> {
        let view = self.view;
        let foreign = view.id.as_ref().filter(|id| **id != view.plan.id);
        ensure(foreign.is_none(), || format!("the answer of {foreign:?}"))?;
        if view.status != Some(200) {
            return Ok(Told::default());
        }
        let planned_error = view.plan.kind == Kind::ErrorEvent;
        let id = (!planned_error).then(|| format!("chatcmpl-{}", view.plan.id));
        let told = if view.plan.stream {
            read_stream(&view.body, id.as_deref())?
        } else {
            read_whole(&view.body, id.as_deref(), view.clean)?
        };
        let text = if planned_error { "a" } else { self.text };
        ensure(text.starts_with(&told.text), || {
            format!("{:?} is no beginning of {text:?}", told.text)
        })?;
        let aborted = told.finish.as_deref() == Some("abort");
        if view.clean && !told.error && !aborted {
            ensure(told.complete() && told.text == text, || {
                format!("a clean end after {:?} of {text:?}", told.text)
            })?;
        }
        Ok(told)
    }

    /// Whether the last answer ended unclean upstream.
    fn broken(&self, last: &Sighting) -> bool {
        let garbled = self.view.plan.kind == Kind::GarbledChunk && last.struck > 0;
        last.end != Some(Ending::Whole) || garbled
    }

    /// The client left: that is the outcome, unless something else came first.
    fn of_leaver(&self, told: &Told) -> Vec<&'static str> {
        let mut expected = vec!["client_cancelled"];
        let conduct = self.view.plan.conduct;
        if matches!(conduct, Conduct::LeaveAtOnce | Conduct::LeaveSomewhere) {
            // the whole answer, or an error, may have come to Evenkeel before it saw the client leave
            expected.extend(["ok", "engine_error"]);
        }
        if conduct == Conduct::Hold {
            // a checkpoint may outlast the limit on silence
            expected.push("timeout");
        }
        if self.spell() {
            // so may the instance's death
            expected.extend(["engine_error", "cut"]);
        }
        if told.error || told.finish.as_deref() == Some("abort") {
            expected.push("engine_error");
        }
        expected
    }

    /// The client stayed: the outcome is what the last instance made of it.
    fn of_stayer(&self, told: &Told) -> Result<Vec<&'static str>, String> {
        let (view, kind) = (self.view, self.view.plan.kind);
        let Some(last) = self.last() else {
            ensure(view.status == Some(502) && self.spell(), || {
                format!("status {:?} without an attempt", view.status)
            })?;
            return Ok(vec!["engine_error"]);
        };
        self.ended_as_planned(last)?;
        let broken = self.broken(last);
        match view.status {
            Some(200) => {
                let lost = !view.clean && self.may_be_lost(last);
                ensure(view.clean != broken || lost, || {
                    let clean = view.clean;
                    format!("clean is {clean} at the client, and upstream: {last:?}")
                })?;
                let silent = kind == Kind::SwallowedBody && last.struck > 0;
                let died = last.end == Some(Ending::Killed);
                Ok(match () {
                    () if told.error || told.finish.as_deref() == Some("abort") => {
                        vec!["engine_error"]
                    }
                    () if told.complete() => vec!["ok"],
                    // which of the two came first is not to be seen
                    () if silent && died => vec!["timeout", "cut"],
                    () if silent => vec!["timeout"],
                    () => vec!["cut"],
                })
            }
            Some(502) => {
                // what died on a kept connection without a byte is sent again
                let resendable = last.reuse > 0 && last.down_bytes == 0;
                let answered = matches!(kind, Kind::GarbageHead | Kind::HugeHead);
                let lost = self.may_be_lost(last);
                let headless = last.head_bytes.is_none() || answered || lost;
                ensure((broken || lost) && headless, || {
                    format!("502 after {last:?}")
                })?;
                ensure(!resendable || answered || self.spell(), || {
                    format!("not sent again: {last:?}")
                })?;
                Ok(vec!["engine_error"])
            }
            Some(504) => {
                let swallowed = matches!(kind, Kind::SwallowedRequest | Kind::SwallowedHead)
                    || matches!(view.plan.conduct, Conduct::Hold);
                ensure(swallowed, || format!("504 after {last:?}"))?;
                Ok(vec!["timeout"])
            }
            Some(400) if kind == Kind::Status400 => Ok(vec!["client_error"]),
            Some(429) if kind == Kind::BusyEverywhere => Ok(vec!["engine_error"]),
            // planned, or by a fault on demand of the engine
            Some(500) => Ok(vec!["engine_error"]),
            status => Err(format!("status {status:?} after {last:?}")),
        }
    }

    fn ended_as_planned(&self, last: &Sighting) -> Verdict {
        use Ending::{Closed, FarLeft, NearLeft, Reset, Whole};
        let planned: &[Ending] = match self.view.plan.kind {
            Kind::CloseBeforeHead | Kind::CloseInHead | Kind::RequestCut => &[Closed],
            Kind::ResetBeforeHead | Kind::ResetInHead | Kind::RequestReset => &[Reset],
            Kind::GarbageHead | Kind::HugeHead => &[NearLeft],
            Kind::SwallowedRequest | Kind::SwallowedHead => &[NearLeft],
            // where the answer is shorter than the plan's offset, it comes whole
            Kind::CloseInBody => &[Closed, Whole],
            Kind::ResetInBody => &[Reset, Whole],
            Kind::HalfCloseInBody | Kind::SwallowedBody | Kind::GarbledChunk => &[NearLeft, Whole],
            // the engine takes it for a cancel
            Kind::HalfCloseOfRequest => &[FarLeft, Whole],
            _ => &[Whole],
        };
        let ended = last.end.is_some_and(|end| planned.contains(&end));
        let died = matches!(last.end, Some(Ending::Killed | FarLeft)) && self.spell();
        ensure(ended || died, || format!("not as planned: {last:?}"))
    }

    fn record_is_right(&self, record: &Value) -> Verdict {
        let cause = record["cause"].as_str().unwrap_or_default();
        let refused = matches!(cause, "connect_failed" | "no_instance");
        // who was busy is not asked again: it may come to a dead one while those that are left are out
        let mut failed = record["failed_attempts"].as_array().into_iter().flatten();
        let busy = failed.any(|attempt| attempt["cause"] == "busy");
        ensure(!refused || busy || self.nobody_was_well(), || {
            "no other instance served what a dead one refused".to_owned()
        })?;
        let (attempts, seen) = (&record["attempts"], self.sightings.len() as u64);
        ensure(attempts.as_u64() >= Some(seen), || {
            format!("{attempts} attempts in the record, {seen} came through")
        })?;
        let view = self.view;
        if view.status == Some(200) && !view.left {
            let (said, got) = (record["response_bytes"].as_u64(), view.body.len() as u64);
            ensure(said == Some(got), || {
                format!("{said:?} bytes were read of the instance, {got} came")
            })?;
        }
        Ok(())
    }
}

/// An instance that is well again is in again after this: a check's interval and its time limit.
const OUT_MAX: Duration = Duration::from_millis(1250);

/// Evenkeel may learn of what was before later than of what came after.
const LATER: Duration = Duration::from_millis(500);

fn overlaps(spell: &Spell, from: Instant, to: Instant) -> bool {
    spell.from <= to + LATER && from <= spell.to + LATER
}

/// The whole events of a stream. A foreign id is a splice.
fn read_stream(body: &[u8], id: Option<&str>) -> Result<Told, String> {
    let text = String::from_utf8_lossy(body);
    let mut told = Told::default();
    let whole = text.rfind("\n\n").map_or("", |end| &text[..end]);
    for event in whole.split("\n\n").filter(|event| !event.is_empty()) {
        let data = event.strip_prefix("data: ");
        let data = data.ok_or_else(|| format!("no event: {event:?}"))?;
        ensure(!told.done, || format!("after the end: {event:?}"))?;
        if data == "[DONE]" {
            told.done = true;
            continue;
        }
        let json = serde_json::from_str(data).map_err(|error| format!("{error} in {data:?}"))?;
        read_event(&json, id, &mut told)?;
    }
    Ok(told)
}

fn read_event(json: &Value, id: Option<&str>, told: &mut Told) -> Verdict {
    if json.get("error").is_some() {
        told.error = true;
        return Ok(());
    }
    ensure(id.is_none_or(|id| json["id"] == id), || {
        format!("a splice: {json}")
    })?;
    let choice = &json["choices"][0];
    ensure(told.finish.is_none(), || {
        format!("after the finish: {json}")
    })?;
    told.text += choice["delta"]["content"].as_str().unwrap_or_default();
    told.finish = choice["finish_reason"].as_str().map(str::to_owned);
    Ok(())
}

/// A whole answer, or the beginning of one.
fn read_whole(body: &[u8], id: Option<&str>, clean: bool) -> Result<Told, String> {
    let mut told = Told::default();
    let Ok(json) = serde_json::from_slice::<Value>(body) else {
        ensure(!clean, || "half an answer ended clean".to_owned())?;
        return Ok(told);
    };
    ensure(id.is_none_or(|id| json["id"] == id), || {
        format!("a splice: {json}")
    })?;
    let choice = &json["choices"][0];
    told.text = choice["message"]["content"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    told.finish = choice["finish_reason"].as_str().map(str::to_owned);
    Ok(told)
}
