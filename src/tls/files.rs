//! Certificates and keys in PEM files; an error names the file, what was looked for, and what is wrong.

use std::path::{Path, PathBuf};

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why certificates and keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// the file cannot be read
    #[error("cannot read {} ({key}): {source}", path.display())]
    Read {
        /// key in the configuration
        key: String,
        /// file
        path: PathBuf,
        /// reason
        source: std::io::Error,
    },
    /// the file does not hold what it should
    #[error("{} ({key}) is no PEM file with {expected}: {reason}", path.display())]
    Content {
        /// key in the configuration
        key: String,
        /// file
        path: PathBuf,
        /// what was looked for
        expected: &'static str,
        /// what is wrong
        reason: String,
    },
    /// the pieces do not fit each other, or are of a kind that is not spoken
    #[error("{key} cannot be used: {reason}")]
    Unfit {
        /// table in the configuration
        key: String,
        /// reason
        reason: String,
    },
}

impl TlsError {
    /// The table `key` cannot be used as a whole.
    pub fn unfit(key: &str, reason: impl ToString) -> TlsError {
        TlsError::Unfit {
            key: key.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// A file named in the configuration.
#[derive(Debug, Clone)]
pub struct NamedFile<'a> {
    /// key, such as `server.tls.cert`
    pub key: String,
    /// path
    pub path: &'a Path,
}

impl NamedFile<'_> {
    fn read(&self) -> Result<Vec<u8>, TlsError> {
        std::fs::read(self.path).map_err(|source| TlsError::Read {
            key: self.key.clone(),
            path: self.path.to_owned(),
            source,
        })
    }

    fn unfit(&self, expected: &'static str, reason: impl ToString) -> TlsError {
        TlsError::Content {
            key: self.key.clone(),
            path: self.path.to_owned(),
            expected,
            reason: reason.to_string(),
        }
    }

    /// A chain of certificates, the own one first.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let expected = "certificates";
        let text = self.read()?;
        let read: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
        match read {
            Ok(chain) if chain.is_empty() => Err(self.unfit(expected, "there is none")),
            Ok(chain) => Ok(chain),
            Err(error) => Err(self.unfit(expected, error)),
        }
    }

    /// A private key: PKCS #8, PKCS #1 or SEC 1, not encrypted.
    pub fn private_key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        let key = PrivateKeyDer::from_pem_slice(&self.read()?);
        key.map_err(|error| match error {
            pem::Error::NoItemsFound => self.unfit("a private key", "there is none"),
            // its text could show what is in the file
            _ => self.unfit("a private key", "it cannot be read as one"),
        })
    }

    /// Authorities that certificates are checked against.
    pub fn authorities(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            roots
                .add(certificate)
                .map_err(|error| self.unfit("certificates of authorities", error))?;
        }
        Ok(roots)
    }
}
