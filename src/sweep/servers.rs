//! Somebody's servers: made as each point wants them by hooks, asked whether they are ready, loaded.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::SweepError;
use super::drive::{self, Place, drive};
use super::hooks::{Hook, environment};
use super::interrupt::Interrupt;
use super::plan::{Live, Plan, Point};
use super::progress::Shown;
use super::ready;
use super::records::{Found, Tail};
use super::sent::Ran;
use crate::monitor::Endpoint;
use crate::study::Setting;

/// Longest wait for the proxy's last records, which it writes a little later.
const RECORDS_WAIT: Duration = Duration::from_secs(3);

/// The fleet and what it is at present.
#[derive(Debug, Default)]
pub struct Servers {
    at: Option<Made>,
}

/// For which point the fleet was started.
#[derive(Debug)]
struct Made {
    fleet: String,
    environment: Vec<(String, String)>,
}

impl Servers {
    /// Runs a point; `None` if it was interrupted. What hooks write goes into `log`.
    pub fn run(
        &mut self,
        plan: &Plan,
        live: &Live,
        point: &Point,
        log: &Path,
        (interrupt, shown): (&Interrupt, &Shown),
    ) -> Result<Option<Ran>, SweepError> {
        let Some(mut notes) = self.make(plan, point, log, interrupt)? else {
            return Ok(None);
        };
        let limit = Duration::from_secs_f64(plan.hooks.ready_limit_s);
        if !ready::wait(live, limit, interrupt)? {
            return Ok(None);
        }
        let tail = live.records_dir.as_deref().map(Tail::begin).transpose()?;
        let place = Place {
            base_url: live.base_url.clone(),
            endpoints: endpoints(&plan.exporters, point.setting.instances),
            id_prefix: drive::id_prefix(point),
            most_at_once: None,
        };
        let id_prefix = place.id_prefix.clone();
        let Some(driven) = drive(plan, point, place, interrupt, shown)? else {
            return Ok(None);
        };
        notes.extend(driven.notes);
        let batch = driven
            .batch
            .as_ref()
            .map_or(0, |batch| batch.run.samples.len());
        let sent = driven.online.run.samples.len() + batch;
        let records = tail.map(|tail| records(&tail, &id_prefix, sent, interrupt, &mut notes));
        Ok(Some(Ran {
            online: driven.online,
            batch: driven.batch,
            readings: driven.readings,
            records: records.transpose()?,
            notes,
        }))
    }

    /// Has the fleet be what the point wants; `None` if it was interrupted.
    fn make(
        &mut self,
        plan: &Plan,
        point: &Point,
        log: &Path,
        interrupt: &Interrupt,
    ) -> Result<Option<Vec<String>>, SweepError> {
        let hooks = &plan.hooks;
        let wanted = Made {
            fleet: fleet_of(&point.setting),
            environment: environment(&point.id, &point.setting),
        };
        let same = self.at.as_ref().map(|at| at.fleet == wanted.fleet);
        let before = self.at.take().map(|at| at.environment).unwrap_or_default();
        // From now on there may be something to stop, however far this comes.
        let wanted = &*self.at.insert(wanted);
        let start = ("start", &hooks.start, &wanted.environment);
        let steps = match same {
            None => vec![start],
            Some(true) if hooks.restart.is_some() => {
                vec![("restart", &hooks.restart, &wanted.environment)]
            }
            Some(true) if !plan.starts_afresh() => Vec::new(),
            Some(_) => vec![("stop", &hooks.stop, &before), start],
        };
        let mut notes = Vec::new();
        for (which, command, environment) in steps {
            let Some(command) = command else { continue };
            let hook = Hook {
                which,
                command,
                environment,
                limit: Duration::from_secs_f64(hooks.time_limit_s),
                log,
            };
            match hook.run(interrupt)? {
                Some(note) => notes.push(note),
                None => return Ok(None),
            }
        }
        Ok(Some(notes))
    }

    /// Stops what was started, also after an interrupt; what that writes goes into `log`.
    pub fn end(self, plan: &Plan, log: PathBuf, interrupt: &Interrupt) -> Result<(), SweepError> {
        let (Some(at), Some(command)) = (self.at, &plan.hooks.stop) else {
            return Ok(());
        };
        let hook = Hook {
            which: "stop",
            command,
            environment: &at.environment,
            limit: Duration::from_secs_f64(plan.hooks.time_limit_s),
            log: &log,
        };
        hook.run(interrupt).map(|_| ())
    }
}

/// What makes one fleet another: all that a hook is told but for the point's name and variant.
fn fleet_of(setting: &Setting) -> String {
    let Setting {
        instances,
        gpus_per_instance,
        policy,
        engine,
        ..
    } = setting;
    format!("{instances}/{gpus_per_instance}/{policy}/{engine:?}")
}

/// Those of the first so many instances that the plan names, and those of none.
fn endpoints(exporters: &[Endpoint], instances: u32) -> Vec<Endpoint> {
    let mut named: Vec<&String> = Vec::new();
    for instance in exporters.iter().filter_map(|one| one.instance.as_ref()) {
        if !named.contains(&instance) {
            named.push(instance);
        }
    }
    let used: BTreeSet<&String> = named.into_iter().take(instances as usize).collect();
    let is_used = |one: &&Endpoint| one.instance.as_ref().is_none_or(|name| used.contains(name));
    exporters.iter().filter(is_used).cloned().collect()
}

fn records(
    tail: &Tail,
    id_prefix: &str,
    sent: usize,
    interrupt: &Interrupt,
    notes: &mut Vec<String>,
) -> Result<Vec<crate::measure::record::Record>, SweepError> {
    let begun = std::time::Instant::now();
    let Found {
        records,
        unreadable,
    } = loop {
        let found = tail.found(id_prefix)?;
        let is_all = found.records.len() >= sent || begun.elapsed() > RECORDS_WAIT;
        if is_all || interrupt.wait(Duration::from_millis(100)) {
            break found;
        }
    };
    if records.len() < sent {
        notes.push(format!(
            "records: {} of {sent} requests have one",
            records.len()
        ));
    }
    if unreadable > 0 {
        notes.push(format!("records: {unreadable} lines cannot be read"));
    }
    Ok(records)
}
