//! Rules of single values: loads, counts, times, objectives.

use super::{Checker, SECONDS_MAX};
use crate::report::goodput::Objective;
use crate::study::Scenario;
use crate::sweep::plan::{ScenarioPlan, Timing};
use crate::sweep::raw;

/// A load of all instances together above this is a slip in the plan.
const AMOUNT_MAX: f64 = 1_000_000.0;

impl Checker<'_> {
    pub(super) fn without_load(&mut self, scenario: Scenario) {
        let key = match scenario {
            Scenario::Offline => "batch_requests = [1000]",
            _ => "concurrency = [16, 32, 64] or rate_per_s = [2.5]",
        };
        let name = scenario.name();
        self.fault(
            name,
            format!("`{name}` sends no load"),
            format!("write {key}, for each instance, or preset = \"{name}\" for the usual ones"),
        );
    }

    pub(super) fn head(&mut self, file: &raw::Plan) {
        if !(file.attainment > 0.0 && file.attainment <= 1.0) {
            let help = "write a share of requests, such as 0.99";
            self.fault(
                "attainment",
                "`attainment` must be above 0 and at most 1",
                help,
            );
        }
        if file.repeats == 0 || file.repeats > 100 {
            self.fault(
                "repeats",
                "`repeats` must be 1 to 100",
                "3 give an interval",
            );
        }
        let price = file.gpu_hour_price.as_ref();
        if price.is_some_and(|price| !(price.amount.is_finite() && price.amount >= 0.0)) {
            let help =
                "write what a GPU costs for an hour, such as { amount = 2.5, currency = \"USD\" }";
            self.fault("gpu_hour_price", "`gpu_hour_price` is no price", help);
        }
    }

    pub(super) fn matrix(&mut self, matrix: &raw::Matrix) {
        self.counts("matrix.instances", &matrix.instances, 1024);
        self.counts("matrix.gpus_per_instance", &matrix.gpus_per_instance, 1024);
        if matrix.policies.is_empty() {
            let help = "name one, such as [\"least_outstanding_tokens\"]";
            self.fault("matrix.policies", "`matrix.policies` is empty", help);
        }
    }

    pub(super) fn counts(&mut self, key: &str, list: &[u32], most: u32) {
        if list.is_empty() || list.iter().any(|count| *count == 0 || *count > most) {
            self.fault(
                key,
                format!("`{key}` must list numbers from 1 to {most}"),
                "such as [1, 2, 4, 8]",
            );
        }
    }

    pub(super) fn timing(&mut self, timing: &Timing) {
        let Timing {
            warm_up_s,
            duration_s,
            poisson_duration_s,
            trim_s,
            look_every_s,
        } = timing;
        let above = |value: f64| value > 0.0 && value <= SECONDS_MAX;
        let not_below = |value: f64| (0.0..=SECONDS_MAX).contains(&value);
        let mut wrong = |key: &str, fits: bool| {
            if !fits {
                let help = "write seconds, such as 30; a point lasts a day at most";
                let key = format!("timing.{key}");
                self.fault(&key, format!("`{key}` is no usable time"), help);
            }
        };
        wrong("warm_up_s", not_below(*warm_up_s));
        wrong("duration_s", above(*duration_s));
        wrong("poisson_duration_s", poisson_duration_s.is_none_or(above));
        wrong("trim_s", trim_s.is_none_or(not_below));
        wrong("look_every_s", (0.01..=3600.0).contains(look_every_s));
        let shortest_s = poisson_duration_s.map_or(*duration_s, |other| other.min(*duration_s));
        if trim_s.is_some_and(|trim_s| 2.0 * trim_s >= shortest_s) {
            let help = "give a smaller trim_s or longer points";
            let message = format!("`timing.trim_s` at both ends leaves nothing of {shortest_s} s");
            self.fault("timing.trim_s", message, help);
        }
    }

    pub(super) fn objectives(&mut self, words: &[String]) -> Vec<Objective> {
        let mut objectives = Vec::new();
        for (at, word) in words.iter().enumerate() {
            match Objective::parse(word) {
                Ok(objective) => objectives.push(objective),
                Err(why) => self.fault(&format!("objectives[{at}]"), why, "times are milliseconds"),
            }
        }
        objectives
    }

    pub(super) fn loads(&mut self, scenarios: &[ScenarioPlan], instances: &[u32]) {
        let most = instances.iter().max().copied().unwrap_or(1);
        for one in scenarios {
            let batch = one.batch.iter().map(|batch| f64::from(batch.concurrency));
            let amounts = one.loads.iter().map(|load| load.amount()).chain(batch);
            let fits = |amount: f64| amount > 0.0 && amount * f64::from(most) <= AMOUNT_MAX;
            if !amounts.clone().all(fits) {
                let name = one.scenario.name();
                self.fault(
                    name,
                    format!("a load of `{name}` must be above 0, and at most {AMOUNT_MAX} for all {most} instances together"),
                    "loads are written for each instance",
                );
            }
        }
    }
}
