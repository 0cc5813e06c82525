//! Looking at files again and again: certificates are renewed by others, while we serve.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use super::files::TlsError;

/// What tells one state of some files from another; symbolic links are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files(Vec<Option<(u64, i64, i64, u64)>>);

impl Files {
    /// As they are now.
    pub fn look<'a>(paths: impl Iterator<Item = &'a Path>) -> Files {
        let state = |path| {
            let file = std::fs::metadata(path).ok()?;
            Some((file.ino(), file.mtime(), file.mtime_nsec(), file.len()))
        };
        Files(paths.map(state).collect())
    }
}

/// Calls `renew` again and again, after `pause` each time, off the runtime's threads, and logs what came of it: `None`
/// for no change. A reason for failure is logged once, not at every try.
pub async fn repeat(
    what: &'static str,
    pause: impl Fn() -> Duration,
    renew: impl Fn() -> Option<Result<(), TlsError>> + Send + Sync + 'static,
) {
    let renew = std::sync::Arc::new(renew);
    let mut told = None;
    loop {
        tokio::time::sleep(pause()).await;
        let renew = renew.clone();
        let Ok(renewed) = tokio::task::spawn_blocking(move || renew()).await else {
            continue;
        };
        told = match renewed {
            None => told,
            Some(Ok(())) => {
                tracing::info!("{what}: the new certificates are in use");
                None
            }
            Some(Err(error)) => {
                let reason = error.to_string();
                if told.as_ref() != Some(&reason) {
                    tracing::warn!("{what}: the old certificates stay in use: {reason}");
                }
                Some(reason)
            }
        };
    }
}
