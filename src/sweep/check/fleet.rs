//! Rules of where a sweep runs: the fleet, its hooks, exporters and policies.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_policies::PolicyConfig;

use super::{Checker, SECONDS_MAX};
use crate::config::{Upstream, url};
use crate::engine::profile::Profile;
use crate::load::fetch::Ask;
use crate::monitor::{Endpoint, Kind, watcher};
use crate::study::Setting;
use crate::sweep::plan::{Fleet, Live, Plan, Simulated, Values};
use crate::sweep::{expand, raw};

/// A fleet that nothing starts is there or is not.
const UNHOOKED_S: f64 = 10.0;

impl Checker<'_> {
    pub(super) fn fleet(&mut self, fleet: raw::Fleet, ready_urls: &[String]) -> Option<Fleet> {
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

    pub(super) fn simulated(&mut self, profile: &str, slow_factors: Vec<f64>) -> Option<Simulated> {
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

    pub(super) fn url(&mut self, key: &str, text: &str) -> Option<Upstream> {
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

    pub(super) fn hooks(&mut self, file: &raw::Plan) -> raw::Hooks {
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

    pub(super) fn exporters(&mut self, exporters: &[raw::Exporter]) -> Vec<Endpoint> {
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

    /// Whether the fleet can be made what every point wants.
    pub(super) fn fleet_can(&mut self, plan: &Plan, settings: &[Setting]) {
        match &plan.fleet {
            Fleet::Simulated(fleet) => self.engines_can(fleet, settings),
            Fleet::Live(_) => self.hooks_can(plan, settings),
        }
    }

    pub(super) fn engines_can(&mut self, fleet: &Simulated, settings: &[Setting]) {
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

    pub(super) fn hooks_can(&mut self, plan: &Plan, settings: &[Setting]) {
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
    pub(super) fn policies_can(
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
