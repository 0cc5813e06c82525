//! What a configuration will do, as a short table for people.

use std::fmt::Write;

use comfy_table::{Table, presets};

use super::checked::{Config, Pool, Server, UsageMode};
use super::units::ByteSize;

/// What will be served, and the settings that matter most.
pub fn summary(config: &Config) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["pool", "models", "policy", "instance", "url", "weight"]);
    for pool in &config.pools {
        add_pool(&mut table, pool);
    }
    let mut out = table.to_string();
    let server = &config.server;
    let admin = config
        .admin
        .listen
        .map_or("none".to_owned(), |listen| listen.to_string());
    let records = config
        .records
        .as_ref()
        .map_or("none".to_owned(), |records| {
            records.dir.display().to_string()
        });
    let usage = match config.measure.usage {
        UsageMode::AsAsked => "as the client asks",
        UsageMode::Ask => "always asked for",
    };
    let timeouts = &config.timeouts;
    let limits = &config.limits;
    let _ = write!(
        out,
        "\n\nserves on   {} ({}, {} workers)\nadmin on    {admin}\nrecords     {records}\nusage       {usage}\n\
         timeouts    connect {:?}, headers {:?}, first event {:?}, silence {:?}\n\
         bodies      up to {}, held up to {}, {} in all\n",
        server.listen,
        spoken(server),
        server.workers,
        timeouts.connect,
        timeouts.headers,
        timeouts.first_event,
        timeouts.silence,
        ByteSize(limits.body_bytes),
        ByteSize(limits.hold_bytes as u64),
        ByteSize(limits.buffered_bytes),
    );
    for warning in &config.warnings {
        let _ = writeln!(out, "warning     {warning}");
    }
    out
}

fn spoken(server: &Server) -> &'static str {
    match &server.tls {
        None => "plain text",
        Some(tls) if tls.client_ca.is_some() => "TLS with clients' certificates",
        Some(_) => "TLS",
    }
}

fn add_pool(table: &mut Table, pool: &Pool) {
    for (number, instance) in pool.instances.iter().enumerate() {
        let first = |text: &str| {
            if number == 0 {
                text.to_owned()
            } else {
                String::new()
            }
        };
        table.add_row([
            first(&pool.name),
            first(&models(pool)),
            first(policy_kind(pool)),
            instance.name.to_string(),
            instance.url.to_string(),
            instance.weight.to_string(),
        ]);
    }
}

fn models(pool: &Pool) -> String {
    let mut names: Vec<&str> = Vec::new();
    for model in &pool.models {
        names.push(&model.name);
        names.extend(model.aliases.iter().map(String::as_str));
    }
    match (names.is_empty(), pool.default) {
        (true, _) => "any".into(),
        (false, true) => format!("{}, any other", names.join(", ")),
        (false, false) => names.join(", "),
    }
}

fn policy_kind(pool: &Pool) -> &str {
    pool.policy.kind()
}
