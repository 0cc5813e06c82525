//! TLS with instances: whom they must prove to be, and what we show them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use super::files::{NamedFile, TlsError};
use super::provider;
use super::watch::Files;
use crate::config::checked::{Pool, PoolTls};

/// The TLS of one pool's instances. Sessions are resumed over all cores.
pub struct Outbound {
    /// a number no other one of this process has or had; connections made with one are not used with another
    pub serial: u64,
    connector: TlsConnector,
    config: PoolTls,
    files: Files,
}

static NEXT_SERIAL: AtomicU64 = AtomicU64::new(1);

impl Outbound {
    /// For a pool that has an `https://` instance, the `index`-th of the configuration. `before` is kept if it is the
    /// same and none of its files has changed.
    pub fn of_pool(
        pool: &Pool,
        index: usize,
        before: Option<&Arc<Outbound>>,
    ) -> Result<Option<Arc<Outbound>>, TlsError> {
        if !pool.instances.iter().any(|instance| instance.url.tls) {
            return Ok(None);
        }
        // looked at before they are read: what changes in between is seen as a change
        let files = Files::look(pool.tls.files());
        let same = |one: &&Arc<Outbound>| one.config == pool.tls && one.files == files;
        if let Some(before) = before.filter(same) {
            return Ok(Some(before.clone()));
        }
        let key = format!("pools[{index}].tls");
        Ok(Some(Arc::new(Outbound {
            serial: NEXT_SERIAL.fetch_add(1, Relaxed),
            connector: TlsConnector::from(Arc::new(load(&key, &pool.tls)?)),
            config: pool.tls.clone(),
            files,
        })))
    }

    /// Shakes hands with the instance at `host`.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        host: &str,
        socket: S,
    ) -> io::Result<TlsStream<S>> {
        let name = match &self.config.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
        };
        self.connector.connect(name, socket).await
    }
}

fn load(key: &str, config: &PoolTls) -> Result<ClientConfig, TlsError> {
    let file = |name: &str, path| NamedFile {
        key: format!("{key}.{name}"),
        path,
    };
    let unfit = |error: rustls::Error| TlsError::unfit(key, error);
    let roots = match &config.ca {
        Some(path) => file("ca", path).authorities()?,
        None => RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(unfit)?
        .with_root_certificates(roots);
    let mut loaded = match &config.identity {
        Some(identity) => {
            let chain = file("cert", &identity.cert).certificates()?;
            let private = file("key", &identity.key).private_key()?;
            builder
                .with_client_auth_cert(chain, private)
                .map_err(unfit)?
        }
        None => builder.with_no_client_auth(),
    };
    loaded.alpn_protocols.push(b"http/1.1".to_vec());
    Ok(loaded)
}
