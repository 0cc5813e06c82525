//! Counter-experiments: points of the plan again, with one variable changed. Pure.

use super::expand::{seed, times};
use super::plan::Plan;
use super::raw::{At, Change, Variant};
use crate::study::{Load, Scenario, Setting};

/// The one variable that a variant changes.
#[derive(Debug, Clone, PartialEq)]
enum Variable {
    Engine(String, toml::Value),
    Policy(String),
    Lengths(String),
    Load(Load),
    Batch(u32),
}

/// Why a variant is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// what is wrong
    pub message: String,
    /// what would be right
    pub help: String,
}

/// The points of a variant, in the order of the base's.
pub fn points(plan: &Plan, base: &[Setting], variant: &Variant) -> Result<Vec<Setting>, Wrong> {
    let variable = one_variable(variant)?;
    let first_policy = plan.policies.first();
    let chosen: Vec<&Setting> = base
        .iter()
        .filter(|setting| Some(&setting.policy) == first_policy && chooses(&variant.at, setting))
        .collect();
    let wrong = |what: &str, help: &str| Wrong {
        message: format!("variant `{}` {what}", variant.name),
        help: help.to_owned(),
    };
    if chosen.is_empty() {
        return Err(wrong(
            "is run at no point: the plan has none of which all of its `at` is true",
            "name values that the matrix and the scenarios have; loads are those for each instance",
        ));
    }
    let changed: Vec<Setting> = chosen
        .iter()
        .filter_map(|setting| variable.applied(plan, setting, variant))
        .collect();
    if changed.is_empty() {
        return Err(wrong(
            "changes nothing: every point it is run at has this value, or has no such variable",
            "give a value that the base does not have, at points where it means something",
        ));
    }
    Ok(changed)
}

fn one_variable(variant: &Variant) -> Result<Variable, Wrong> {
    let mut named = variables(&variant.change);
    if named.len() == 1 {
        return Ok(named.remove(0).1);
    }
    let names: Vec<String> = named.into_iter().map(|(name, _)| name).collect();
    let name = &variant.name;
    Err(match names.as_slice() {
        [] => Wrong {
            message: format!("variant `{name}` changes no variable"),
            help: "name one, such as change = { concurrency = 32 } or change = { engine = { max_num_seqs = 64 } }"
                .into(),
        },
        _ => Wrong {
            message: format!(
                "variant `{name}` changes {} variables: {}",
                names.len(),
                names.join(", ")
            ),
            help: "one variable at a time: make a variant of each, or nobody knows which of them did it".into(),
        },
    })
}

fn variables(change: &Change) -> Vec<(String, Variable)> {
    let mut named: Vec<(String, Variable)> = Vec::new();
    for (key, value) in &change.engine {
        let variable = Variable::Engine(key.clone(), value.clone());
        named.push((format!("engine.{key}"), variable));
    }
    let mut put = |name: &str, variable: Option<Variable>| {
        named.extend(variable.map(|variable| (name.to_owned(), variable)));
    };
    let batching = |how: &String| Variable::Engine("batching".into(), how.clone().into());
    put("batching", change.batching.as_ref().map(batching));
    put("policy", change.policy.clone().map(Variable::Policy));
    put("lengths", change.lengths.clone().map(Variable::Lengths));
    let concurrency = change.concurrency;
    let concurrency = concurrency.map(|concurrency| Load::Closed { concurrency });
    put("concurrency", concurrency.map(Variable::Load));
    let rate = change.rate_per_s;
    let rate = rate.map(|rate_per_s| Load::Poisson { rate_per_s });
    put("rate_per_s", rate.map(Variable::Load));
    let batch = change.batch_requests;
    let batch = batch.map(|requests| Load::Batch { requests });
    put("batch_requests", batch.map(Variable::Load));
    put(
        "batch_concurrency",
        change.batch_concurrency.map(Variable::Batch),
    );
    named
}

fn chooses(at: &At, setting: &Setting) -> bool {
    let among = |list: &[u32], value: u32| list.is_empty() || list.contains(&value);
    let scenarios: &[Scenario] = &at.scenarios;
    (scenarios.is_empty() || scenarios.contains(&setting.scenario))
        && among(&at.instances, setting.instances)
        && among(&at.gpus_per_instance, setting.gpus_per_instance)
        && (at.lengths.is_empty() || at.lengths.contains(&setting.lengths))
        && chooses_load(at, setting)
}

fn chooses_load(at: &At, setting: &Setting) -> bool {
    let any = at.concurrency.is_empty() && at.rate_per_s.is_empty() && at.batch_requests.is_empty();
    let amount = setting.load_per_instance;
    let whole = |list: &[u32]| list.iter().any(|one| f64::from(*one) == amount);
    any || match setting.load {
        Load::Closed { .. } => whole(&at.concurrency),
        Load::Poisson { .. } => at.rate_per_s.contains(&amount),
        Load::Batch { .. } => whole(&at.batch_requests),
    }
}

impl Variable {
    /// The setting with the variable changed; `None` where it has that value already, or has no such variable.
    fn applied(&self, plan: &Plan, base: &Setting, variant: &Variant) -> Option<Setting> {
        let mut setting = base.clone();
        let said = match self {
            Variable::Engine(key, value) => {
                setting.engine.insert(key.clone(), value.clone());
                format!("engine.{key} = {value}")
            }
            Variable::Policy(policy) => {
                setting.policy.clone_from(policy);
                format!("policy = {policy}")
            }
            Variable::Lengths(lengths) => {
                setting.lengths.clone_from(lengths);
                format!("lengths = {lengths}")
            }
            Variable::Load(load) => {
                if std::mem::discriminant(load) != std::mem::discriminant(&base.load) {
                    return None;
                }
                setting.load = times(*load, base.instances);
                setting.load_per_instance = load.amount();
                format!("load for each instance = {}", load.amount())
            }
            Variable::Batch(places) => {
                base.batch_concurrency?;
                setting.batch_concurrency = Some(places.saturating_mul(base.instances));
                format!("batch_concurrency for each instance = {places}")
            }
        };
        if setting == *base {
            return None;
        }
        setting.variant.clone_from(&variant.name);
        setting.labels.insert("change".into(), said);
        let why = variant.why.iter().cloned();
        setting
            .labels
            .extend(why.map(|why| ("why".to_owned(), why)));
        setting.seed = seed(plan, &setting);
        Some(setting)
    }
}
