//! From the plan as written to the plan as used: every rule that a type cannot hold.
//!
//! Pure but for the file of a hardware profile. All faults are found at once, each with its place.

mod fleet;
mod lengths;
mod numbers;

use std::collections::{BTreeMap, BTreeSet};

use toml::Spanned;
use toml::de::DeTable;

use super::plan::{Plan, Point};
use super::{expand, presets, raw, variants, warnings};
use crate::config::place::{span_of, steps};
use crate::config::{ConfigErrors, Fault, judged};
use crate::study::{Price, Setting};

pub use fleet::profile_of;
pub use lengths::longest_tokens;

/// More points than this are a slip in the plan.
const POINTS_MAX: usize = 10_000;
/// A day; no point lasts longer.
const SECONDS_MAX: f64 = 86_400.0;

/// Reads the text of a plan; `name` stands for it in errors.
pub fn parse(text: &str, name: &str) -> Result<Plan, ConfigErrors> {
    let schema = schemars::schema_for!(raw::Plan).to_value();
    judged(text, name, &schema, |file: raw::Plan, document| {
        let mut checker = Checker {
            document,
            faults: Vec::new(),
        };
        let plan = checker.plan(file, text);
        match plan {
            Some(plan) if checker.faults.is_empty() => Ok(plan),
            _ => Err(checker.faults),
        }
    })
}

struct Checker<'d> {
    document: &'d Spanned<DeTable<'d>>,
    faults: Vec<Fault>,
}

impl Checker<'_> {
    /// Notes a fault at the value of `key`, written as `variants[0].change`.
    fn fault(&mut self, key: &str, message: impl Into<String>, help: impl Into<String>) {
        self.faults.push(Fault {
            span: span_of(self.document, &steps(key)),
            message: message.into(),
            quotes: true,
            label: "here".into(),
            help: Some(help.into()),
        });
    }

    fn plan(&mut self, mut file: raw::Plan, source: &str) -> Option<Plan> {
        let (scenarios, without_load) = presets::scenarios(&mut file);
        for scenario in without_load {
            self.without_load(scenario);
        }
        if scenarios.is_empty() && self.faults.is_empty() {
            self.fault(
                "name",
                "the plan sends no load",
                "write preset = \"online\", or a table such as [online] with concurrency = [16, 32, 64]",
            );
        }
        self.head(&file);
        self.matrix(&file.matrix);
        self.timing(&file.timing);
        let objectives = self.objectives(&file.objectives);
        let length_sets = self.length_sets(&file, &scenarios);
        let hooks = self.hooks(&file);
        let ready_urls = hooks.ready_urls.clone();
        let fleet = self.fleet(file.fleet, &ready_urls);
        let exporters = self.exporters(&file.monitor);
        self.loads(&scenarios, &file.matrix.instances);
        let mut plan = Plan {
            name: file.name,
            source: source.to_owned(),
            seed: file.seed,
            objectives,
            objective_words: file.objectives,
            attainment: file.attainment,
            gpu_hour_price: file.gpu_hour_price.map(|price| Price {
                amount: price.amount,
                currency: price.currency,
            }),
            repeats: file.repeats,
            labels: file.labels,
            fleet: fleet?,
            engine: file.engine,
            hooks,
            instances: file.matrix.instances,
            gpus_per_instance: file.matrix.gpus_per_instance,
            policies: file.matrix.policies,
            policy_settings: BTreeMap::new(),
            timing: file.timing,
            scenarios,
            length_sets,
            exporters,
            points: Vec::new(),
            warnings: Vec::new(),
        };
        if !self.faults.is_empty() {
            return None;
        }
        let settings = self.settings(&plan, &file.variants);
        self.fleet_can(&plan, &settings);
        self.policies_can(&mut plan, &settings, &file.policy_settings);
        plan.points = self.points(settings);
        plan.warnings = warnings::of(&plan);
        Some(plan)
    }

    fn settings(&mut self, plan: &Plan, variants: &[raw::Variant]) -> Vec<Setting> {
        let mut settings = expand::base(plan);
        let base = settings.clone();
        for (at, variant) in variants.iter().enumerate() {
            let key = format!("variants[{at}]");
            if variant.name == expand::BASE {
                let help = "give it the name of what it changes";
                self.fault(
                    &key,
                    "no variant can be named `base`: that is all the rest",
                    help,
                );
            }
            match variants::points(plan, &base, variant) {
                Ok(points) => settings.extend(points),
                Err(wrong) => self.fault(&key, wrong.message, wrong.help),
            }
        }
        settings
    }

    fn points(&mut self, settings: Vec<Setting>) -> Vec<Point> {
        if settings.len() > POINTS_MAX {
            let help = "shorten its lists";
            let message = format!(
                "the plan has {} points, and more than {POINTS_MAX} are a slip",
                settings.len()
            );
            self.fault("matrix", message, help);
        }
        let mut ids = BTreeSet::new();
        let mut points = Vec::new();
        for (setting, order) in settings.into_iter().zip(0..) {
            let id = setting.id();
            if !ids.insert(id.clone()) {
                let help =
                    "leave out the second of two equal values, or give variants names of their own";
                self.fault(
                    "name",
                    format!("two points would both be called `{id}`"),
                    help,
                );
                break;
            }
            points.push(Point { id, order, setting });
        }
        points
    }
}
