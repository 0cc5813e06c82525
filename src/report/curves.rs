//! Points of a study put on curves: same in all but the load, lower loads first. Pure.

use super::point::PointView;
use crate::study::{Load, Scaling, Scenario};

/// Loads for a unit that differ by less than this share are equal: rates are rounded when they are written.
const EQUAL_LOAD_SHARE: f64 = 0.01;

/// What points of one family share: all but size and load.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Family {
    /// what the load stands for
    pub scenario: Scenario,
    /// `closed`, `poisson` or `batch`
    pub load_kind: &'static str,
    /// set of lengths
    pub lengths: String,
    /// policy of the balancer
    pub policy: String,
    /// variant of the plan
    pub variant: String,
    /// batch work beside it, for each instance
    pub batch_per_instance: Option<u32>,
}

impl Family {
    /// Of a point.
    pub fn of(point: &PointView) -> Family {
        let setting = &point.setting;
        Family {
            scenario: setting.scenario,
            load_kind: match setting.load {
                Load::Closed { .. } => "closed",
                Load::Poisson { .. } => "poisson",
                Load::Batch { .. } => "batch",
            },
            lengths: setting.lengths.clone(),
            policy: setting.policy.clone(),
            variant: setting.variant.clone(),
            batch_per_instance: setting
                .batch_concurrency
                .map(|places| places / setting.instances.max(1)),
        }
    }

    /// The same as a plan's comparison would name it.
    pub fn name(&self) -> String {
        let batch = self
            .batch_per_instance
            .map_or_else(String::new, |places| format!(", batch {places}"));
        format!(
            "{} {}, {}, {}, {}{batch}",
            self.scenario.name(),
            self.load_kind,
            self.lengths,
            self.policy,
            self.variant
        )
    }
}

/// A fleet under one load, with its repetitions.
#[derive(Debug, Clone)]
pub struct Step<'a> {
    /// load for each instance and GPU of it
    pub load_per_unit: f64,
    /// the repetitions, at least one
    pub repeats: Vec<&'a PointView>,
}

impl<'a> Step<'a> {
    /// The first repetition: what a verdict looks into.
    pub fn first(&self) -> &'a PointView {
        self.repeats[0]
    }

    /// Output tokens a second, mean of the repetitions.
    pub fn output_tokens_per_s(&self) -> Option<f64> {
        self.mean(PointView::output_tokens_per_s)
    }

    /// Mean of a figure over the repetitions that have it.
    pub fn mean(&self, of: impl Fn(&PointView) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.repeats.iter().filter_map(|point| of(point)).collect();
        super::statistics::mean(&values)
    }

    /// Names of its points.
    pub fn ids(&self) -> Vec<String> {
        self.repeats.iter().map(|point| point.id.clone()).collect()
    }
}

/// A fleet of one size under rising load.
#[derive(Debug, Clone)]
pub struct Curve<'a> {
    /// what its points share
    pub family: Family,
    /// instances
    pub instances: u32,
    /// GPUs in each
    pub gpus_per_instance: u32,
    /// loads, lowest first; at least one
    pub steps: Vec<Step<'a>>,
}

impl<'a> Curve<'a> {
    /// Instances × GPUs.
    pub fn units(&self) -> u32 {
        self.instances * self.gpus_per_instance
    }

    /// More instances, or more GPUs in an instance; `None` for one of one.
    pub fn scaling(&self) -> Option<Scaling> {
        match (self.instances, self.gpus_per_instance) {
            (1, 1) => None,
            (1, _) => Some(Scaling::Vertical),
            _ => Some(Scaling::Horizontal),
        }
    }

    /// Whether `self` is what `bigger` is a multiple of: one instance of the same GPUs, or one GPU of one instance.
    pub fn is_unit_of(&self, bigger: &Curve<'_>) -> bool {
        let (instances, gpus) = match bigger.scaling() {
            None => return false,
            Some(Scaling::Horizontal) => (1, bigger.gpus_per_instance),
            Some(Scaling::Vertical) => (1, 1),
        };
        self.family == bigger.family
            && (self.instances, self.gpus_per_instance) == (instances, gpus)
    }

    /// What it is, for people.
    pub fn name(&self) -> String {
        format!(
            "{} × {} GPU, {}",
            self.instances,
            self.gpus_per_instance,
            self.family.name()
        )
    }

    /// How many times the unit it is.
    pub fn multiple(&self) -> u32 {
        match self.scaling() {
            None => 1,
            Some(Scaling::Horizontal) => self.instances,
            Some(Scaling::Vertical) => self.gpus_per_instance,
        }
    }

    /// The step of equal load for a unit.
    pub fn at_load(&self, load_per_unit: f64) -> Option<&Step<'a>> {
        self.steps
            .iter()
            .find(|step| is_equal_load(step.load_per_unit, load_per_unit))
    }
}

/// Whether two loads for a unit are the same load.
pub fn is_equal_load(a: f64, b: f64) -> bool {
    (a - b).abs() <= EQUAL_LOAD_SHARE * a.abs().max(b.abs())
}

/// Puts points on curves, in the order of families, smaller fleets first.
pub fn curves(points: &[PointView]) -> Vec<Curve<'_>> {
    let mut curves: Vec<Curve<'_>> = Vec::new();
    for point in points {
        let family = Family::of(point);
        let setting = &point.setting;
        let its = |curve: &&mut Curve<'_>| {
            curve.family == family
                && curve.instances == setting.instances
                && curve.gpus_per_instance == setting.gpus_per_instance
        };
        match curves.iter_mut().find(its) {
            Some(curve) => add(&mut curve.steps, point),
            None => {
                let mut steps = Vec::new();
                add(&mut steps, point);
                curves.push(Curve {
                    family,
                    instances: setting.instances,
                    gpus_per_instance: setting.gpus_per_instance,
                    steps,
                });
            }
        }
    }
    for curve in &mut curves {
        curve
            .steps
            .sort_by(|a, b| a.load_per_unit.total_cmp(&b.load_per_unit));
    }
    curves.sort_by(|a, b| {
        let key = |curve: &Curve<'_>| (curve.instances, curve.gpus_per_instance);
        a.family.cmp(&b.family).then(key(a).cmp(&key(b)))
    });
    curves
}

fn add<'a>(steps: &mut Vec<Step<'a>>, point: &'a PointView) {
    let setting = &point.setting;
    let units = f64::from(setting.instances) * f64::from(setting.gpus_per_instance);
    let load_per_unit = setting.load.amount() / units.max(1.0);
    match steps
        .iter_mut()
        .find(|step| is_equal_load(step.load_per_unit, load_per_unit))
    {
        Some(step) => {
            step.repeats.push(point);
            step.repeats.sort_by_key(|point| point.setting.repeat);
        }
        None => steps.push(Step {
            load_per_unit,
            repeats: vec![point],
        }),
    }
}
