//! Changing the configuration while it serves: from the file, by the admin API. All of it or nothing, one at a time.
//!
//! What can fail is read and checked first; only then pools are changed and the next generation takes the place of
//! the one before. Requests that have begun end under what they began with.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::core::Shared;
use super::generation::{NotUsable, Prepared};
use super::listen;
use crate::config::checked::Config;
use crate::config::edit::EditError;
use crate::config::{self, ConfigErrors};
use crate::fleet::change::Changes;
use crate::tls::watch::Files;

/// Where configurations come from, and how taking them went.
#[derive(Default)]
pub struct Reloads {
    file: Option<PathBuf>,
    changing: Mutex<()>,
    taken: AtomicU64,
    refused: AtomicU64,
    last_refused: AtomicBool,
}

impl Reloads {
    /// Of a server whose configuration is in `file`; without one, nothing can be read again.
    pub fn of(file: Option<PathBuf>) -> Reloads {
        Reloads {
            file,
            ..Reloads::default()
        }
    }

    /// Reloads that were taken, and that were refused.
    pub fn counts(&self) -> (u64, u64) {
        (self.taken.load(Relaxed), self.refused.load(Relaxed))
    }

    /// Whether what was last read is in use.
    pub fn last_was_taken(&self) -> bool {
        !self.last_refused.load(Relaxed)
    }
}

/// A configuration was taken.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Taken {
    /// number of the generation that holds now
    pub generation: u64,
    /// what is other than before in the fleet
    pub changes: Changes,
}

/// A configuration was not taken, and the old one goes on.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// there is no file
    #[error(
        "this server was not started from a configuration file, so there is none to read again"
    )]
    NoFile,
    /// the file cannot be read, is wrong, or changes what cannot change
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// a file or variable that it names cannot be used
    #[error("{file}: {reason}")]
    NotUsable {
        /// the configuration file
        file: String,
        /// what it names
        reason: NotUsable,
    },
    /// the change makes no sense
    #[error(transparent)]
    Edit(#[from] EditError),
}

impl Shared {
    /// Reads the configuration file again; `by` says in the log who asked.
    pub fn reload(&self, by: &str) -> Result<Taken, NotTaken> {
        let _alone = self.reloads.changing.lock();
        let taken = self.reload_alone();
        let (count, refused) = match &taken {
            Ok(taken) => {
                tracing::info!(by, generation = taken.generation, changes = ?taken.changes, "configuration reloaded");
                (&self.reloads.taken, false)
            }
            Err(reason) => {
                tracing::warn!(
                    by,
                    "the configuration was refused and the old one goes on:\n{reason}"
                );
                (&self.reloads.refused, true)
            }
        };
        count.fetch_add(1, Relaxed);
        self.reloads.last_refused.store(refused, Relaxed);
        taken
    }

    fn reload_alone(&self) -> Result<Taken, NotTaken> {
        let file = self.reloads.file.as_deref().ok_or(NotTaken::NoFile)?;
        let config = config::load(file)?;
        let running = self.generation();
        let name = file.display().to_string();
        config::fixed::check(&running.config, &config, &name).map_err(ConfigErrors::from)?;
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        let (level, most) = (config.log.level.clone(), config.limits.max_connections);
        let series = config.limits.max_series;
        let taken = self.take(config, &name)?;
        crate::log::set_level(&level);
        self.registry.set_max_series(series);
        let most = listen::most_connections(most);
        self.max_connections.store(most, Relaxed);
        Ok(taken)
    }

    /// Changes the running configuration, and no file.
    pub fn edit(
        &self,
        edit: impl FnOnce(&Config) -> Result<Config, EditError>,
    ) -> Result<Taken, NotTaken> {
        let _alone = self.reloads.changing.lock();
        let config = edit(&self.generation().config)?;
        let taken = self.take(config, "the running configuration")?;
        tracing::info!(generation = taken.generation, changes = ?taken.changes, "fleet changed through the admin API");
        Ok(taken)
    }

    fn take(&self, config: Config, name: &str) -> Result<Taken, NotTaken> {
        let before = self.generation();
        let prepared = Prepared::of(Arc::new(config), Some(&before));
        let prepared = prepared.map_err(|reason| NotTaken::NotUsable {
            file: name.to_owned(),
            reason,
        })?;
        let (generation, changes) = prepared.begin();
        let number = generation.number;
        self.current.store(Arc::new(generation));
        Ok(Taken {
            generation: number,
            changes,
        })
    }
}

/// What the file says, and the state of the files that it names.
#[derive(Clone, PartialEq, Eq)]
struct Seen {
    text: String,
    named: Files,
}

/// What was last taken or refused, and what the last look found.
struct Watcher {
    shared: Arc<Shared>,
    file: PathBuf,
    settled: Seen,
    last: Option<Seen>,
}

impl Watcher {
    fn new(shared: Arc<Shared>, file: PathBuf) -> Watcher {
        let config = shared.generation().config.clone();
        Watcher {
            settled: Seen {
                text: config.source.clone(),
                named: Files::look(config.named_files()),
            },
            shared,
            file,
            last: None,
        }
    }

    fn look(&mut self) {
        let config = self.shared.generation().config.clone();
        // not there, or no text: somebody is writing it
        let Ok(text) = std::fs::read_to_string(&self.file) else {
            self.last = None;
            return;
        };
        let now = Seen {
            text,
            named: Files::look(config.named_files()),
        };
        let before = self.last.replace(now.clone());
        if now == self.settled || before.as_ref() != Some(&now) {
            return;
        }
        // it may be in use already, by another way
        if now.text != config.source || now.named != self.settled.named {
            // what came of it is in the log
            drop(self.shared.reload("the file's change"));
        } else {
            self.shared.reloads.last_refused.store(false, Relaxed);
        }
        let config = self.shared.generation().config.clone();
        self.settled = Seen {
            text: now.text,
            named: Files::look(config.named_files()),
        };
    }
}

/// Reads the file again whenever it, or a file it names, has changed, for as long as it is polled. A change is taken
/// when two looks in a row have found the same, so that a file half written is not.
pub async fn watch(shared: Arc<Shared>) {
    let Some(file) = shared.reloads.file.clone() else {
        return;
    };
    let mut watcher = Watcher::new(shared.clone(), file);
    loop {
        let rules = shared.generation().config.reload.clone();
        tokio::time::sleep(rules.check).await;
        if !rules.watch {
            watcher.last = None;
            continue;
        }
        let look = move || {
            watcher.look();
            watcher
        };
        watcher = match tokio::task::spawn_blocking(look).await {
            Ok(watcher) => watcher,
            Err(error) => {
                return tracing::error!(%error, "the configuration is not watched any more");
            }
        };
    }
}

#[cfg(test)]
#[path = "reload_tests.rs"]
mod tests;
