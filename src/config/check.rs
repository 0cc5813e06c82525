//! From the file as written to the configuration as used: every rule that a type cannot hold.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeTable;

use super::checked::*;
use super::error::Fault;
use super::place::{Step, span_of};
use super::units::{ByteSize, memory_bytes};
use super::{keys, pools, raw};

/// Collects faults while the configuration is built.
pub struct Checker<'d> {
    document: &'d Spanned<DeTable<'d>>,
    /// everything wrong so far
    pub faults: Vec<Fault>,
    /// what is allowed but probably not meant
    pub warnings: Vec<String>,
}

/// Build the checked configuration, or say everything that is wrong.
pub fn check(
    file: raw::File,
    document: &Spanned<DeTable<'_>>,
    source: &str,
) -> Result<Config, Vec<Fault>> {
    let mut checker = Checker {
        document,
        faults: Vec::new(),
        warnings: Vec::new(),
    };
    let config = checker.config(file, source);
    let mut faults = checker.faults;
    match config {
        Some(config) if faults.is_empty() => Ok(config),
        _ => {
            faults.sort_by_key(|fault| fault.span.start);
            Err(faults)
        }
    }
}

impl Checker<'_> {
    /// Note a fault at the value of `path`.
    pub fn fault(
        &mut self,
        path: &[Step<'_>],
        message: String,
        label: &str,
        help: impl Into<Option<String>>,
    ) {
        let span = span_of(self.document, path);
        self.faults.push(Fault {
            span,
            message,
            quotes: true,
            label: label.into(),
            help: help.into(),
        });
    }

    fn config(&mut self, file: raw::File, source: &str) -> Option<Config> {
        let keyless = file.keys.is_none();
        let server = self.server(file.server, keyless);
        let admin = self.admin(file.admin);
        if let Some(server) = &server {
            self.port_clash(server.listen, admin.listen);
        }
        let limits = self.limits(file.limits);
        let timeouts = self.timeouts(file.timeouts);
        let retries = self.retries(file.retries);
        let reload = Reload {
            watch: file.reload.watch,
            check: self.seconds("reload", "check_s", file.reload.check_s),
        };
        let measure = self.measure(file.measure);
        let records = file.records.map(|records| self.records(records));
        let log = self.log(file.log);
        let keys = keys::check(self, file.keys);
        let (pools, models) = pools::check(self, file.pools);
        Some(Config {
            server: server?,
            admin,
            client: Client {
                half_close: file.client.half_close,
            },
            limits,
            timeouts,
            retries,
            reload,
            measure,
            records,
            log,
            keys,
            pools,
            models,
            source: source.to_owned(),
            seed: file.seed.unwrap_or_else(rand::random),
            warnings: std::mem::take(&mut self.warnings),
        })
    }

    fn server(&mut self, server: raw::Server, keyless: bool) -> Option<Server> {
        for (index, entry) in server.passthrough.iter().enumerate() {
            self.passthrough(entry, index);
        }
        if server
            .workers
            .is_some_and(|workers| !(1..=1024).contains(&workers))
        {
            let help = "leave it out for one worker a core".to_owned();
            self.fault(
                &[Step::Key("server"), Step::Key("workers")],
                "`server.workers` must be 1 to 1024".into(),
                "out of range",
                help,
            );
        }
        let tls = server.tls.map(|tls| self.server_tls(tls));
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let headers = server.response_headers;
        Some(Server {
            listen: self.address("server", &server.listen)?,
            workers: server.workers.unwrap_or_else(cores),
            runtime: server.runtime,
            passthrough: server.passthrough,
            allow_endpoint_header: server.allow_endpoint_header,
            response_headers: ResponseHeaders {
                request_id: headers.request_id,
                instance: headers.instance,
                server_timing: headers.server_timing,
            },
            http2: server.http2,
            tls,
            forward_client_credentials: server.forward_client_credentials.unwrap_or(keyless),
        })
    }

    fn server_tls(&mut self, tls: raw::ServerTls) -> ServerTls {
        let path = ["server", "tls", "reload_check_s"].map(Step::Key);
        let name = "server.tls.reload_check_s";
        ServerTls {
            cert: tls.cert,
            key: tls.key,
            client_ca: tls.client_ca,
            reload_check: self.seconds_at(&path, name, tls.reload_check_s),
        }
    }

    fn passthrough(&mut self, entry: &str, index: usize) {
        let stem = entry.strip_suffix("/*").unwrap_or(entry);
        let plain = entry.starts_with('/')
            && !stem.contains(['*', '%', '?', '#', '\\', ';'])
            && !stem.contains("..");
        if !plain || stem.contains("//") {
            self.fault(
                &[
                    Step::Key("server"),
                    Step::Key("passthrough"),
                    Step::Index(index),
                ],
                format!("`server.passthrough` cannot list \"{entry}\""),
                "not a plain path",
                "write a path such as \"/v1/files\", or \"/v1/files/*\" for all below it"
                    .to_owned(),
            );
        }
    }

    fn admin(&mut self, admin: raw::Admin) -> Admin {
        let at = [Step::Key("admin")];
        Admin {
            token: keys::secret(self, &at, "admin.token", admin.token.as_deref()),
            listen: admin
                .listen
                .and_then(|listen| self.address("admin", &listen)),
        }
    }

    fn address(&mut self, section: &str, text: &str) -> Option<SocketAddr> {
        if let Ok(address) = text.parse() {
            return Some(address);
        }
        let help = match text.rsplit_once(':') {
            Some(("", port)) => format!(
                "write \"0.0.0.0:{port}\" for all interfaces, \"127.0.0.1:{port}\" for this machine"
            ),
            Some(("localhost", port)) => format!("write \"127.0.0.1:{port}\""),
            _ if text.parse::<u16>().is_ok() => {
                format!("write \"0.0.0.0:{text}\" or \"127.0.0.1:{text}\"")
            }
            _ => "write an IP address and a port, such as \"0.0.0.0:8080\" or \"[::]:8080\""
                .to_owned(),
        };
        self.fault(
            &[Step::Key(section), Step::Key("listen")],
            format!("`{section}.listen` is no address to listen on"),
            "not an IP address and port",
            help,
        );
        None
    }

    fn port_clash(&mut self, server: SocketAddr, admin: Option<SocketAddr>) {
        let Some(admin) = admin else { return };
        let same_host = server.ip() == admin.ip()
            || server.ip().is_unspecified()
            || admin.ip().is_unspecified();
        if same_host && server.port() == admin.port() && server.port() != 0 {
            self.fault(
                &[Step::Key("admin"), Step::Key("listen")],
                "`admin.listen` has the port of `server.listen`".into(),
                "already taken",
                "give the admin listener a port of its own, so that it can stay closed from outside".to_owned(),
            );
        }
    }

    fn limits(&mut self, limits: raw::Limits) -> Limits {
        let section = "limits";
        let ByteSize(hold) = self.at_least(section, "hold_bytes", limits.hold_bytes, 1 << 10);
        let ByteSize(body) = self.at_least(section, "body_bytes", limits.body_bytes, hold);
        let ByteSize(head) = self.at_least(section, "head_bytes", limits.head_bytes, 8 << 10);
        // an unknown amount of memory is taken for a small machine's
        let quarter = || ByteSize((memory_bytes().unwrap_or(4 << 30) / 4).max(hold));
        let buffered = limits.buffered_bytes.unwrap_or_else(quarter);
        let ByteSize(buffered) = self.at_least(section, "buffered_bytes", buffered, hold);
        Limits {
            hold_bytes: usize::try_from(hold).unwrap_or(usize::MAX),
            body_bytes: body,
            buffered_bytes: buffered,
            buffered_wait: self.seconds(section, "buffered_wait_s", limits.buffered_wait_s),
            max_connections: self.count(section, "max_connections", limits.max_connections, 1),
            head_bytes: usize::try_from(head).unwrap_or(usize::MAX),
            max_series: self.count(section, "max_series", limits.max_series, 16),
        }
    }

    fn retries(&mut self, raw: raw::Retries) -> Retries {
        let mut fault = |key, rule: &str, help: &str| {
            let message = format!("`retries.{key}` {rule}");
            let place = [Step::Key("retries"), Step::Key(key)];
            self.fault(&place, message, "out of range", help.to_owned());
        };
        if !(0.0..=1.0).contains(&raw.budget_share) {
            let help = "write a share of the open requests; 0 leaves budget_least alone";
            fault("budget_share", "must be 0 to 1", help);
        }
        if raw.instances_max == 0 {
            fault("instances_max", "must be at least 1", "1 is no second try");
        }
        Retries {
            instances_max: raw.instances_max,
            busy: raw.busy,
            resend: raw.resend,
            budget_share: raw.budget_share,
            budget_least: raw.budget_least,
        }
    }

    fn timeouts(&mut self, timeouts: raw::Timeouts) -> Timeouts {
        let section = "timeouts";
        if timeouts.upstream_idle_s >= 5.0 {
            self.warnings.push(
                "timeouts.upstream_idle_s is 5 or more: engines close idle connections after 5 s, and a request may \
                 meet one that is closing"
                    .into(),
            );
        }
        Timeouts {
            connect: self.seconds(section, "connect_s", timeouts.connect_s),
            headers: self.seconds(section, "headers_s", timeouts.headers_s),
            first_event: self.seconds(section, "first_event_s", timeouts.first_event_s),
            silence: self.seconds(section, "silence_s", timeouts.silence_s),
            client_header: self.seconds(section, "client_header_s", timeouts.client_header_s),
            client_body: self.seconds(section, "client_body_s", timeouts.client_body_s),
            client_write: self.seconds(section, "client_write_s", timeouts.client_write_s),
            client_idle: self.seconds(section, "client_idle_s", timeouts.client_idle_s),
            upstream_idle: self.seconds(section, "upstream_idle_s", timeouts.upstream_idle_s),
            drain_notice: match timeouts.drain_notice_s {
                0.0 => Duration::ZERO,
                notice_s => self.seconds(section, "drain_notice_s", notice_s),
            },
            drain: self.seconds(section, "drain_s", timeouts.drain_s),
        }
    }

    fn measure(&mut self, measure: raw::Measure) -> Measure {
        let section = "measure";
        let scan = self.at_least(section, "scan_cap_bytes", measure.scan_cap_bytes, 1 << 10);
        let chunks = self.at_least(section, "chunks_cap_bytes", measure.chunks_cap_bytes, 0);
        Measure {
            enabled: measure.enabled,
            usage: measure.usage,
            arrival: measure.arrival,
            scan_cap_bytes: usize::try_from(scan.0).unwrap_or(usize::MAX),
            image_tokens: measure.image_tokens,
            chunks_cap_bytes: usize::try_from(chunks.0).unwrap_or(usize::MAX),
            default_output_tokens: measure.default_output_tokens,
        }
    }

    fn records(&mut self, records: raw::Records) -> Records {
        let section = "records";
        if !(0.0..=1.0).contains(&records.sample) {
            let path = [Step::Key(section), Step::Key("sample")];
            self.fault(
                &path,
                "`records.sample` must be 0 to 1".into(),
                "a share of requests",
                None,
            );
        }
        Records {
            dir: records.dir,
            chunks: records.chunks,
            sample: records.sample,
            rotate_bytes: self
                .at_least(section, "rotate_bytes", records.rotate_bytes, 64 << 10)
                .0,
            rotate_age: self.seconds(section, "rotate_age_s", records.rotate_age_s),
            queue: self.count(section, "queue", records.queue, 1),
        }
    }

    fn log(&mut self, log: raw::Log) -> Log {
        if tracing_subscriber::EnvFilter::try_new(&log.level).is_err() {
            self.fault(
                &[Step::Key("log"), Step::Key("level")],
                format!("`log.level` cannot be \"{}\"", log.level),
                "not a level",
                "allowed: `error`, `warn`, `info`, `debug`, `trace`, or a filter such as \"info,evenkeel::proxy=debug\""
                    .to_owned(),
            );
        }
        let access = log.access.map(|access| AccessLog {
            path: access.path,
            format: access.format,
        });
        Log {
            level: log.level,
            access,
        }
    }

    /// A time above 0, in seconds.
    pub fn seconds(&mut self, section: &str, key: &str, value: f64) -> Duration {
        self.seconds_at(
            &[Step::Key(section), Step::Key(key)],
            &format!("{section}.{key}"),
            value,
        )
    }

    /// A time above 0 at any place of the file.
    pub fn seconds_at(&mut self, path: &[Step<'_>], name: &str, value: f64) -> Duration {
        // a century stands for "no limit"; more overflows clocks
        let fits = value > 0.0 && value <= 3.2e9;
        if !fits {
            let help =
                "write seconds above 0, such as 1.5; for practically no limit, 1e9".to_owned();
            self.fault(
                path,
                format!("`{name}` must be a time above 0"),
                "not a usable time",
                help,
            );
            return Duration::ZERO;
        }
        Duration::from_secs_f64(value)
    }

    fn at_least(&mut self, section: &str, key: &str, value: ByteSize, least: u64) -> ByteSize {
        if value.0 < least {
            let message = format!("`{section}.{key}` must be at least {}", ByteSize(least));
            self.fault(
                &[Step::Key(section), Step::Key(key)],
                message,
                "too small",
                None,
            );
        }
        value
    }

    fn count(&mut self, section: &str, key: &str, value: usize, least: usize) -> usize {
        if value < least {
            let message = format!("`{section}.{key}` must be at least {least}");
            self.fault(
                &[Step::Key(section), Step::Key(key)],
                message,
                "too small",
                None,
            );
        }
        value
    }
}

/// Names that are already taken or free, with the place of their first use.
pub type Seen = HashMap<String, String>;
