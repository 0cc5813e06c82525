//! How a pool's instances are spoken to: TLS and credentials. What is new of it holds for what is sent from then on.

use std::sync::Arc;

use super::credentials::{Credentials, NoEngineKey};
use crate::config::checked::{Config, Pool};
use crate::tls::TlsError;
use crate::tls::outbound::Outbound;

/// TLS and credentials of one pool.
#[derive(Clone)]
pub struct Link {
    /// TLS, if an instance speaks it
    pub tls: Option<Arc<Outbound>>,
    /// what goes in place of the client's credentials
    pub credentials: Arc<Credentials>,
}

/// Why a pool's instances could not be spoken to.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// certificates and keys
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// the credential
    #[error(transparent)]
    EngineKey(#[from] NoEngineKey),
}

impl Link {
    /// Reads the files that the `index`-th pool names; TLS that is the same as `before` is kept, sessions and all.
    pub fn read(
        config: &Config,
        pool: &Pool,
        index: usize,
        before: Option<&Link>,
    ) -> Result<Link, LinkError> {
        let before = before.and_then(|link| link.tls.as_ref());
        Ok(Link {
            tls: Outbound::of_pool(pool, index, before)?,
            credentials: Arc::new(Credentials::of_pool(config, pool)?),
        })
    }
}
