//! The proxies, each with the fairest configuration we can write; `configs/` holds the longer ones.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::args::Shape;
use crate::cells::Cell;
use crate::cores;
use crate::process::Proxy;

/// What a proxy is started for.
pub struct Site<'a> {
    pub dir: &'a Path,
    pub upstreams: &'a [SocketAddr],
    pub cell: &'a Cell,
    pub shape: Shape,
    /// descriptors a process may open
    pub descriptors: u64,
}

type Prepare = fn(&Site, SocketAddr) -> anyhow::Result<Command>;

/// All of them, in the order of the table.
pub const ALL: [(&str, Prepare); 9] = [
    ("splice", splice),
    ("haproxy", haproxy),
    ("nginx", nginx),
    ("envoy", envoy),
    ("vllm-router", vllm_router),
    ("sglang-router", sglang_router),
    ("evenkeel", |site, addr| {
        let records = site.dir.join("records");
        let table = format!("[records]\ndir = {records:?}\nchunks = \"all\"\n");
        evenkeel(site, addr, &table)
    }),
    ("evenkeel-norec", |site, addr| evenkeel(site, addr, "")),
    ("evenkeel-off", |site, addr| {
        evenkeel(site, addr, "[measure]\nenabled = false\n")
    }),
];

/// Starts the proxy of that name and waits until it answers.
pub fn start(name: &str, prepare: Prepare, site: &Site) -> anyhow::Result<Proxy> {
    let addr = free_port()?;
    let started = prepare(site, addr).and_then(|command| {
        let log = site.dir.join(format!("{name}.log"));
        Proxy::start(command, addr, &log, |command| {
            let mut spawn = || command.spawn();
            match site.shape {
                // two workers on one core would measure nothing; one is compared with them on the same cores
                Shape::PerCore if site.cell.name.starts_with("workers") => cores::unheld(spawn),
                Shape::PerCore => cores::as_proxy(spawn),
                Shape::Defaults => Ok(spawn()),
            }
        })
    });
    started.with_context(|| format!("{name} cannot be measured"))
}

/// An error, if what this run needs is not installed.
pub fn check(name: &str) -> anyhow::Result<()> {
    match name {
        "haproxy" | "nginx" => found_in_system(name).map(drop),
        "envoy" | "vllm-router" | "sglang-router" => found_as_wheel(name).map(drop),
        _ => Ok(()),
    }
}

/// The setting where one worker is meant, nothing where the proxy decides.
fn one_of(site: &Site, setting: String) -> String {
    match site.shape {
        Shape::PerCore => setting,
        Shape::Defaults => String::new(),
    }
}

fn splice(site: &Site, addr: SocketAddr) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    let to: Vec<String> = site.upstreams.iter().map(ToString::to_string).collect();
    command.args(["--splice", &addr.to_string(), "--to", &to.join(",")]);
    Ok(command)
}

fn haproxy(site: &Site, addr: SocketAddr) -> anyhow::Result<Command> {
    let most = site.descriptors.saturating_sub(100) / 2;
    let maxconn = most.min(4500.max(site.cell.streams as u64 + 20));
    let threads = format!("  nbthread {}\n  maxconn {maxconn}", site.cell.workers);
    let config = fill(
        site,
        "haproxy.cfg",
        include_str!("configs/haproxy.cfg"),
        &[
            ("{threads}", one_of(site, threads)),
            ("{addr}", addr.to_string()),
            (
                "{servers}",
                servers(site, |n, up| format!("  server s{n} {up}\n")),
            ),
        ],
    )?;
    let mut command = Command::new(found_in_system("haproxy")?);
    command.arg("-db").arg("-f").arg(config);
    Ok(command)
}

fn nginx(site: &Site, addr: SocketAddr) -> anyhow::Result<Command> {
    let workers = match (site.shape, site.cell.workers) {
        (Shape::PerCore, 1) => "master_process off; worker_processes 1;".to_owned(),
        (Shape::PerCore, n) => format!("user root; worker_processes {n};"),
        // as in Debian's own configuration
        (Shape::Defaults, _) => "user root; worker_processes auto;".to_owned(),
    };
    let connections = 8192.max(2 * site.cell.streams + 100);
    let config = fill(
        site,
        "nginx.conf",
        include_str!("configs/nginx.conf"),
        &[
            ("{workers}", workers),
            ("{connections}", connections.to_string()),
            ("{dir}", site.dir.display().to_string()),
            ("{addr}", addr.to_string()),
            ("{servers}", servers(site, |_, up| format!("server {up};"))),
        ],
    )?;
    let mut command = Command::new(found_in_system("nginx")?);
    command.arg("-c").arg(config);
    Ok(command)
}

fn envoy(site: &Site, addr: SocketAddr) -> anyhow::Result<Command> {
    let endpoint = |_, up: &SocketAddr| {
        format!(
            "        - endpoint: {{address: {{socket_address: {{address: {}, port_value: {}}}}}}}\n",
            up.ip(),
            up.port()
        )
    };
    let config = fill(
        site,
        "envoy.yaml",
        include_str!("configs/envoy.yaml"),
        &[
            ("<ip>", addr.ip().to_string()),
            ("<port>", addr.port().to_string()),
            ("<servers>", servers(site, endpoint)),
        ],
    )?;
    let mut command = Command::new(found_as_wheel("envoy")?);
    command.args(["--disable-hot-restart", "--log-level", "error", "-c"]);
    command.arg(config);
    if site.shape == Shape::PerCore {
        command.args(["--concurrency", &site.cell.workers.to_string()]);
    }
    Ok(command)
}

fn vllm_router(site: &Site, addr: SocketAddr) -> anyhow::Result<Command> {
    router(site, addr, Command::new(found_as_wheel("vllm-router")?))
}

fn sglang_router(site: &Site, addr: SocketAddr) -> anyhow::Result<Command> {
    let mut command = Command::new(found_as_wheel("sglang-router")?);
    command.arg("launch");
    router(site, addr, command)
}

/// Neither router has an option for its threads; both take as many as the cores they may run on.
fn router(site: &Site, addr: SocketAddr, mut command: Command) -> anyhow::Result<Command> {
    command.args(["--host", &addr.ip().to_string()]);
    command.args(["--port", &addr.port().to_string()]);
    command.args(["--prometheus-port", &free_port()?.port().to_string()]);
    command.args(["--policy", "round_robin", "--log-level", "error"]);
    command.args(["--max-concurrent-requests", "20000", "--worker-urls"]);
    command.args(site.upstreams.iter().map(|up| format!("http://{up}")));
    Ok(command)
}

fn evenkeel(site: &Site, addr: SocketAddr, more: &str) -> anyhow::Result<Command> {
    let instances = servers(site, |_, up| {
        format!("[[pools.instances]]\nurl = \"http://{up}\"\n")
    });
    let workers = one_of(site, format!("workers = {}", site.cell.workers));
    let config = fill(
        site,
        "evenkeel.toml",
        "[server]\nlisten = \"{addr}\"\n{workers}\n{more}\n[[pools]]\nname = \"bench\"\npolicy = { kind = \"least_requests\" }\n{instances}",
        &[
            ("{addr}", addr.to_string()),
            ("{workers}", workers),
            ("{more}", more.to_owned()),
            ("{instances}", instances),
        ],
    )?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.arg("serve").arg("--config").arg(config);
    Ok(command)
}

fn servers(site: &Site, line: impl Fn(usize, &SocketAddr) -> String) -> String {
    let lines = site.upstreams.iter().enumerate();
    lines.map(|(n, up)| line(n, up)).collect()
}

/// Writes a configuration with its holes filled.
fn fill(site: &Site, name: &str, text: &str, holes: &[(&str, String)]) -> anyhow::Result<PathBuf> {
    let filled = holes.iter().fold(text.to_owned(), |text, (hole, value)| {
        text.replace(hole, value)
    });
    let path = site.dir.join(name);
    fs::write(&path, filled).with_context(|| path.display().to_string())?;
    Ok(path)
}

fn free_port() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn found_in_system(program: &str) -> anyhow::Result<PathBuf> {
    let dirs = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];
    let paths = dirs.iter().map(|dir| Path::new(dir).join(program));
    let path = paths.into_iter().find(|path| path.exists());
    path.with_context(|| {
        format!("{program} is missing; install it with: apt-get install {program} (benches/peers/run does), or leave it out with --only")
    })
}

fn found_as_wheel(program: &str) -> anyhow::Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target/real/peers/bin")
        .join(program);
    anyhow::ensure!(
        path.exists(),
        "{program} is missing; install it with: tests/real/install uv peers (benches/peers/run does), or leave it out with --only"
    );
    Ok(path)
}
