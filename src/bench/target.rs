//! Where requests go: the base URL, an address that answers, and the paths spoken.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::BenchError;
use super::options::{Backend, BenchArgs};
use crate::load::request::AskedApi;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
/// Longest wait for a connection before the run.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A server that took a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// its address
    pub addr: SocketAddr,
    /// value of the `host` header
    pub authority: String,
    /// what comes before the API's paths
    pub base_path: String,
    /// which API is asked
    pub api: AskedApi,
    /// the API's path
    pub endpoint: String,
}

impl Target {
    /// Reads the options and finds an address that takes connections.
    pub fn find(args: &BenchArgs) -> Result<Target, BenchError> {
        let (api, endpoint) = endpoint(args)?;
        let text = match &args.base_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!("http://{}:{}", bracketed(&args.host), args.port),
        };
        let url = crate::config::url::parse(&text).map_err(|(wrong, right)| {
            BenchError::Options(format!("the base URL is not usable: {wrong}; {right}"))
        })?;
        if url.tls {
            return Err(BenchError::Options(format!(
                "`{text}`: bench speaks http only; put `evenkeel serve` before a server that wants https (its instances may be https:// URLs)"
            )));
        }
        Ok(Target {
            addr: answering(&url.host, url.port, &text)?,
            authority: url.authority,
            base_path: url.base_path,
            api,
            endpoint,
        })
    }
}

/// The API asked for, and its path.
pub(super) fn endpoint(args: &BenchArgs) -> Result<(AskedApi, String), BenchError> {
    let default = match args.backend {
        Backend::Openai | Backend::Vllm => COMPLETIONS,
        Backend::OpenaiChat => CHAT,
    };
    let endpoint = args.endpoint.as_deref().unwrap_or(default);
    let api = if endpoint.ends_with("/chat/completions") {
        AskedApi::Chat
    } else if endpoint.ends_with("/completions") {
        AskedApi::Completions
    } else {
        return Err(BenchError::Options(format!(
            "--endpoint `{endpoint}` is not spoken: give {COMPLETIONS} or {CHAT}"
        )));
    };
    if http::uri::PathAndQuery::try_from(endpoint).is_err() || !endpoint.starts_with('/') {
        return Err(BenchError::Options(format!(
            "--endpoint `{endpoint}` is no path: give one like {CHAT}"
        )));
    }
    Ok((api, endpoint.to_owned()))
}

/// An IPv6 address as it stands in a URL.
fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') {
        return format!("[{host}]");
    }
    host.to_owned()
}

/// The first of the host's addresses that takes a connection: `localhost` has two, and servers listen on one.
fn answering(host: &str, port: u16, target: &str) -> Result<SocketAddr, BenchError> {
    let failed = |why: String| BenchError::Target {
        target: target.to_owned(),
        why,
    };
    let addrs = (host, port)
        .to_socket_addrs()
        .map_err(|error| failed(format!("its name is not resolved: {error}")))?;
    let mut last = "its name has no address".to_owned();
    for addr in addrs {
        match TcpStream::connect_timeout(&addr, CONNECT_LIMIT) {
            Ok(_) => return Ok(addr),
            Err(error) => last = format!("{addr} takes no connection: {error}"),
        }
    }
    Err(failed(last))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn find(options: &[&str]) -> Result<Target, BenchError> {
        let line = Line::try_parse_from([&["bench"], options].concat()).unwrap();
        Target::find(&line.bench)
    }

    #[test]
    fn an_address_that_answers_is_found_and_the_backend_sets_the_endpoint() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let port = addr.port().to_string();
        let target = find(&["--host", "localhost", "--port", &port]).unwrap();
        assert_eq!((target.addr, target.api), (addr, AskedApi::Completions));
        let url = format!("http://{addr}/base/");
        let target = find(&["--base-url", &url, "--backend", "openai-chat"]).unwrap();
        assert_eq!(target.base_path, "/base");
        assert_eq!(
            (target.api, target.endpoint.as_str()),
            (AskedApi::Chat, CHAT)
        );
        assert_eq!(target.authority, addr.to_string());
    }

    #[test]
    fn what_cannot_be_sent_to_is_said_with_what_would_be_right() {
        for (options, word) in [
            (&["--base-url", "https://x"][..], "http only"),
            (&["--base-url", "ftp://x"], "ftp"),
            (&["--base-url", "127.0.0.1:9"], "http://127.0.0.1:9"),
            (&["--endpoint", "/v1/embeddings"], CHAT),
            (&["--endpoint", "v1/completions"], "no path"),
            (&["--base-url", "http://127.0.0.1:1"], "takes no connection"),
        ] {
            let said = find(options).unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        }
    }
}
