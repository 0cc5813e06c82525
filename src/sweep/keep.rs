//! Writes a point that was run into its folder, `point.json` last.

use super::SweepError;
use super::plan::Point;
use super::sent::{Ran, Sent};
use crate::bench::result_file::{Told, date_now};
use crate::bench::{BenchError, request_lines};
use crate::report::load_summary::LoadSummary;
use crate::study::files::{PointFolder, StudyError, write_json, write_lines, write_whole};
use crate::study::{PointFile, STUDY_VERSION};

/// Writes all of it; gives the load in figures.
pub fn keep(folder: &PointFolder, point: &Point, ran: &Ran) -> Result<LoadSummary, SweepError> {
    let summary = load(folder, &ran.online, ["result.json", "requests.jsonl"])?;
    if let Some(batch) = &ran.batch {
        load(folder, batch, ["batch_result.json", "batch_requests.jsonl"])?;
    }
    write_lines(&folder.file("monitor.jsonl"), &ran.readings)?;
    if let Some(records) = &ran.records {
        write_lines(&folder.file("records.jsonl"), records)?;
    }
    let run = &ran.online.run;
    let file = PointFile {
        schema: STUDY_VERSION,
        id: point.id.clone(),
        order: point.order,
        setting: point.setting.clone(),
        started_unix_ns: ran.online.started_wall_ns,
        seconds: run.generator.wall_ns as f64 / 1e9,
        notes: ran.notes.clone(),
    };
    write_json(&folder.file("point.json"), &file)?;
    Ok(summary)
}

fn load(
    folder: &PointFolder,
    sent: &Sent,
    [result, lines]: [&str; 2],
) -> Result<LoadSummary, SweepError> {
    let reading = sent.settings.reading(&sent.args.goodput);
    let summary = LoadSummary::of(&sent.run, &reading);
    let date = date_now();
    let told = Told {
        args: &sent.args,
        settings: &sent.settings,
        run: &sent.run,
        summary: &summary,
        sent: sent.settings.sent(&sent.run),
        interrupted: false,
        date: &date,
        started_wall_ns: sent.started_wall_ns,
    };
    let json = told.json()?;
    write_whole(&folder.file(result), |out| {
        serde_json::to_writer(&mut *out, &json)?;
        out.write_all(b"\n")
    })?;
    let path = folder.file(lines);
    write_whole(&path, |out| {
        request_lines::write(&told, out).map_err(|error| match error {
            BenchError::Json(error) => error.into(),
            other => std::io::Error::other(other.to_string()),
        })
    })
    .map_err(|error: StudyError| SweepError::Study(error))?;
    Ok(summary)
}
