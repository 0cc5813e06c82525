//! Accepting clients and handing each socket to the core with the fewest live connections.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::core::Core;
use super::refusal::Refusal;

/// Where accepted sockets go.
pub struct Worker {
    /// the core
    pub core: Arc<Core>,
    /// its inbox; bounded by limits.max_connections
    pub inbox: mpsc::UnboundedSender<std::net::TcpStream>,
}

/// Descriptors kept for all that is no stream: listeners, files, checks.
const OTHER_DESCRIPTORS: u64 = 64;

/// As many connections as are wanted, or as the limit of descriptors allows: a stream takes two.
pub fn most_connections(wanted: usize) -> usize {
    let Ok((descriptors, _)) = rlimit::Resource::NOFILE.get() else {
        return wanted;
    };
    let most = (descriptors.saturating_sub(OTHER_DESCRIPTORS) / 2).max(1);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    if most < wanted {
        tracing::warn!(
            "limits.max_connections is {wanted}, but {descriptors} file descriptors allow {most}; raise the limit with \
             `ulimit -n` or LimitNOFILE"
        );
    }
    wanted.min(most)
}

/// Accepts for as long as it is polled: who comes while the server stops is told so.
pub async fn accept(listener: TcpListener, workers: Vec<Worker>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => dispatch(stream, &workers),
            Err(error) => {
                // out of file descriptors, most likely: wait for some to come back
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn dispatch(stream: TcpStream, workers: &[Worker]) {
    let Some(worker) = workers
        .iter()
        .min_by_key(|worker| worker.core.live.load(Relaxed))
    else {
        return;
    };
    let shared = &worker.core.shared;
    if shared.connections.load(Relaxed) >= shared.max_connections.load(Relaxed) {
        shared.refused_connections.fetch_add(1, Relaxed);
        // whom TLS is expected of would not understand
        if shared.current.load().tls.is_none() {
            tokio::spawn(refuse(stream));
        }
        return;
    }
    match stream.into_std() {
        Ok(stream) => drop(worker.inbox.send(stream)),
        Err(error) => tracing::warn!(%error, "could not hand a connection over"),
    }
}

async fn refuse(mut stream: TcpStream) {
    let answer = Refusal::TooManyConnections.last_words();
    let told = tokio::time::timeout(Duration::from_secs(1), stream.write_all(&answer)).await;
    if let Ok(Err(error)) = told {
        tracing::debug!(%error, "refused client was gone");
    }
}
