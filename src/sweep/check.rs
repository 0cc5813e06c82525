//! From the plan as written to the plan as used: every rule that a type cannot hold. Pure but for a profile's file.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_policies::PolicyConfig;
use toml::Spanned;
use toml::de::DeTable;

use super::plan::{Fleet, LengthSet, Live, Plan, Point, ScenarioPlan, Simulated, Timing, Values};
use super::{expand, presets, raw, variants, warnings};
use crate::config::place::{span_of, steps};
use crate::config::{ConfigErrors, Fault, Upstream, judged, url};
use crate::engine::profile::Profile;
use crate::load::fetch::Ask;
use crate::load::lengths::Lengths;
use crate::load::mixes::{self, RequestSet};
use crate::load::workload::Class;
use crate::monitor::{Endpoint, Kind, watcher};
use crate::report::goodput::Objective;
use crate::study::{Price, Scenario, Setting};

/// More points than this are a slip in the plan.
const POINTS_MAX: usize = 10_000;
/// A load of all instances together above this is a slip in the plan.
const AMOUNT_MAX: f64 = 1_000_000.0;
/// A fleet that nothing starts is there or is not.
const UNHOOKED_S: f64 = 10.0;
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

    fn without_load(&mut self, scenario: Scenario) {
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

    fn head(&mut self, file: &raw::Plan) {
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

    fn matrix(&mut self, matrix: &raw::Matrix) {
        self.counts("matrix.instances", &matrix.instances, 1024);
        self.counts("matrix.gpus_per_instance", &matrix.gpus_per_instance, 1024);
        if matrix.policies.is_empty() {
            let help = "name one, such as [\"least_outstanding_tokens\"]";
            self.fault("matrix.policies", "`matrix.policies` is empty", help);
        }
    }

    fn counts(&mut self, key: &str, list: &[u32], most: u32) {
        if list.is_empty() || list.iter().any(|count| *count == 0 || *count > most) {
            self.fault(
                key,
                format!("`{key}` must list numbers from 1 to {most}"),
                "such as [1, 2, 4, 8]",
            );
        }
    }

    fn timing(&mut self, timing: &Timing) {
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

    fn objectives(&mut self, words: &[String]) -> Vec<Objective> {
        let mut objectives = Vec::new();
        for (at, word) in words.iter().enumerate() {
            match Objective::parse(word) {
                Ok(objective) => objectives.push(objective),
                Err(why) => self.fault(&format!("objectives[{at}]"), why, "times are milliseconds"),
            }
        }
        objectives
    }

    /// The sets that the plan names anywhere.
    fn length_sets(
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

    fn length_set(&mut self, name: &str, set: &raw::LengthSet) -> Option<LengthSet> {
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

    fn hooks(&mut self, file: &raw::Plan) -> raw::Hooks {
        let hooks = file.hooks.clone().unwrap_or(raw::Hooks {
            start: None,
            restart: None,
            stop: None,
            time_limit_s: UNHOOKED_S,
            ready_urls: Vec::new(),
            ready_limit_s: UNHOOKED_S,
        });
        if file.hooks.is_some() && matches!(file.fleet, raw::Fleet::Simulated { .. }) {
            let help = "leave [hooks] out, or write kind = \"live\" under [fleet]";
            let message =
                "`hooks` start no simulated fleet: it starts by itself, anew for each point";
            self.fault("hooks", message, help);
        }
        for (key, limit_s) in [
            ("time_limit_s", hooks.time_limit_s),
            ("ready_limit_s", hooks.ready_limit_s),
        ] {
            if file.hooks.is_some() && !(limit_s > 0.0 && limit_s <= SECONDS_MAX) {
                let key = format!("hooks.{key}");
                self.fault(
                    &key,
                    format!("`{key}` is no usable time"),
                    "write seconds, such as 600",
                );
            }
        }
        hooks
    }

    fn fleet(&mut self, fleet: raw::Fleet, ready_urls: &[String]) -> Option<Fleet> {
        match fleet {
            raw::Fleet::Simulated {
                profile,
                slow_factors,
            } => self.simulated(&profile, slow_factors).map(Fleet::Simulated),
            raw::Fleet::Live {
                base_url,
                model,
                api,
                records_dir,
                api_key_env,
                ignore_eos,
                request_timeout_s,
            } => {
                if !(request_timeout_s > 0.0 && request_timeout_s <= SECONDS_MAX) {
                    let key = "fleet.request_timeout_s";
                    self.fault(
                        key,
                        format!("`{key}` is no usable time"),
                        "write seconds, such as 600",
                    );
                }
                let ready = ready_urls.iter().enumerate();
                let ready =
                    ready.map(|(at, url)| self.url(&format!("hooks.ready_urls[{at}]"), url));
                let ready = ready.collect::<Vec<_>>();
                Some(Fleet::Live(Live {
                    upstream: self.url("fleet.base_url", &base_url)?,
                    ready: ready.into_iter().collect::<Option<Vec<_>>>()?,
                    base_url,
                    model,
                    api,
                    records_dir,
                    api_key_env,
                    ignore_eos,
                    request_timeout_s,
                }))
            }
        }
    }

    fn simulated(&mut self, profile: &str, slow_factors: Vec<f64>) -> Option<Simulated> {
        if slow_factors
            .iter()
            .any(|factor| !(factor.is_finite() && *factor > 0.0))
        {
            let help = "1.6 is an instance whose steps last 1.6 times as long";
            self.fault(
                "fleet.slow_factors",
                "`fleet.slow_factors` must be above 0",
                help,
            );
        }
        match Profile::load(profile) {
            Ok(profile) => Some(Simulated {
                profile,
                slow_factors,
            }),
            Err(error) => {
                self.fault(
                    "fleet.profile",
                    error.to_string(),
                    "name one that is built in, or a file",
                );
                None
            }
        }
    }

    fn url(&mut self, key: &str, text: &str) -> Option<Upstream> {
        let fault = match url::parse(text) {
            Ok(url) if url.tls => (
                "https is not spoken here".to_owned(),
                "put `evenkeel serve` before a server that wants https".to_owned(),
            ),
            Ok(url) => return Some(url),
            Err(fault) => fault,
        };
        self.fault(key, format!("`{key}`: {}", fault.0), fault.1);
        None
    }

    fn exporters(&mut self, exporters: &[raw::Exporter]) -> Vec<Endpoint> {
        let mut endpoints = Vec::new();
        for (at, one) in exporters.iter().enumerate() {
            let Some(url) = self.url(&format!("monitor[{at}].url"), &one.url) else {
                continue;
            };
            endpoints.push(Endpoint {
                host: url.host,
                port: url.port,
                ask: Ask {
                    authority: url.authority,
                    path: match url.base_path.is_empty() {
                        true => "/metrics".to_owned(),
                        false => url.base_path,
                    },
                    headers: String::new(),
                },
                kinds: vec![match one.kind {
                    raw::ExporterKind::Engine => Kind::Engine,
                    raw::ExporterKind::Gpu => Kind::Gpu,
                    raw::ExporterKind::Host => Kind::Host,
                    raw::ExporterKind::Proxy => Kind::Proxy,
                }],
                instance: one.instance.clone(),
                gpu: one.gpu.clone(),
            });
        }
        watcher::merged(endpoints)
    }

    fn loads(&mut self, scenarios: &[ScenarioPlan], instances: &[u32]) {
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

    /// Whether the fleet can be made what every point wants.
    fn fleet_can(&mut self, plan: &Plan, settings: &[Setting]) {
        match &plan.fleet {
            Fleet::Simulated(fleet) => self.engines_can(fleet, settings),
            Fleet::Live(_) => self.hooks_can(plan, settings),
        }
    }

    fn engines_can(&mut self, fleet: &Simulated, settings: &[Setting]) {
        let mut tried: BTreeSet<String> = BTreeSet::new();
        for setting in settings {
            let what = (setting.gpus_per_instance, &setting.engine);
            if !tried.insert(format!("{what:?}")) {
                continue;
            }
            if let Err(error) =
                profile_of(&fleet.profile, setting.gpus_per_instance, &setting.engine)
            {
                let key = match setting.variant.as_str() {
                    expand::BASE if setting.gpus_per_instance > 1 => "matrix.gpus_per_instance",
                    expand::BASE => "engine",
                    _ => "variants",
                };
                let help =
                    "settings are keys of a hardware profile, such as max_num_seqs or cpu.cores";
                self.fault(key, error, help);
            }
        }
    }

    fn hooks_can(&mut self, plan: &Plan, settings: &[Setting]) {
        let fleet = |setting: &Setting| {
            let (policy, engine) = (&setting.policy, &setting.engine);
            format!(
                "{}/{}/{policy}/{engine:?}",
                setting.instances, setting.gpus_per_instance
            )
        };
        let fleets: BTreeSet<String> = settings.iter().map(fleet).collect();
        if fleets.len() > 1 && plan.hooks.start.is_none() {
            self.fault(
                "fleet",
                format!("the plan wants {} different fleets, and nothing can make one into another", fleets.len()),
                "give [hooks] with start = \"a command\", which finds in EVENKEEL_INSTANCES and others what is wanted; or leave one fleet in the plan",
            );
        }
    }

    /// A simulated fleet's balancer is Evenkeel, which has to know the policy; a live one may be anybody's.
    fn policies_can(
        &mut self,
        plan: &mut Plan,
        points: &[Setting],
        settings: &BTreeMap<String, toml::Table>,
    ) {
        if matches!(plan.fleet, Fleet::Live(_)) {
            return;
        }
        let used: BTreeSet<&String> = points.iter().map(|setting| &setting.policy).collect();
        for name in used {
            match policy(name, settings) {
                Ok(config) => {
                    plan.policy_settings.insert(name.clone(), config);
                }
                Err(why) => self.fault(
                    "matrix.policies",
                    format!("the policy `{name}` cannot be used: {why}"),
                    format!("policies that need settings get them under [policy_settings.{name}]"),
                ),
            }
        }
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

fn policy(name: &str, settings: &BTreeMap<String, toml::Table>) -> Result<PolicyConfig, String> {
    let mut table = settings.get(name).cloned().unwrap_or_default();
    table.entry("kind").or_insert_with(|| name.into());
    let config: PolicyConfig = table
        .try_into()
        .map_err(|error: toml::de::Error| error.message().to_owned())?;
    config.validate().map_err(|error| error.to_string())?;
    Ok(config)
}

/// The engine of a point.
pub fn profile_of(profile: &Profile, gpus: u32, engine: &Values) -> Result<Profile, String> {
    let profile = profile.on_gpus(gpus).map_err(|error| error.to_string())?;
    profile.with(engine).map_err(|error| error.to_string())
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
