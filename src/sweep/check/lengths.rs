//! Rules of sets of lengths.

use std::collections::BTreeMap;

use super::Checker;
use crate::load::lengths::Lengths;
use crate::load::mixes::{self, RequestSet};
use crate::load::workload::Class;
use crate::sweep::plan::{LengthSet, ScenarioPlan};
use crate::sweep::raw;

impl Checker<'_> {
    /// The sets that the plan names anywhere.
    pub(super) fn length_sets(
        &mut self,
        file: &raw::Plan,
        scenarios: &[ScenarioPlan],
    ) -> BTreeMap<String, LengthSet> {
        let mut sets = BTreeMap::new();
        for (name, set) in &file.length_sets {
            if let Some(set) = self.length_set(name, set) {
                sets.insert(name.clone(), set);
            }
        }
        let mut used: Vec<(String, &str)> = Vec::new();
        for one in scenarios {
            let key = one.scenario.name();
            let lengths = one.lengths.iter().enumerate();
            used.extend(lengths.map(|(at, name)| (format!("{key}.lengths[{at}]"), name.as_str())));
            let batch = one.batch.iter();
            used.extend(
                batch.map(|batch| (format!("{key}.batch_lengths"), batch.lengths.as_str())),
            );
        }
        for (at, variant) in file.variants.iter().enumerate() {
            let lengths = variant.change.lengths.as_deref();
            used.extend(lengths.map(|name| (format!("variants[{at}].change.lengths"), name)));
        }
        for (key, name) in used {
            if sets.contains_key(name) {
                continue;
            }
            match built_in(name) {
                Some(set) => {
                    sets.insert(name.to_owned(), set);
                }
                None => self.fault(
                    &key,
                    format!("`{key}` names no set of lengths: `{name}`"),
                    "there are mix, short, medium, long, and those of [length_sets]",
                ),
            }
        }
        sets
    }

    pub(super) fn length_set(&mut self, name: &str, set: &raw::LengthSet) -> Option<LengthSet> {
        let key = format!("length_sets.{name}");
        let usable = |share: f64| share.is_finite() && share >= 0.0;
        let classes: Vec<Class> = match (&set.mix, set.classes.as_slice()) {
            (Some(shares), []) if shares.iter().all(|share| usable(*share)) => mixes::mix(*shares),
            (None, classes) if !classes.is_empty() && classes.iter().all(is_usable) => {
                classes.iter().map(class).collect()
            }
            _ => Vec::new(),
        };
        if classes.iter().map(|class| class.share).sum::<f64>() > 0.0 {
            let assumed = false;
            return Some(LengthSet { classes, assumed });
        }
        self.fault(
            &key,
            format!("`{key}` is no set of lengths"),
            "write mix = [SHORT, MEDIUM, LONG], or classes with name, share, prompt_tokens and output_tokens above 0 and a spread from 0 to below 1",
        );
        None
    }
}

fn built_in(name: &str) -> Option<LengthSet> {
    let classes = match name {
        "mix" => mixes::mix(mixes::DEFAULT_PERCENT),
        _ => vec![RequestSet::by_name(name)?.class(1.0)],
    };
    let assumed = true;
    Some(LengthSet { classes, assumed })
}

fn is_usable(class: &raw::LengthClass) -> bool {
    class.share.is_finite()
        && class.share >= 0.0
        && class.prompt_tokens > 0
        && class.output_tokens > 0
        && (0.0..1.0).contains(&class.spread)
}

fn class(class: &raw::LengthClass) -> Class {
    let spread = |tokens: u32| {
        let end = |factor: f64| ((f64::from(tokens) * factor).round() as u32).max(1);
        Lengths::Uniform {
            min_tokens: end(1.0 - class.spread),
            max_tokens: end(1.0 + class.spread),
        }
    };
    Class {
        name: class.name.clone(),
        share: class.share,
        prompt: spread(class.prompt_tokens),
        output: spread(class.output_tokens),
    }
}

/// The load's longest request, prompt and answer together, in tokens; `None` where lengths have no end.
pub fn longest_tokens(classes: &[Class]) -> Option<u32> {
    let longest = |lengths: &Lengths| match lengths {
        Lengths::Fixed { tokens } => Some(*tokens),
        Lengths::Uniform { max_tokens, .. } | Lengths::LogNormal { max_tokens, .. } => {
            Some(*max_tokens)
        }
        Lengths::Empirical { seen } => seen.tokens.last().copied(),
    };
    let of = |class: &Class| longest(&class.prompt)?.checked_add(longest(&class.output)?);
    classes
        .iter()
        .map(of)
        .collect::<Option<Vec<_>>>()?
        .into_iter()
        .max()
}
