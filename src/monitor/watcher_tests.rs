#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use super::*;

/// An exporter that gives page after page, the last one again and again; it tells when it was asked.
fn exporter(pages: Vec<&'static str>) -> (u16, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (asked, was_asked) = channel();
    std::thread::spawn(move || {
        for (at, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut head = BufReader::new(stream.try_clone().unwrap()).lines();
            while head.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let page = pages[at.min(pages.len() - 1)];
            let length = page.len();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{page}");
            let _ = stream.write_all(head.as_bytes());
            if asked.send(()).is_err() {
                return;
            }
        }
    });
    (port, was_asked)
}

fn endpoint(port: u16, kinds: &[Kind]) -> Endpoint {
    Endpoint {
        host: "127.0.0.1".into(),
        port,
        ask: Ask {
            authority: format!("127.0.0.1:{port}"),
            path: "/metrics".into(),
            headers: String::new(),
        },
        kinds: kinds.to_vec(),
        instance: Some("i".into()),
        gpu: None,
    }
}

const QUICK: Duration = Duration::from_millis(5);

#[test]
fn a_page_with_half_lines_is_read_again_and_again_and_the_half_lines_are_counted() {
    let first = "vllm:num_requests_running 2\nvllm:num_requ\nnode_cpu_seconds_total{mode=\"idle\"} 10\n\
        node_cpu_seconds_total{mode=\"user\"} 5\nprocess_cpu_seconds_total 1\n";
    let then = "vllm:num_requests_running 4\nnode_cpu_seconds_total{mode=\"idle\"} 11\n\
        node_cpu_seconds_total{mode=\"user\"} 8\nprocess_cpu_seconds_total 1.5\nDCGM_FI_DEV_GPU_UTIL{gpu=\"3\"} 50\n";
    let (port, was_asked) = exporter(vec![first, then]);
    let started_ns = now_ns();
    let kinds = [Kind::Engine, Kind::Gpu, Kind::Host];
    let monitor = Monitor::start(vec![endpoint(port, &kinds)], QUICK).unwrap();
    for _ in 0..3 {
        was_asked.recv().unwrap();
    }
    let seen = monitor.end();
    assert_eq!(
        seen.notes,
        [format!(
            "monitor: http://127.0.0.1:{port}/metrics wrote 1 lines that are no figures"
        )]
    );
    let readings = seen.readings(started_ns);
    let of = |source| {
        let fits = move |reading: &&Reading| reading.source == source;
        readings.iter().filter(fits).collect::<Vec<_>>()
    };
    let engine = of(Source::Engine);
    assert_eq!(engine[0].figures.running, Some(2.0));
    assert_eq!(engine[0].figures.cpu_use_share, None);
    assert_eq!(engine[1].figures.running, Some(4.0));
    assert!(engine[1].figures.cpu_use_share.unwrap() > 0.0);
    assert!(engine[0].at_s >= 0.0 && engine[1].at_s > engine[0].at_s);
    assert_eq!(engine[1].instance.as_deref(), Some("i"));
    let host = of(Source::Host);
    assert_eq!(host[0].figures.cpu_use_share, Some(0.75));
    let gpu = of(Source::Gpu);
    assert_eq!(gpu[0].gpu.as_deref(), Some("3"));
    assert_eq!(gpu[0].figures.gpu_use_share, Some(0.5));
}

#[test]
fn a_source_that_is_not_there_is_noted_once_and_absent_and_holds_up_no_other() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let port_gone = gone.local_addr().unwrap().port();
    drop(gone);
    let (port, was_asked) = exporter(vec!["up 1\n"]);
    let endpoints = vec![
        endpoint(port_gone, &[Kind::Gpu]),
        endpoint(port, &[Kind::Engine]),
    ];
    let monitor = Monitor::start(endpoints, QUICK).unwrap();
    for _ in 0..3 {
        was_asked.recv().unwrap();
    }
    let seen = monitor.end();
    assert!(seen.looks.is_empty());
    assert_eq!(seen.notes.len(), 2, "{:?}", seen.notes);
    let said = |word: &str, port: u16| {
        let port = port.to_string();
        let fits = |note: &&String| note.contains(word) && note.contains(&port);
        seen.notes.iter().filter(fits).count()
    };
    assert_eq!(said("did not answer", port_gone), 1);
    assert_eq!(said("none of the figures", port), 1);
}

#[test]
fn what_is_on_one_page_is_asked_for_once() {
    let other = Endpoint {
        instance: None,
        ..endpoint(1, &[Kind::Host])
    };
    let merged = merged([
        endpoint(1, &[Kind::Engine]),
        endpoint(1, &[Kind::Gpu]),
        other,
    ]);
    assert_eq!(merged.len(), 2);
    assert!(
        merged
            .iter()
            .any(|one| one.kinds == [Kind::Engine, Kind::Gpu])
    );
}
