//! TLS with instances: whom they must prove to be, and what we show them.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use super::files::{NamedFile, TlsError};
use super::provider;
use crate::config::checked::{Pool, PoolTls};

/// The TLS of one pool's instances. Sessions are resumed over all cores.
pub struct Outbound {
    connector: TlsConnector,
    server_name: Option<ServerName<'static>>,
}

impl Outbound {
    /// One for each pool that has an `https://` instance, in the order of the configuration.
    pub fn of_pools(pools: &[Pool]) -> Result<Vec<Option<Outbound>>, TlsError> {
        let of_pool = |(index, pool): (usize, &Pool)| {
            let wanted = pool.instances.iter().any(|instance| instance.url.tls);
            let key = format!("pools[{index}].tls");
            wanted.then(|| Outbound::new(&key, &pool.tls)).transpose()
        };
        pools.iter().enumerate().map(of_pool).collect()
    }

    fn new(key: &str, config: &PoolTls) -> Result<Outbound, TlsError> {
        Ok(Outbound {
            connector: TlsConnector::from(Arc::new(load(key, config)?)),
            server_name: config.server_name.clone(),
        })
    }

    /// Shakes hands with the instance at `host`.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        host: &str,
        socket: S,
    ) -> io::Result<TlsStream<S>> {
        let name = match &self.server_name {
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
