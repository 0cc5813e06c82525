//! One generation of all that a reload may change. A request takes the newest when it begins and keeps it to its end;
//! what is the same in the next generation is carried over, with all that it has counted.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::keys::{Entry, Keyring};
use super::receive;
use crate::admin::access::Access;
use crate::config::checked::Config;
use crate::config::secret::SecretError;
use crate::fleet::change::Changes;
use crate::fleet::{Fleet, FleetError, Plan};
use crate::tls::TlsError;
use crate::tls::inbound::Inbound;

/// What holds at one time.
pub struct Generation {
    /// 1 at the start, one more with each change
    pub number: u64,
    /// configuration
    pub config: Arc<Config>,
    /// pools and their schedulers
    pub fleet: Fleet,
    /// TLS with clients, if the listener speaks it
    pub tls: Option<Arc<Inbound>>,
    /// clients' API keys; without them everybody may come in
    pub keys: Option<Keyring>,
    /// who may change something through the admin listener
    pub admin_access: Access,
    /// request bytes that may be held
    pub budget: Arc<Semaphore>,
}

/// A configuration whose text is right names something that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NotUsable {
    /// of a pool
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// certificates and keys of the listener
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// the admin token
    #[error("{0} (admin.token)")]
    AdminToken(SecretError),
}

/// The next generation, with everything read that could fail. Nothing has changed yet.
pub struct Prepared {
    number: u64,
    config: Arc<Config>,
    plan: Plan,
    tls: Option<Arc<Inbound>>,
    keys: Option<Keyring>,
    admin_access: Access,
    budget: Arc<Semaphore>,
}

impl Prepared {
    /// Reads what `config` names; what is as in `before` is taken from there.
    pub fn of(config: Arc<Config>, before: Option<&Generation>) -> Result<Prepared, NotUsable> {
        let keys = config.keys.as_deref();
        let ring = before.and_then(|before| before.keys.as_ref());
        Ok(Prepared {
            number: before.map_or(1, |before| before.number + 1),
            plan: Plan::of(&config, before.map(|before| &before.fleet))?,
            tls: inbound(&config, before)?,
            keys: keys.map(|keys| Keyring::new(keys, ring)),
            admin_access: Access::new(&config.admin).map_err(NotUsable::AdminToken)?,
            budget: budget(&config, before),
            config,
        })
    }

    /// Begins it: the fleet is changed. To be put in place at once.
    pub fn begin(self) -> (Generation, Changes) {
        let (fleet, changes) = self.plan.carry_out(&self.config);
        let generation = Generation {
            number: self.number,
            config: self.config,
            fleet,
            tls: self.tls,
            keys: self.keys,
            admin_access: self.admin_access,
            budget: self.budget,
        };
        (generation, changes)
    }
}

impl Generation {
    /// Lets a request in by its key, or says why not.
    pub fn enter(&self, headers: &http::HeaderMap) -> Entry {
        match &self.keys {
            Some(keys) => keys.enter(headers),
            None => Entry::open(),
        }
    }
}

fn inbound(config: &Config, before: Option<&Generation>) -> Result<Option<Arc<Inbound>>, TlsError> {
    let Some(tls) = &config.server.tls else {
        return Ok(None);
    };
    let http2 = config.server.http2;
    let known = before.and_then(|before| before.tls.as_ref());
    match known.filter(|known| known.is(tls, http2)) {
        Some(known) => Ok(Some(known.clone())),
        None => Ok(Some(Arc::new(Inbound::new(tls, http2)?))),
    }
}

/// What is held already counts against the new bound only where the bound is the same.
fn budget(config: &Config, before: Option<&Generation>) -> Arc<Semaphore> {
    let same =
        |before: &&Generation| before.config.limits.buffered_bytes == config.limits.buffered_bytes;
    match before.filter(same) {
        Some(before) => before.budget.clone(),
        None => receive::buffer_budget(&config.limits),
    }
}
