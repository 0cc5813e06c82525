//! The program's own log: one line an event on standard error.
//!
//! The environment variable `EVENKEEL_LOG` goes before `log.level` of the configuration.

use std::sync::OnceLock;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

const VARIABLE: &str = "EVENKEEL_LOG";

static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Start to log; once, at the start of the process.
pub fn start() {
    let filter = EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    let (filter, handle) = reload::Layer::new(filter);
    let lines = fmt::layer().with_writer(std::io::stderr).with_target(false);
    if tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init()
        .is_ok()
    {
        let _ = FILTER.set(handle);
    }
}

/// Use the level or filter of the configuration, unless the environment sets one.
pub fn set_level(level: &str) {
    if std::env::var_os(VARIABLE).is_some() {
        return;
    }
    if let (Some(handle), Ok(filter)) = (FILTER.get(), EnvFilter::try_new(level)) {
        let _ = handle.reload(filter);
    }
}
