//! Which credentials go on to the instances: the pool's own, the client's, or none.

use http::header::{AUTHORIZATION, HeaderMap};
use http::{HeaderName, HeaderValue};

use crate::config::checked::{Config, Pool};
use crate::config::secret::SecretError;

/// How Anthropic's clients send a key.
pub const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// What becomes of a client's `Authorization` and `x-api-key` on the way to a pool.
pub enum Credentials {
    /// they go on
    Pass,
    /// they end here
    Withhold,
    /// the pool's own go in their place
    Own {
        /// `Authorization`
        bearer: HeaderValue,
        /// `x-api-key`, where the client used that
        api_key: HeaderValue,
    },
}

/// A pool's key cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("pool `{pool}`: {source} (engine_key)")]
pub struct NoEngineKey {
    /// pool
    pub pool: String,
    /// reason
    pub source: SecretError,
}

impl Credentials {
    /// Reads those of a pool.
    pub fn of_pool(config: &Config, pool: &Pool) -> Result<Credentials, NoEngineKey> {
        let Some(source) = &pool.engine_key else {
            return Ok(match config.server.forward_client_credentials {
                true => Credentials::Pass,
                false => Credentials::Withhold,
            });
        };
        let key = source.read().map_err(|source| NoEngineKey {
            pool: pool.name.to_string(),
            source,
        })?;
        // what was read is printable, so both are header values
        let own = key.header("Bearer ").zip(key.header(""));
        Ok(own.map_or(Credentials::Withhold, |(bearer, api_key)| {
            Credentials::Own { bearer, api_key }
        }))
    }

    /// Puts them into a request for an instance.
    pub fn apply(&self, headers: &mut HeaderMap) {
        if matches!(self, Credentials::Pass) {
            return;
        }
        headers.remove(AUTHORIZATION);
        let had_api_key = headers.remove(API_KEY).is_some();
        if let Credentials::Own { bearer, api_key } = self {
            headers.insert(AUTHORIZATION, bearer.clone());
            if had_api_key {
                headers.insert(API_KEY, api_key.clone());
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn client() -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.append(AUTHORIZATION, "Bearer theirs".parse().unwrap());
        headers.append(AUTHORIZATION, "Basic theirs".parse().unwrap());
        headers.insert(API_KEY, "theirs".parse().unwrap());
        headers.insert("x-other", "1".parse().unwrap());
        headers
    }

    #[test]
    fn every_line_of_the_clients_goes_and_the_pools_own_comes() {
        let mut headers = client();
        Credentials::Pass.apply(&mut headers);
        assert_eq!(headers, client());

        Credentials::Withhold.apply(&mut headers);
        assert_eq!(headers.len(), 1);

        let own = Credentials::Own {
            bearer: "Bearer ours".parse().unwrap(),
            api_key: "ours".parse().unwrap(),
        };
        own.apply(&mut headers);
        assert_eq!(headers[AUTHORIZATION], "Bearer ours");
        assert!(!headers.contains_key(API_KEY));
        let mut headers = client();
        own.apply(&mut headers);
        assert_eq!(headers.get_all(AUTHORIZATION).iter().count(), 1);
        assert_eq!(headers[API_KEY], "ours");
    }
}
