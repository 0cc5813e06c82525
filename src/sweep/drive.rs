//! Sends a point's load to servers that run, and looks at them meanwhile.

use std::time::Duration;

use super::SweepError;
use super::interrupt::Interrupt;
use super::plan::{Plan, Point};
use super::progress::Shown;
use super::sent::{self, Sent};
use crate::bench::BenchError;
use crate::bench::options::BenchArgs;
use crate::bench::settings::Settings;
use crate::load::runner::{ClosedEnd, Pace, Run};
use crate::measure::clock::{now_ns, wall_ns};
use crate::monitor::{Endpoint, Monitor};
use crate::study::monitor::Reading;

/// A year: a batch beside a load ends with it, whenever that is.
const ENDLESS_NS: u64 = 366 * 86_400 * 1_000_000_000;

/// Where a load goes.
pub struct Place {
    /// base URL
    pub base_url: String,
    /// what is looked at meanwhile
    pub endpoints: Vec<Endpoint>,
    /// what ids of requests begin with
    pub id_prefix: String,
    /// requests that can be under way, where that is less than what bench finds out by itself
    pub most_at_once: Option<usize>,
}

/// What came of it.
pub struct Driven {
    /// the load
    pub online: Sent,
    /// the batch beside it
    pub batch: Option<Sent>,
    /// what the monitor saw
    pub readings: Vec<Reading>,
    /// what it did not see
    pub notes: Vec<String>,
}

/// A start of a load's ids that no other run of the point has, so that records are joined to the right one.
pub fn id_prefix(point: &Point) -> String {
    format!("{}-{}-", point.id, wall_ns() / 1_000_000_000)
}

/// Runs the load to its last answer; `None` if it was interrupted.
pub fn drive(
    plan: &Plan,
    point: &Point,
    place: Place,
    interrupt: &Interrupt,
    shown: &Shown,
) -> Result<Option<Driven>, SweepError> {
    let setting = &point.setting;
    let args = sent::online(plan, point, &place.id_prefix)?;
    let online = Prepared::of(plan, args, &setting.lengths, &place)?;
    let batch = sent::batch(plan, point, &place.id_prefix)?;
    let batch_lengths = plan.batch_lengths(setting.scenario);
    let batch = batch.map(|args| Prepared::of(plan, args, batch_lengths, &place));
    let batch = batch.transpose()?;

    let every = Duration::from_secs_f64(plan.timing.look_every_s);
    let monitor = Monitor::start(place.endpoints, every).map_err(SweepError::Start)?;
    let batch = batch.map(|batch| batch.start(true)).transpose()?;
    let online = online.start(false)?;
    while !online.run.is_finished() {
        shown.show(&online.run.progress);
        if interrupt.is_above_after_a_look(0) {
            online.run.progress.abandon();
        }
    }
    let online = online.end()?;
    let batch = batch.map(|batch| {
        batch.run.progress.abandon();
        batch.end()
    });
    let batch = batch.transpose()?;
    let mut seen = monitor.end();
    let notes = std::mem::take(&mut seen.notes);
    if interrupt.is_set() {
        return Ok(None);
    }
    Ok(Some(Driven {
        readings: seen.readings(online.run.started_ns),
        online,
        batch,
        notes,
    }))
}

struct Prepared {
    args: BenchArgs,
    settings: Settings,
    target: std::net::SocketAddr,
}

struct Running {
    args: BenchArgs,
    settings: Settings,
    run: Run,
}

impl Prepared {
    fn of(
        plan: &Plan,
        mut args: BenchArgs,
        lengths: &str,
        place: &Place,
    ) -> Result<Prepared, BenchError> {
        args.base_url = Some(place.base_url.clone());
        let (mut settings, target) = Settings::of(&args)?;
        let most = place.most_at_once.unwrap_or(usize::MAX);
        settings.max_in_flight = settings.max_in_flight.min(most);
        Ok(Prepared {
            settings: sent::with_lengths(plan, settings, lengths),
            args,
            target: target.addr,
        })
    }

    fn start(self, endless: bool) -> Result<Running, BenchError> {
        let mut spec = self.settings.run_spec(self.target)?;
        if endless {
            spec.pace = Pace::Closed(ClosedEnd::After { run_ns: ENDLESS_NS });
        }
        Ok(Running {
            run: Run::start(spec)?,
            args: self.args,
            settings: self.settings,
        })
    }
}

impl Running {
    fn end(self) -> Result<Sent, BenchError> {
        let run = self.run.join()?;
        Ok(Sent {
            started_wall_ns: wall_ns() - (now_ns() - run.started_ns),
            args: self.args,
            settings: self.settings,
            run,
        })
    }
}
