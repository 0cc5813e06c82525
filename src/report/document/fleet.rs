//! The section of the fleet: what each instance got, and what engines, GPUs and hosts were seen to do. Pure.

use super::identity::Identity;
use super::table::{Cell, Column, Table, Unit};
use super::told::{ToldPoint, ToldStudy};
use super::{Part, Section};
use crate::report::instances::InstanceView;
use crate::report::watched::{Gauge, InstanceWatch};

/// The section.
pub fn section(studies: &[ToldStudy], identity: &Identity) -> Section {
    let mut skew = identity.table(
        "skew",
        "How even the load lies on the instances",
        skew_columns(),
    );
    let mut watched = identity.table(
        "watched",
        "What was seen of the fleet, within the window",
        watched_columns(),
    );
    for study in studies {
        for point in &study.points {
            identity.row(&mut skew, study, point, skew_cells(point));
            let its = &point.view.watched;
            let mut cells = watch_cells(&its.fleet);
            cells.push(point.view.preemptions_per_request.into());
            cells.push(mean(its.generator_cpu_share));
            identity.row(&mut watched, study, point, cells);
        }
    }
    Section {
        id: "fleet".into(),
        short: "Fleet",
        title: "Instances, GPUs and hosts".into(),
        parts: vec![
            Part::Text(
                "Load skew is the busiest instance's outstanding tokens over the mean, and is read beside what chance alone \
                 would give. Each instance is in the details of its point."
                    .into(),
            ),
            Part::Table(skew),
            Part::Table(watched),
        ],
    }
}

fn skew_columns() -> Vec<Column> {
    let ratio = |key, name: &str, definition| Column::new(key, name, Unit::named("×"), definition);
    vec![
        ratio(
            "load_skew",
            "load skew",
            "greatest over mean of the instances' mean outstanding tokens; 1 is even",
        ),
        ratio(
            "load_skew_by_chance",
            "by chance",
            "what random placement of these requests would give on average",
        ),
        ratio(
            "request_imbalance",
            "requests",
            "greatest over mean of the instances' numbers of requests",
        ),
        ratio(
            "open_imbalance",
            "open requests",
            "greatest over mean of the instances' mean open requests",
        ),
        Column::new(
            "busiest",
            "busiest",
            Unit::NONE,
            "instance with the most outstanding tokens",
        ),
    ]
}

fn skew_cells(point: &ToldPoint) -> Vec<Cell> {
    let Some(instances) = &point.view.instances else {
        return vec![Cell::Missing; 5];
    };
    let by_load = |one: &&InstanceView, other: &&InstanceView| {
        one.mean_outstanding_tokens
            .total_cmp(&other.mean_outstanding_tokens)
    };
    let busiest = instances.each.iter().max_by(by_load);
    vec![
        instances.load_skew.map(|skew| skew.measured).into(),
        instances.load_skew.map(|skew| skew.by_chance).into(),
        instances.request_imbalance.into(),
        instances.open_imbalance.into(),
        busiest.map_or(Cell::Missing, |view| view.name.clone().into()),
    ]
}

fn watched_columns() -> Vec<Column> {
    let mut columns = watch_columns();
    columns.push(Column::new(
        "preemptions_per_request",
        "preemptions an answer",
        Unit::NONE,
        "preemptions for each complete answer",
    ));
    columns.push(Column::new(
        "generator_cpu_share",
        "generator CPU",
        Unit::SHARE,
        "share of one core that the load generator used",
    ));
    columns
}

/// Columns of what was seen of an instance, or of all.
fn watch_columns() -> Vec<Column> {
    let share = |key, name: &str, definition| Column::new(key, name, Unit::SHARE, definition);
    vec![
        share(
            "gpu_use_share",
            "GPU use",
            "share of time in which the GPU ran any kernel, mean",
        ),
        share(
            "sm_active_share",
            "SMs",
            "share of time in which SMs had work, mean",
        ),
        share(
            "dram_active_share",
            "GPU memory busy",
            "share of time in which GPU memory was read or written, mean",
        ),
        share(
            "gpu_memory_used_share",
            "GPU memory used",
            "share of GPU memory in use, mean",
        ),
        share("kv_used_share", "KV use", "share of KV blocks in use, mean"),
        share(
            "kv_used_greatest_share",
            "KV use, greatest",
            "greatest share of KV blocks in use",
        ),
        Column::new(
            "running",
            "running",
            Unit::NONE,
            "sequences in the batch, mean of an instance",
        ),
        Column::new(
            "waiting",
            "waiting",
            Unit::NONE,
            "sequences in the engine's queue, mean of an instance",
        ),
        Column::new(
            "preemptions_per_s",
            "preemptions",
            Unit::named("1/s"),
            "sequences preempted a second",
        ),
        Column::new(
            "engine_cpu_cores",
            "engine CPU",
            Unit::named("cores"),
            "CPU of the engine's process, mean",
        ),
        share(
            "host_cpu_share",
            "host CPU",
            "share of all cores of the instance's host, mean",
        ),
        Column::new(
            "nvlink_sent_bytes_per_s",
            "NVLink",
            Unit::named("B/s"),
            "bytes a second that a GPU sent over NVLink",
        ),
    ]
}

fn mean(gauge: Option<Gauge>) -> Cell {
    gauge.map(|gauge| gauge.mean).into()
}

fn watch_cells(watch: &InstanceWatch) -> Vec<Cell> {
    vec![
        mean(watch.gpu_use_share),
        mean(watch.sm_active_share),
        mean(watch.dram_active_share),
        mean(watch.gpu_memory_used_share),
        mean(watch.kv_used_share),
        watch.kv_used_share.map(|gauge| gauge.max).into(),
        mean(watch.running),
        mean(watch.waiting),
        watch.preemptions_per_s.into(),
        mean(watch.engine_cpu_cores),
        mean(watch.host_cpu_share),
        watch.nvlink_sent_bytes_per_s.into(),
    ]
}

/// The instances of one point, for its details.
pub fn instance_table(point: &ToldPoint) -> Option<Table> {
    let instances = point.view.instances.as_ref()?;
    let mut columns = vec![
        Column::new(
            "instance",
            "instance",
            Unit::NONE,
            "as the balancer names it",
        ),
        Column::new(
            "requests",
            "requests",
            Unit::NONE,
            "requests that began in the window",
        ),
        Column::new(
            "request_share",
            "requests",
            Unit::SHARE,
            "its share of them",
        ),
        Column::new("failed", "failed", Unit::NONE, "of these, failed"),
        Column::new(
            "token_share",
            "tokens",
            Unit::SHARE,
            "its share of prompt and output tokens",
        ),
        Column::new(
            "outstanding_tokens",
            "outstanding",
            Unit::named("tok"),
            "outstanding tokens, averaged over the window",
        ),
        Column::new(
            "open_requests",
            "open",
            Unit::NONE,
            "open requests, averaged over the window",
        ),
        Column::new(
            "server_ttft_p50_ms",
            "server TTFT P50",
            Unit::MS,
            "of its requests",
        ),
        Column::new(
            "server_ttft_p99_ms",
            "server TTFT P99",
            Unit::MS,
            "of its requests",
        ),
    ];
    columns.extend(watch_columns());
    let mut table = Table::new(
        format!("instances-{}", point.place),
        "Each instance",
        columns,
    );
    for view in &instances.each {
        let mut cells = vec![
            Cell::from(view.name.clone()),
            view.requests.into(),
            view.request_share.into(),
            view.failed.into(),
            view.token_share.into(),
            view.mean_outstanding_tokens.into(),
            view.mean_open_requests.into(),
            view.server_ttft.map(|of| of.p50).into(),
            view.server_ttft.map(|of| of.p99).into(),
        ];
        let none = InstanceWatch::default();
        cells.extend(watch_cells(
            point.view.watched.each.get(&view.name).unwrap_or(&none),
        ));
        table.row(cells);
    }
    Some(table)
}
