//! TLS around the plain clients and upstreams: certificates made on the spot, and tunnels that put TLS on or take it off.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, client};

use super::{PATIENCE, within};

/// An authority.
pub struct Ca(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Issued {
    /// certificate
    pub cert: String,
    /// key
    pub key: String,
}

impl Ca {
    /// A new one, unknown to all others.
    pub fn new(name: &str) -> Ca {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ca(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Its own certificate in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for names or addresses.
    pub fn issue(&self, names: &[&str]) -> Issued {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(names).unwrap();
        Issued {
            cert: params.signed_by(&key, &self.0).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }

    /// How a client trusts this authority, speaking `alpn`, with a certificate of its own or without.
    pub fn trusted(&self, alpn: &[&str], identity: Option<&Issued>) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots());
        let mut config = match identity {
            Some(identity) => builder
                .with_client_auth_cert(identity.chain(), identity.private())
                .unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    }
}

impl Issued {
    /// Writes both into a folder.
    pub fn write(&self, dir: &Path) -> (PathBuf, PathBuf) {
        let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
        std::fs::write(&cert, &self.cert).unwrap();
        std::fs::write(&key, &self.key).unwrap();
        (cert, key)
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.der()]
    }

    /// The certificate as it is on the wire.
    pub fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.cert.as_bytes()).unwrap()
    }

    fn private(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap()
    }

    /// How a server uses it; with an authority, clients need a certificate of that.
    pub fn serving(&self, clients: Option<&Ca>) -> ServerConfig {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            Some(ca) => builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(Arc::new(ca.roots()), provider)
                    .build()
                    .unwrap(),
            ),
            None => builder.with_no_client_auth(),
        };
        builder
            .with_single_cert(self.chain(), self.private())
            .unwrap()
    }
}

/// Shakes hands as a client that asks for `localhost`.
pub async fn connect(
    addr: SocketAddr,
    config: &ClientConfig,
) -> std::io::Result<client::TlsStream<TcpStream>> {
    let socket = TcpStream::connect(addr).await?;
    socket.set_nodelay(true)?;
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config.clone()));
    within("a TLS handshake", PATIENCE, connector.connect(name, socket)).await
}

/// Carries plain connections over TLS, or the other way round. Dropped, it cuts them all, without a word of TLS.
pub struct Tunnel {
    /// where it listens
    pub addr: SocketAddr,
    /// handshakes that succeeded
    shaken: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Tunnel {
    /// Takes plain text and speaks TLS to `to`.
    pub async fn into_tls(to: SocketAddr, config: ClientConfig) -> Tunnel {
        let config = Arc::new(config);
        Tunnel::start(move |mut plain, shaken| {
            let config = config.clone();
            async move {
                let mut tls = connect(to, &config).await?;
                shaken.fetch_add(1, Relaxed);
                tokio::io::copy_bidirectional(&mut plain, &mut tls).await?;
                Ok(())
            }
        })
        .await
    }

    /// Takes TLS and speaks plain text to `to`.
    pub async fn out_of_tls(to: SocketAddr, config: ServerConfig) -> Tunnel {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Tunnel::start(move |socket, shaken| {
            let acceptor = acceptor.clone();
            async move {
                let mut tls = acceptor.accept(socket).await?;
                shaken.fetch_add(1, Relaxed);
                let mut plain = TcpStream::connect(to).await?;
                plain.set_nodelay(true)?;
                tokio::io::copy_bidirectional(&mut tls, &mut plain).await?;
                Ok(())
            }
        })
        .await
    }

    async fn start<F>(carry: impl Fn(TcpStream, Arc<AtomicUsize>) -> F + Send + 'static) -> Tunnel
    where
        F: Future<Output = std::io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let shaken = Arc::new(AtomicUsize::new(0));
        let counted = shaken.clone();
        let task = tokio::spawn(async move {
            // they end with this task
            let mut carried = tokio::task::JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                socket.set_nodelay(true).unwrap();
                carried.spawn(carry(socket, counted.clone()));
            }
        });
        Tunnel { addr, shaken, task }
    }

    /// Handshakes that succeeded so far.
    pub fn handshakes(&self) -> usize {
        self.shaken.load(Relaxed)
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.task.abort();
    }
}
