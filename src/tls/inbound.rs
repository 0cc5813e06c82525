//! TLS with clients: the listener's certificate, its client authorities, and how both are renewed.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

use super::files::{NamedFile, TlsError};
use super::provider;
use super::watch::Files;
use crate::config::checked::ServerTls;

/// The table in the configuration.
pub const KEY: &str = "server.tls";
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// The listener's TLS. What is in use changes as a whole or not at all.
pub struct Inbound {
    config: ServerTls,
    http2: bool,
    current: RwLock<Arc<ServerConfig>>,
    files: parking_lot::Mutex<Files>,
}

impl Inbound {
    /// Reads all files; with `http2`, that is offered too.
    pub fn new(config: &ServerTls, http2: bool) -> Result<Inbound, TlsError> {
        // looked at before they are read: what changes in between is seen as a change
        let files = Files::look(paths(config));
        Ok(Inbound {
            current: RwLock::new(Arc::new(load(config, http2)?)),
            files: parking_lot::Mutex::new(files),
            config: config.clone(),
            http2,
        })
    }

    /// Shakes hands with a client; tells whether it speaks HTTP/2.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        socket: S,
    ) -> io::Result<(TlsStream<S>, bool)> {
        let current = self.current.read().clone();
        let stream = TlsAcceptor::from(current).accept(socket).await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
        Ok((stream, is_http2))
    }

    /// Whether it is what a configuration asks for, and its files are as they were when they were read.
    pub fn is(&self, config: &ServerTls, http2: bool) -> bool {
        let files = Files::look(paths(config));
        self.config == *config && self.http2 == http2 && *self.files.lock() == files
    }

    /// Time between two looks at the files.
    pub fn reload_check(&self) -> Duration {
        self.config.reload_check
    }

    /// Takes new files into use if they have changed. Open connections keep what they began with.
    pub fn renew(&self) -> Option<Result<(), TlsError>> {
        let mut files = self.files.lock();
        let news = Files::look(paths(&self.config));
        if *files == news {
            return None;
        }
        let loaded = load(&self.config, self.http2);
        Some(loaded.map(|loaded| {
            *self.current.write() = Arc::new(loaded);
            // not after a failure: half of a change is looked at again
            *files = news;
        }))
    }
}

fn paths(config: &ServerTls) -> impl Iterator<Item = &Path> {
    let both = [config.cert.as_path(), config.key.as_path()];
    both.into_iter().chain(config.client_ca.as_deref())
}

fn load(config: &ServerTls, http2: bool) -> Result<ServerConfig, TlsError> {
    let file = |name: &str, path| NamedFile {
        key: format!("{KEY}.{name}"),
        path,
    };
    let chain = file("cert", &config.cert).certificates()?;
    let key = file("key", &config.key).private_key()?;
    let authorities = match &config.client_ca {
        Some(path) => Some(file("client_ca", path).authorities()?),
        None => None,
    };
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::unfit(KEY, error))?;
    let builder = match authorities {
        Some(roots) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
            builder.with_client_cert_verifier(
                verifier
                    .build()
                    .map_err(|error| TlsError::unfit(KEY, error))?,
            )
        }
        None => builder.with_no_client_auth(),
    };
    let loaded = builder.with_single_cert(chain, key);
    let mut loaded = loaded.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            TlsError::unfit(KEY, "the key is not that of the certificate")
        }
        error => TlsError::unfit(KEY, error),
    })?;
    if http2 {
        loaded.alpn_protocols.push(HTTP2.to_vec());
    }
    loaded.alpn_protocols.push(HTTP1.to_vec());
    Ok(loaded)
}
