//! The table of a cell, in text.

use crate::report::{Line, Report, Spread};

const NOTE: &str = "CPU us/ev: scheduler time of the proxy's processes an output event, median (least to greatest); added TTFT in ms over
`direct` in the same round (of direct itself: as it is); ev/read: events the client got by one read; kB/stream: peak
resident less idle; calls, reads, writes: system calls an event in a shorter run, by perf. vllm-router and
sglang-router have no option for threads: per core they are held to one core, where they make one worker thread.";

/// Prints what the columns mean, and each cell.
pub fn print(report: &Report) {
    println!("{NOTE}");
    for cell in report.cells() {
        println!();
        print_cell(report, &cell);
    }
}

fn print_cell(report: &Report, cell: &str) {
    let rounds = report
        .rows
        .iter()
        .filter(|row| row.cell == cell && row.proxy == "direct")
        .count();
    let stolen = report.stolen(cell).map_or(String::new(), |stolen| {
        format!(
            ", {:.0} to {:.0} % of the CPU time stolen",
            stolen.least * 100.0,
            stolen.greatest * 100.0
        )
    });
    println!("{cell}: {rounds} rounds{stolen}");
    println!(
        "{:<15} {:>21} {:>7} {:>7} {:>7} {:>8} {:>7} {:>9} {:>6} {:>6} {:>6} {:>6}",
        "proxy",
        "CPU us/ev",
        "+P50",
        "+P99",
        "+P99.9",
        "events/s",
        "ev/read",
        "kB/stream",
        "calls",
        "reads",
        "writes",
        "failed"
    );
    for line in report.lines(cell) {
        print_line(&line);
    }
    for (one, other) in [
        ("evenkeel", "haproxy"),
        ("evenkeel", "nginx"),
        ("evenkeel", "splice"),
        ("evenkeel", "evenkeel-off"),
    ] {
        if let Some(ratio) = report.ratio(cell, one, other) {
            println!(
                "{one} / {other}, CPU in the same round: {:.2} ({:.2} to {:.2})",
                ratio.median, ratio.least, ratio.greatest
            );
        }
    }
}

fn print_line(line: &Line) {
    let median = |spread: &Option<Spread>, digits: usize| {
        spread.map_or("-".to_owned(), |spread| {
            format!("{:.digits$}", spread.median)
        })
    };
    let cpu = line.cpu_us.map_or("-".to_owned(), |cpu| {
        format!("{:.2} ({:.2}-{:.2})", cpu.median, cpu.least, cpu.greatest)
    });
    let calls = |value: fn(&crate::syscalls::Calls) -> f64| {
        line.calls
            .as_ref()
            .map_or("-".to_owned(), |calls| format!("{:.2}", value(calls)))
    };
    let [p50, p99, p999] = &line.added_ttft_ms;
    println!(
        "{:<15} {cpu:>21} {:>7} {:>7} {:>7} {:>8} {:>7} {:>9} {:>6} {:>6} {:>6} {:>6}",
        line.proxy,
        median(p50, 2),
        median(p99, 2),
        median(p999, 2),
        median(&line.events_s, 0),
        median(&line.events_a_read, 2),
        median(&line.kb_a_stream, 1),
        calls(|calls| calls.all),
        calls(|calls| calls.reads),
        calls(|calls| calls.writes),
        line.failed
    );
}
