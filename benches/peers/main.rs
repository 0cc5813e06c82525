//! Evenkeel beside haproxy, nginx and a bare client, in one run, on one machine.
//!
//! `cargo bench --bench peers [-- CELL] [--rounds N] [--only PROXY]`. Peers that are not installed are named and left out.

// a bench that cannot start has nothing to recover
#![allow(clippy::expect_used)]

mod client;
mod engine;
mod process;

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use engine::Pace;
use process::Proxy;

/// One kind of load.
struct Cell {
    name: &'static str,
    streams: usize,
    requests: usize,
    pace: Pace,
}

const fn cell(
    name: &'static str,
    streams: usize,
    requests: usize,
    events: usize,
    first_ms: u64,
    gap_ms: u64,
) -> Cell {
    let pace = Pace {
        events,
        first: Duration::from_millis(first_ms),
        gap: Duration::from_millis(gap_ms),
    };
    Cell {
        name,
        streams,
        requests,
        pace,
    }
}

const CELLS: [Cell; 5] = [
    cell("one-by-one", 1, 1000, 64, 0, 0),
    cell("saturated-16", 16, 3200, 64, 0, 0),
    cell("paced-1000", 1000, 1000, 64, 50, 100),
    cell("paced-64", 64, 256, 64, 20, 20),
    cell("long-100", 100, 100, 4096, 50, 10),
];
/// `long-100` takes 41 s a proxy and is run only by name: does memory grow with the length of a stream?
const DEFAULT_CELLS: usize = 4;

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    let rounds = args
        .iter()
        .position(|arg| arg == "--rounds")
        .and_then(|at| args.get(at + 1)?.parse().ok())
        .unwrap_or(5);
    let only = args
        .iter()
        .position(|arg| arg == "--only")
        .and_then(|at| args.get(at + 1))
        .map(String::as_str);
    let wanted: Vec<&Cell> = match CELLS
        .iter()
        .find(|cell| args.iter().any(|arg| arg == cell.name))
    {
        Some(cell) => vec![cell],
        None => CELLS.iter().take(DEFAULT_CELLS).collect(),
    };
    println!(
        "CPU in microseconds an output event (scheduler time of the proxy's threads / events); TTFT in ms; memory in kB."
    );
    println!(
        "{:<14} {:<16} {:>5} {:>9} {:>8} {:>8} {:>8} {:>10} {:>9} {:>7}",
        "cell",
        "proxy",
        "round",
        "CPU us/ev",
        "p50",
        "p99",
        "p99.9",
        "events/s",
        "kB/stream",
        "failed"
    );
    for cell in wanted {
        if let Err(error) = run_cell(cell, rounds, only) {
            eprintln!("{}: {error}", cell.name);
            std::process::exit(1);
        }
    }
}

fn run_cell(cell: &Cell, rounds: usize, only: Option<&str>) -> Result<(), String> {
    let upstreams = [engine::start(cell.pace), engine::start(cell.pace)];
    let upstreams: Vec<SocketAddr> = upstreams
        .into_iter()
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    let dir = std::env::temp_dir().join(format!(
        "evenkeel-peers-{}-{}",
        std::process::id(),
        cell.name
    ));
    fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
    let mut medians: Vec<(String, Vec<f64>)> = Vec::new();
    for round in 1..=rounds {
        print_row(
            cell,
            "direct",
            round,
            &client::run(upstreams[0], cell.streams, cell.requests, spread(cell)),
            None,
        );
        // each round begins with another one, so that no proxy always follows the same
        for turn in 0..PROXIES.len() {
            let (name, start) = PROXIES[(turn + round) % PROXIES.len()];
            if only.is_some_and(|only| only != name) {
                continue;
            }
            let Some(proxy) = start(name, &dir, &upstreams)? else {
                continue;
            };
            let us = measure(cell, round, &proxy);
            match medians.iter_mut().find(|(name, _)| *name == proxy.name) {
                Some((_, all)) => all.push(us),
                None => medians.push((proxy.name.clone(), vec![us])),
            }
        }
    }
    for (name, mut all) in medians {
        all.sort_by(f64::total_cmp);
        println!(
            "{:<14} {:<16} median CPU us/event {:.2} (of {} rounds, {:.2} to {:.2})",
            cell.name,
            name,
            all[all.len() / 2],
            all.len(),
            all[0],
            all[all.len() - 1]
        );
    }
    let _ = fs::remove_dir_all(&dir);
    Ok(())
}

/// Streams begin spread over one gap, so that events do not all fall due at once.
fn spread(cell: &Cell) -> Duration {
    cell.pace
        .gap
        .max(Duration::from_millis(if cell.streams >= 1000 {
            1000
        } else {
            0
        }))
}

fn measure(cell: &Cell, round: usize, proxy: &Proxy) -> f64 {
    let idle_kb = proxy.status_kb("VmRSS");
    let before_us = proxy.cpu_us();
    let loaded = client::run(proxy.addr, cell.streams, cell.requests, spread(cell));
    let us = (proxy.cpu_us() - before_us) / (loaded.ok.max(1) * cell.pace.events) as f64;
    let kb = (proxy.status_kb("VmHWM") - idle_kb) / cell.streams as f64;
    print_row(cell, &proxy.name, round, &loaded, Some((us, kb)));
    us
}

fn print_row(
    cell: &Cell,
    name: &str,
    round: usize,
    loaded: &client::Loaded,
    cost: Option<(f64, f64)>,
) {
    let (us, kb) = cost.map_or(("-".into(), "-".into()), |(us, kb)| {
        (format!("{us:.2}"), format!("{kb:.1}"))
    });
    let events = (loaded.ok * cell.pace.events) as f64 / loaded.wall.as_secs_f64();
    let q = |q| loaded.ttft_quantile_ms(q);
    println!(
        "{:<14} {name:<16} {round:>5} {us:>9} {:>8.2} {:>8.2} {:>8.2} {events:>10.0} {kb:>9} {:>7}",
        cell.name,
        q(0.5),
        q(0.99),
        q(0.999),
        loaded.failed
    );
}

fn free_port() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.map_err(|error| error.to_string())
}

fn found(program: &str) -> Option<PathBuf> {
    let dirs = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];
    let path = dirs
        .iter()
        .map(|dir| Path::new(dir).join(program))
        .find(|path| path.exists());
    if path.is_none() {
        eprintln!("{program} is not installed (Debian package `{program}`); its rows are missing");
    }
    path
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

type Started = Result<Option<Proxy>, String>;
type Start = fn(&str, &Path, &[SocketAddr]) -> Started;

const PROXIES: [(&str, Start); 4] = [
    ("haproxy", haproxy),
    ("nginx", nginx),
    ("evenkeel", evenkeel_recording),
    ("evenkeel-norec", evenkeel_unrecorded),
];

fn haproxy(name: &str, dir: &Path, upstreams: &[SocketAddr]) -> Started {
    let Some(program) = found("haproxy") else {
        return Ok(None);
    };
    let addr = free_port()?;
    let config = dir.join("haproxy.cfg");
    let servers: String = upstreams
        .iter()
        .enumerate()
        .map(|(n, up)| format!("  server s{n} {up}\n"))
        .collect();
    write(
        &config,
        &format!(
            "global\n  nbthread 1\n  maxconn 4500\ndefaults\n  mode http\n  option http-no-delay\n  http-reuse always\n  timeout connect 5s\n  timeout client 600s\n  timeout server 600s\nfrontend f\n  bind {addr}\n  default_backend b\nbackend b\n  balance leastconn\n{servers}"
        ),
    )?;
    let mut command = Command::new(program);
    command.arg("-db").arg("-f").arg(&config);
    Proxy::start(name, command, addr).map(Some)
}

fn nginx(name: &str, dir: &Path, upstreams: &[SocketAddr]) -> Started {
    let Some(program) = found("nginx") else {
        return Ok(None);
    };
    let addr = free_port()?;
    let config = dir.join("nginx.conf");
    let servers: String = upstreams.iter().map(|up| format!("server {up};")).collect();
    let dir = dir.display();
    write(
        &config,
        &format!(
            "daemon off; master_process off; worker_processes 1; pid {dir}/nginx.pid; error_log {dir}/nginx.log;\nevents {{ worker_connections 8192; }}\nhttp {{ access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;\nupstream b {{ least_conn; keepalive 1024; {servers} }}\nserver {{ listen {addr} backlog=4096; keepalive_requests 1000000; location / {{ proxy_pass http://b; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_buffering off; proxy_read_timeout 600s; tcp_nodelay on; }} }} }}\n"
        ),
    )?;
    let mut command = Command::new(program);
    command.arg("-c").arg(&config);
    Proxy::start(name, command, addr).map(Some)
}

fn evenkeel_recording(name: &str, dir: &Path, upstreams: &[SocketAddr]) -> Started {
    let records = format!(
        "[records]\ndir = \"{}/records\"\nchunks = \"all\"\n",
        dir.display()
    );
    evenkeel(name, dir, upstreams, &records)
}

fn evenkeel_unrecorded(name: &str, dir: &Path, upstreams: &[SocketAddr]) -> Started {
    evenkeel(name, dir, upstreams, "")
}

fn evenkeel(name: &str, dir: &Path, upstreams: &[SocketAddr], more: &str) -> Started {
    let addr = free_port()?;
    let config = dir.join(format!("{name}.toml"));
    let instances: String = upstreams
        .iter()
        .map(|up| format!("[[pools.instances]]\nurl = \"http://{up}\"\n"))
        .collect();
    write(
        &config,
        &format!(
            "[server]\nlisten = \"{addr}\"\nworkers = 1\n[[pools]]\nname = \"bench\"\npolicy = {{ kind = \"least_requests\" }}\n{instances}{more}"
        ),
    )?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.arg("serve").arg("--config").arg(&config);
    Proxy::start(name, command, addr).map(Some)
}
