//! The kinds of load: cells of the table, and the points of the scale curves.

use std::time::Duration;

/// One kind of load.
#[derive(Debug, Clone)]
pub struct Cell {
    pub name: String,
    /// streams at a time
    pub streams: usize,
    /// streams in all
    pub requests: usize,
    /// output events a stream
    pub events: usize,
    /// bytes of an event, roughly
    pub event_bytes: usize,
    /// events the engine hands over in one write
    pub burst: usize,
    /// time to the first event
    pub first: Duration,
    /// time between writes; zero writes as fast as the socket takes them
    pub gap: Duration,
    /// over which the streams' starts are spread, so that events do not all fall due at once
    pub spread: Duration,
    /// engines behind the proxy
    pub instances: usize,
    /// threads of the proxy where one is meant
    pub workers: usize,
    /// the curve and the place on it
    pub on_curve: Option<(&'static str, f64)>,
}

impl Cell {
    fn new(name: &str, streams: usize, requests: usize, events: usize) -> Self {
        Self {
            name: name.to_owned(),
            streams,
            requests,
            events,
            event_bytes: 250,
            burst: 1,
            first: Duration::ZERO,
            gap: Duration::ZERO,
            spread: Duration::ZERO,
            instances: 2,
            workers: 1,
            on_curve: None,
        }
    }

    fn paced(mut self, first_ms: u64, gap_ms: u64) -> Self {
        self.first = Duration::from_millis(first_ms);
        self.gap = Duration::from_millis(gap_ms);
        let least_ms = match self.streams {
            4000.. => 4000,
            1000.. => 1000,
            _ => 0,
        };
        self.spread = self.gap.max(Duration::from_millis(least_ms));
        self
    }

    fn burst(mut self, events: usize) -> Self {
        self.burst = events;
        self
    }

    fn on_curve(mut self, curve: &'static str, x: f64) -> Self {
        self.name = format!("{curve}-{x}");
        self.on_curve = Some((curve, x));
        self
    }

    /// How long one answer takes at least.
    pub fn answer_time(&self) -> Duration {
        self.first + self.gap * (self.events.div_ceil(self.burst) as u32).saturating_sub(1)
    }

    /// While all streams are open and none ends: from when to when after the start, if for long enough.
    pub fn steady(&self) -> Option<(Duration, Duration)> {
        let from = self.spread + self.first + self.gap;
        let until = self.answer_time();
        (self.requests == self.streams && until >= from + Duration::from_secs(1))
            .then_some((from, until))
    }

    /// The same with fewer streams, for counting system calls.
    pub fn shortened(&self) -> Self {
        let streams = self.streams.min(100);
        Self {
            streams,
            requests: self.requests.min(160.max(streams)),
            events: self.events.min(256),
            ..self.clone()
        }
    }
}

/// The cells, and whether each is run when none is named. Streams that idle are as many as descriptors allow.
pub fn all(descriptors: u64) -> Vec<(Cell, bool)> {
    let idle = (descriptors.saturating_sub(200) / 2).min(10_000) as usize;
    vec![
        (Cell::new("one-by-one", 1, 500, 64), true),
        (Cell::new("saturated-16", 16, 3200, 64), true),
        (Cell::new("paced-1000", 1000, 1000, 64).paced(50, 100), true),
        (Cell::new("paced-64", 64, 256, 64).paced(20, 20), true),
        (
            Cell::new(&format!("idle-{idle}"), idle, idle, 20).paced(50, 1000),
            true,
        ),
        (
            Cell::new("long-1000", 1000, 1000, 4096)
                .paced(50, 100)
                .burst(8),
            false,
        ),
        (Cell::new("long-100", 100, 100, 4096).paced(50, 10), false),
    ]
}

pub const CURVES: [&str; 5] = ["streams", "size", "instances", "rate", "workers"];

/// The points of a curve.
pub fn curve(name: &'static str) -> Vec<Cell> {
    let base = || Cell::new("", 200, 200, 64).paced(50, 50);
    match name {
        // 10 events a second each, fewer where all together would come near a full core
        "streams" => [10, 100, 1000, 4000]
            .map(|n: usize| {
                Cell::new("", n, n, 64)
                    .paced(50, 100.max(n as u64 / 10))
                    .on_curve(name, n as f64)
            })
            .to_vec(),
        "size" => [100, 250, 1000, 4000]
            .map(|bytes| Cell {
                event_bytes: bytes,
                ..base().on_curve(name, bytes as f64)
            })
            .to_vec(),
        "instances" => [1, 2, 8, 64]
            .map(|n| Cell {
                instances: n,
                ..base().on_curve(name, n as f64)
            })
            .to_vec(),
        // events a second of 1,000 streams
        "rate" => [(1000, 20), (200, 40), (100, 80), (50, 160)]
            .map(|(gap_ms, events)| {
                Cell::new("", 1000, 1000, events)
                    .paced(50, gap_ms)
                    .on_curve(name, 1e6 / gap_ms as f64)
            })
            .to_vec(),
        "workers" => [1, 2]
            .map(|n| Cell {
                workers: n,
                ..Cell::new("", 1000, 1000, 64)
                    .paced(50, 100)
                    .on_curve(name, n as f64)
            })
            .to_vec(),
        _ => Vec::new(),
    }
}
