//! A counter-experiment in the words of a sweep's plan: one variable, changed at the points of a curve. Pure.

use serde::Serialize;

use crate::report::curves::{Curve, Step};
use crate::study::Load;

/// A variant for the plan, and what it should show.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CounterExperiment {
    /// its name
    pub name: String,
    /// the one variable and its other value, as the plan has it, such as `{ engine = { max_num_seqs = 64 } }`
    pub change: String,
    /// where, as the plan has it
    pub at: String,
    /// what is seen if the verdict is right
    pub expects: String,
    /// what is seen if it is wrong
    pub refuted_by: String,
}

impl CounterExperiment {
    /// At a step of a curve.
    pub(super) fn at(
        curve: &Curve<'_>,
        step: &Step<'_>,
        name: &str,
        change: impl Into<String>,
        expects: &str,
        refuted_by: &str,
    ) -> CounterExperiment {
        CounterExperiment {
            name: name.to_owned(),
            change: change.into(),
            at: place(curve, step),
            expects: expects.to_owned(),
            refuted_by: refuted_by.to_owned(),
        }
    }

    /// Lines to be pasted into the plan.
    pub fn toml(&self) -> String {
        format!(
            "[[variants]]\nname = \"{}\"\nwhy = \"{}\"\nchange = {}\nat = {}\n",
            self.name, self.expects, self.change, self.at
        )
    }
}

fn place(curve: &Curve<'_>, step: &Step<'_>) -> String {
    let setting = &step.first().setting;
    let each = setting.load.amount() / f64::from(setting.instances.max(1));
    let load = match setting.load {
        Load::Closed { .. } => "concurrency",
        Load::Poisson { .. } => "rate_per_s",
        Load::Batch { .. } => "batch_requests",
    };
    format!(
        "{{ scenarios = [\"{}\"], instances = [{}], gpus_per_instance = [{}], {load} = [{}] }}",
        setting.scenario.name(),
        curve.instances,
        curve.gpus_per_instance,
        as_load(setting.load, each)
    )
}

/// `{ concurrency = 32 }`: the load of the step for each instance, times `factor`.
pub(super) fn load_change(step: &Step<'_>, factor: f64) -> String {
    let setting = &step.first().setting;
    let each = setting.load.amount() / f64::from(setting.instances.max(1)) * factor;
    let name = match setting.load {
        Load::Closed { .. } => "concurrency",
        Load::Poisson { .. } => "rate_per_s",
        Load::Batch { .. } => "batch_requests",
    };
    format!("{{ {name} = {} }}", as_load(setting.load, each))
}

/// Counts are whole; rates have a point.
fn as_load(load: Load, amount: f64) -> String {
    match load {
        Load::Poisson { .. } => format!("{amount:?}"),
        _ => format!("{}", amount.round().max(1.0)),
    }
}
