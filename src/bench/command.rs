//! `evenkeel bench` from its options to the last line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::options::BenchArgs;
use super::output::Output;
use super::progress::Shown;
use super::result_file::{self, Told};
use super::settings::Settings;
use super::{BenchError, closing, opening, request_lines};
use crate::load::runner::Run;
use crate::measure::clock::{now_ns, wall_ns};
use crate::report::load_summary::LoadSummary;

/// How often the run is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// As a shell says of a command that an interrupt ended.
const INTERRUPTED: u8 = 130;

/// Runs the load and tells what it found.
pub fn run(args: &BenchArgs) -> Result<ExitCode, BenchError> {
    let date = result_file::date_now();
    let (settings, target) = Settings::of(args)?;
    let files = Files::open(args, &settings, &date)?;
    let spec = settings.run_spec(target.addr)?;
    println!("{}\n", opening::opening(args, &settings, &target));
    let watch = Watch::begin()?;
    let run = Run::start(spec)?;
    let interrupted = watch.until_end(&run);
    let result = run.join()?;
    let summary = LoadSummary::of(&result, &settings.reading(&args.goodput));
    let told = Told {
        args,
        settings: &settings,
        run: &result,
        summary: &summary,
        sent: settings.sent(&result),
        interrupted,
        date: &date,
        started_wall_ns: wall_ns() - (now_ns() - result.started_ns),
    };
    println!("{}", closing::closing(&told));
    for path in files.write(&told)? {
        println!("written: {}", path.display());
    }
    Ok(exit_code(&summary, interrupted))
}

fn exit_code(summary: &LoadSummary, interrupted: bool) -> ExitCode {
    if interrupted {
        ExitCode::from(INTERRUPTED)
    } else if summary.completed == 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Waits for the end of a run, or for somebody who has seen enough.
struct Watch {
    runtime: Runtime,
    interrupt: Signal,
    terminate: Signal,
}

impl Watch {
    /// Before the run begins, so that no signal finds nobody to take it.
    fn begin() -> Result<Watch, BenchError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(BenchError::Watch)?;
        let of = |kind| {
            let _inside = runtime.enter();
            signal(kind).map_err(BenchError::Watch)
        };
        Ok(Watch {
            interrupt: of(SignalKind::interrupt())?,
            terminate: of(SignalKind::terminate())?,
            runtime,
        })
    }

    /// Shows the run until it ends; true if it was interrupted and so cut short.
    fn until_end(mut self, run: &Run) -> bool {
        let shown = Shown::begin();
        let mut interrupted = false;
        self.runtime.block_on(async {
            while !run.is_finished() {
                shown.show(&run.progress);
                tokio::select! {
                    _ = self.interrupt.recv() => interrupted = true,
                    _ = self.terminate.recv() => interrupted = true,
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
                if interrupted {
                    run.progress.abandon();
                }
            }
        });
        shown.end();
        interrupted
    }
}

/// The files that were asked for.
struct Files {
    result: Option<Output>,
    lines: Option<Output>,
}

impl Files {
    fn open(args: &BenchArgs, settings: &Settings, date: &str) -> Result<Files, BenchError> {
        for given in &args.metadata {
            super::settings::key_value("--metadata", given)?;
        }
        let result = args
            .save_result
            .as_ref()
            .map(|named| Output::open(&result_path(args, named.as_deref(), settings, date)?));
        let lines = args.requests_jsonl.as_deref().map(Output::open);
        Ok(Files {
            result: result.transpose()?,
            lines: lines.transpose()?,
        })
    }

    fn write(self, told: &Told<'_>) -> Result<Vec<PathBuf>, BenchError> {
        let mut written = Vec::new();
        if let Some(output) = self.result {
            let json = told.json()?;
            written.push(output.write(|out| {
                serde_json::to_writer(&mut *out, &json)?;
                out.write_all(b"\n").map_err(serde_json::Error::io)?;
                Ok(())
            })?);
        }
        if let Some(output) = self.lines {
            written.push(output.write(|out| request_lines::write(told, out))?);
        }
        Ok(written)
    }
}

/// As named in one of two ways, else as vLLM would name it.
fn result_path(
    args: &BenchArgs,
    named: Option<&Path>,
    settings: &Settings,
    date: &str,
) -> Result<PathBuf, BenchError> {
    let name = match (named, args.result_filename.as_deref()) {
        (Some(_), Some(_)) => {
            return Err(BenchError::Options(
                "the result has two names: give --save-result FILE or --result-filename FILE"
                    .into(),
            ));
        }
        (Some(name), None) | (None, Some(name)) => name.to_owned(),
        (None, None) => result_file::usual_name(args, &settings.form.model, date).into(),
    };
    let Some(dir) = &args.result_dir else {
        return Ok(name);
    };
    std::fs::create_dir_all(dir).map_err(|source| BenchError::File {
        path: dir.clone(),
        source,
    })?;
    Ok(dir.join(name))
}
