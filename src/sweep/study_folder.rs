//! The folder of a study while a sweep writes it: locked, begun once, gone on with by the same plan only.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{File, TryLockError};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::SweepError;
use super::plan::Plan;
use crate::measure::clock::wall_ns;
use crate::study::files::{Folder, PointFolder, write_json, write_whole};
use crate::study::{Machine, STUDY_VERSION, StudyFile};

/// Held by the process that sweeps; the system lets go of it when that ends, however it ends.
const LOCK: &str = ".lock";
/// What a process that was killed may leave beside the files of a study.
const TEMPORARY: &str = ".tmp";

/// A folder that nobody else sweeps into.
#[derive(Debug)]
pub struct StudyFolder {
    folder: Folder,
    /// points that were finished before
    pub finished: BTreeSet<String>,
    _lock: File,
}

impl StudyFolder {
    /// Begins a study, or goes on with one that the same plan began.
    pub fn open(dir: &Path, plan: &Plan, simulated: bool) -> Result<StudyFolder, SweepError> {
        std::fs::create_dir_all(dir.join("points")).map_err(SweepError::file(dir))?;
        let lock = lock(dir)?;
        let folder = Folder::new(dir);
        if folder.study().exists() {
            is_of(&folder.read()?, plan, simulated, dir)?;
        } else {
            is_free(dir)?;
            write_whole(&folder.plan(), |out| out.write_all(plan.source.as_bytes()))?;
            write_json(&folder.study(), &study(plan, simulated))?;
        }
        let known: BTreeSet<&str> = plan.points.iter().map(|point| point.id.as_str()).collect();
        let finished = folder.points()?.into_iter().map(|(point, _)| point.id);
        let finished = finished.filter(|id| known.contains(id.as_str())).collect();
        Ok(StudyFolder {
            folder,
            finished,
            _lock: lock,
        })
    }

    /// An empty folder for a point; a half of it that an earlier sweep left is thrown away.
    pub fn begin_point(&self, id: &str) -> Result<PointFolder, SweepError> {
        let point = self.folder.point(id);
        let path = point.path();
        if path.exists() {
            std::fs::remove_dir_all(path).map_err(SweepError::file(path))?;
        }
        std::fs::create_dir_all(path).map_err(SweepError::file(path))?;
        Ok(point)
    }
}

fn lock(dir: &Path) -> Result<File, SweepError> {
    let path = dir.join(LOCK);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path);
    let file = file.map_err(SweepError::file(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(SweepError::Options(format!(
            "another sweep is writing into {}: wait for its end, or give --out another folder",
            dir.display()
        ))),
        Err(TryLockError::Error(source)) => Err(SweepError::File { path, source }),
    }
}

/// A folder with files of others is no place for a study.
fn is_free(dir: &Path) -> Result<(), SweepError> {
    for entry in std::fs::read_dir(dir).map_err(SweepError::file(dir))? {
        let name = entry.map_err(SweepError::file(dir))?.file_name();
        let name = name.to_string_lossy();
        let ours = ["points", "plan.toml", LOCK].contains(&name.as_ref());
        if !ours && !name.starts_with(TEMPORARY) {
            return Err(SweepError::Options(format!(
                "{} is not empty and no study ({name} is in it): give --out a new folder",
                dir.display()
            )));
        }
    }
    Ok(())
}

fn is_of(study: &StudyFile, plan: &Plan, simulated: bool, dir: &Path) -> Result<(), SweepError> {
    let dir = dir.display();
    if study.plan_sha256 != sha256(&plan.source) {
        return Err(SweepError::Options(format!(
            "{dir} holds the study of another plan, `{}`: give --out a new folder, or run {dir}/plan.toml to go on with that one",
            study.name
        )));
    }
    if study.simulated != simulated {
        let (was, remedy) = match study.simulated {
            true => ("with", "give it again"),
            false => ("without", "leave it out"),
        };
        return Err(SweepError::Options(format!(
            "{dir} holds a study that was begun {was} --simulate: {remedy}, or give --out a new folder"
        )));
    }
    Ok(())
}

fn study(plan: &Plan, simulated: bool) -> StudyFile {
    StudyFile {
        schema: STUDY_VERSION,
        name: plan.name.clone(),
        simulated,
        seed: plan.seed,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_unix_ns: wall_ns(),
        machine: machine(),
        plan_sha256: sha256(&plan.source),
        objectives: plan.objective_words.clone(),
        attainment: plan.attainment,
        gpu_hour_price: plan.gpu_hour_price.clone(),
    }
}

fn sha256(text: &str) -> String {
    Sha256::digest(text)
        .iter()
        .fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

fn machine() -> Machine {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.and_then(|rest| rest.split_once(':'));
    Machine {
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        processor: model.map(|(_, name)| name.trim().to_owned()),
        memory_bytes: crate::config::units::memory_bytes(),
    }
}
