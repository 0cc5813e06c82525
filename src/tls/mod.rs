//! TLS on both sides: certificates and keys from files, what is spoken with clients and with instances, and how the
//! listener's certificate is renewed while it runs.

mod files;
pub mod inbound;
pub mod outbound;
pub mod watch;

pub use files::TlsError;

use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};

/// The one source of ciphers, so that nothing depends on what a process has installed as its default.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
