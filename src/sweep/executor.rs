//! The three places in which a point can run, behind one call.

use std::path::Path;

use super::interrupt::Interrupt;
use super::plan::{Fleet, Live, Plan, Point, Simulated};
use super::progress::Shown;
use super::sent::Ran;
use super::servers::Servers;
use super::{SweepError, engines, virtual_time};

/// Where points run.
pub enum Executor<'p> {
    /// the engine's model in virtual time
    Virtual(&'p Simulated),
    /// simulated engines and the proxy, on sockets of this machine
    Engines(&'p Simulated),
    /// somebody's servers
    Servers(&'p Live, Servers),
}

impl<'p> Executor<'p> {
    /// As the plan and the command line say.
    pub fn of(plan: &'p Plan, simulate: bool) -> Result<Executor<'p>, SweepError> {
        match (&plan.fleet, simulate) {
            (Fleet::Simulated(fleet), true) => Ok(Executor::Virtual(fleet)),
            (Fleet::Simulated(fleet), false) => Ok(Executor::Engines(fleet)),
            (Fleet::Live(live), false) => Ok(Executor::Servers(live, Servers::default())),
            (Fleet::Live(_), true) => Err(SweepError::Options(
                "--simulate runs an engine's model, and the plan's fleet is live: leave --simulate out, or write [fleet] kind = \"simulated\" with a profile of the machine".into(),
            )),
        }
    }

    /// Runs a point; `None` if it was interrupted. What hooks write goes into `log`.
    pub fn run(
        &mut self,
        plan: &Plan,
        point: &Point,
        log: &Path,
        (interrupt, shown): (&Interrupt, &Shown),
    ) -> Result<Option<Ran>, SweepError> {
        match self {
            Executor::Virtual(fleet) => virtual_time::run(plan, fleet, point).map(Some),
            Executor::Engines(fleet) => engines::run(plan, fleet, point, interrupt, shown),
            Executor::Servers(live, servers) => {
                servers.run(plan, live, point, log, (interrupt, shown))
            }
        }
    }

    /// Leaves nothing running that was started for the sweep; what that writes goes into `log`.
    pub fn end(self, plan: &Plan, log: &Path, interrupt: &Interrupt) -> Result<(), SweepError> {
        match self {
            Executor::Servers(_, servers) => servers.end(plan, log.to_owned(), interrupt),
            _ => Ok(()),
        }
    }
}
