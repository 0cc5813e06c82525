//! `evenkeel sweep` from its options to the last line.

use std::process::ExitCode;

use super::executor::Executor;
use super::interrupt::{self, Interrupt};
use super::options::SweepArgs;
use super::plan::{Plan, Point};
use super::progress::Shown;
use super::study_folder::StudyFolder;
use super::words::{self, Command};
use super::{SweepError, check, keep};
use crate::config::ConfigErrors;

/// Runs what is left of the plan.
pub fn run(args: &SweepArgs) -> Result<ExitCode, SweepError> {
    let plan = read(args)?;
    let executor = Executor::of(&plan, args.simulate)?;
    let Some(out) = args.out.as_deref().filter(|_| !args.list) else {
        println!("{}\n", words::opening(&plan, args.simulate, 0));
        plan.points
            .iter()
            .for_each(|point| println!("{}", point.id));
        return Ok(ExitCode::SUCCESS);
    };
    let folder = StudyFolder::open(out, &plan, args.simulate)?;
    let finished = folder.finished.len();
    println!("{}\n", words::opening(&plan, args.simulate, finished));
    let interrupt = Interrupt::begin()?;
    let shown = Shown::begin(plan.points.len(), finished);
    let mut sweep = Sweep {
        plan: &plan,
        folder: &folder,
        interrupt: &interrupt,
        shown: &shown,
        kept: finished,
        empty: Vec::new(),
    };
    let ended = sweep.all(executor);
    shown.end();
    let command = Command {
        plan: &args.plan,
        out,
        simulate: args.simulate,
    };
    println!(
        "\n{}",
        words::closing(&plan, sweep.kept, &sweep.empty, &command)
    );
    ended?;
    Ok(match sweep.kept == plan.points.len() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(interrupt::EXIT_CODE),
    })
}

fn read(args: &SweepArgs) -> Result<Plan, SweepError> {
    let path = &args.plan;
    let text = std::fs::read_to_string(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::InvalidData => SweepError::Options(format!(
            "{} is no text: a plan is TOML in UTF-8",
            path.display()
        )),
        _ => SweepError::Options(format!("cannot read the plan {}: {source}", path.display())),
    })?;
    check::parse(&text, &path.display().to_string()).map_err(|errors: ConfigErrors| errors.into())
}

struct Sweep<'a> {
    plan: &'a Plan,
    folder: &'a StudyFolder,
    interrupt: &'a Interrupt,
    shown: &'a Shown,
    kept: usize,
    /// points without a complete request
    empty: Vec<String>,
}

impl Sweep<'_> {
    /// Runs to the last point, to an interrupt or to an error, and leaves nothing running.
    fn all(&mut self, mut executor: Executor<'_>) -> Result<(), SweepError> {
        let mut ended = Ok(());
        let mut log = std::env::temp_dir();
        for point in &self.plan.points {
            if self.folder.finished.contains(&point.id) {
                continue;
            }
            match self.one(&mut executor, point, &mut log) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    ended = Err(error);
                    break;
                }
            }
        }
        let stopped = executor.end(self.plan, &log, self.interrupt);
        // What stopped the sweep is the news, not what came of it.
        ended.and(stopped)
    }

    /// False if it was interrupted.
    fn one(
        &mut self,
        executor: &mut Executor<'_>,
        point: &Point,
        log: &mut std::path::PathBuf,
    ) -> Result<bool, SweepError> {
        if self.interrupt.is_set() {
            return Ok(false);
        }
        self.shown.point(point);
        let folder = self.folder.begin_point(&point.id)?;
        *log = folder.file("hooks.log");
        let ran = executor.run(self.plan, point, log, (self.interrupt, self.shown))?;
        let Some(ran) = ran else {
            return Ok(false);
        };
        let summary = keep::keep(&folder, point, &ran)?;
        self.kept += 1;
        if summary.completed == 0 {
            self.empty.push(point.id.clone());
        }
        let words = words::point(&summary, point.setting.scenario);
        self.shown.finished(point, &words);
        Ok(true)
    }
}
