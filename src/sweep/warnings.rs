//! What a plan may ask for but probably does not mean. Pure.

use super::check::{longest_tokens, profile_of};
use super::plan::{Fleet, Plan};
use crate::load::mixes;
use crate::study::{Load, Scenario};

/// Up to here nearly every server looks as if it scaled.
const LOW_CONCURRENCY: f64 = 16.0;

/// In the order in which they matter.
pub fn of(plan: &Plan) -> Vec<String> {
    let mut warnings = Vec::new();
    warnings.extend(fixed_lengths(plan));
    warnings.extend(one_length(plan));
    warnings.extend(too_long(plan));
    warnings.extend(low_loads(plan));
    warnings.extend(caches(plan));
    warnings.extend(unwatched(plan));
    if plan.repeats == 1 {
        warnings.push(
            "each point is run once: an efficiency has no interval (repeats = 3 gives one)".into(),
        );
    }
    if plan.timing.warm_up_s == 0.0 {
        warnings.push("there is no warm-up: the first requests meet an idle, cold fleet".into());
    }
    warnings
}

fn fixed_lengths(plan: &Plan) -> Vec<String> {
    let fixed = |(name, set): (&String, &super::plan::LengthSet)| {
        let warning = mixes::warning(&set.classes)?;
        let warning = warning
            .strip_prefix("warning: ")
            .unwrap_or(&warning)
            .to_owned();
        Some(format!("of the lengths `{name}`, {warning}"))
    };
    plan.length_sets.iter().filter_map(fixed).collect()
}

/// Neither a mix nor several sets to compare.
fn one_length(plan: &Plan) -> Option<String> {
    let online = plan
        .scenarios
        .iter()
        .find(|one| one.scenario == Scenario::Online)?;
    let [only] = online.lengths.as_slice() else {
        return None;
    };
    (plan.classes(only).len() == 1).then(|| {
        format!("online requests are all of the set `{only}`: a mix of lengths is what hides or shows that long requests hold up short ones (lengths = [\"mix\", \"{only}\"])")
    })
}

fn too_long(plan: &Plan) -> Vec<String> {
    let Fleet::Simulated(fleet) = &plan.fleet else {
        return Vec::new();
    };
    let Ok(profile) = profile_of(&fleet.profile, 1, &plan.engine) else {
        return Vec::new();
    };
    let window = profile.max_model_len_tokens;
    let too_long = |(name, set): (&String, &super::plan::LengthSet)| {
        let longest = longest_tokens(&set.classes).filter(|longest| *longest > window)?;
        Some(format!(
            "of the lengths `{name}`, requests have up to {longest} tokens and the engine takes {window}: longer ones are refused and count as failed (engine.max_model_len_tokens)"
        ))
    };
    plan.length_sets.iter().filter_map(too_long).collect()
}

fn low_loads(plan: &Plan) -> Option<String> {
    let online = plan
        .scenarios
        .iter()
        .find(|one| one.scenario == Scenario::Online)?;
    let closed = online
        .loads
        .iter()
        .filter(|load| matches!(load, Load::Closed { .. }));
    let highest = closed.map(|load| load.amount()).reduce(f64::max)?;
    (highest <= LOW_CONCURRENCY).then(|| {
        format!("the highest concurrency is {highest} for each instance: nearly everything scales there; go past the knee, such as to 128 or 256")
    })
}

fn caches(plan: &Plan) -> Option<String> {
    (!plan.starts_afresh()).then(|| {
        "nothing restarts the fleet between points, so caches and fragments of one are there in the next; no two points get the same prompts for that (hooks.restart)".into()
    })
}

fn unwatched(plan: &Plan) -> Option<String> {
    let live = matches!(plan.fleet, Fleet::Live(_));
    (live && plan.exporters.is_empty()).then(|| {
        "no exporter is looked at, so a bottleneck can be seen but not named ([[monitor]] with kind \"engine\", \"gpu\" or \"host\")".into()
    })
}
