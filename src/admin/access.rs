//! Who may change something through the admin listener: reading is free, changing is not.

use std::net::SocketAddr;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, StatusCode};

use crate::config::checked::Admin;
use crate::config::key_hash::KeyHash;
use crate::config::secret::SecretError;
use crate::proxy::keys::bearer_token;

/// The rule of one admin listener.
pub struct Access {
    token: Option<KeyHash>,
    loopback: bool,
}

/// Why a change was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// no token is set, and the listener can be reached from outside
    #[error(
        "changes are closed: the admin listener is not on the loopback and admin.token is not set"
    )]
    Closed,
    /// the token is missing or wrong
    #[error("changes need the bearer token of admin.token")]
    Token,
}

impl Denied {
    /// Status of the answer.
    pub fn status(self) -> StatusCode {
        match self {
            Denied::Closed => StatusCode::FORBIDDEN,
            Denied::Token => StatusCode::UNAUTHORIZED,
        }
    }
}

impl Access {
    /// Reads the token.
    pub fn new(config: &Admin) -> Result<Access, SecretError> {
        let token = config.token.as_ref().map(|token| token.read());
        let token = token.transpose()?;
        Ok(Access {
            token: token.map(|token| KeyHash::of(token.expose().as_bytes())),
            loopback: config.listen.as_ref().is_none_or(is_loopback),
        })
    }

    /// Whether a request by `method` may go on: what changes something needs the token, if there is one, and a
    /// listener that only this machine reaches, if there is none.
    pub fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), Denied> {
        if method.is_safe() {
            return Ok(());
        }
        let Some(token) = &self.token else {
            return if self.loopback {
                Ok(())
            } else {
                Err(Denied::Closed)
            };
        };
        let sent = headers
            .get(AUTHORIZATION)
            .and_then(|value| bearer_token(value.as_bytes()));
        match sent.map(KeyHash::of) {
            Some(sent) if token.matches(&sent) => Ok(()),
            _ => Err(Denied::Token),
        }
    }
}

fn is_loopback(addr: &SocketAddr) -> bool {
    addr.ip().to_canonical().is_loopback()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn access(token: Option<&str>, listen: &str) -> Access {
        Access {
            token: token.map(|token| KeyHash::of(token.as_bytes())),
            loopback: is_loopback(&listen.parse().unwrap()),
        }
    }

    fn sent(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, value.parse().unwrap());
        headers
    }

    #[test]
    fn reading_is_free_and_changing_is_not() {
        let none = HeaderMap::new();
        for listen in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            let access = access(None, listen);
            assert_eq!(access.check(&Method::POST, &none), Ok(()), "{listen}");
        }
        let open = access(None, "0.0.0.0:1");
        assert_eq!(open.check(&Method::GET, &none), Ok(()));
        assert_eq!(open.check(&Method::POST, &none), Err(Denied::Closed));
        for listen in ["0.0.0.0:1", "127.0.0.1:1"] {
            let access = access(Some("token"), listen);
            let check = |headers: &HeaderMap| access.check(&Method::DELETE, headers);
            assert_eq!(access.check(&Method::HEAD, &none), Ok(()));
            assert_eq!(check(&none), Err(Denied::Token));
            let (wrong, right) = (sent("Bearer tokem"), sent("Bearer token"));
            assert_eq!(check(&wrong), Err(Denied::Token));
            assert_eq!(check(&right), Ok(()));
        }
    }
}
