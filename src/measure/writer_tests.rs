#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::super::figures::tests::exchange;
use super::*;

struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> TempDir {
        let dir = std::env::temp_dir().join(format!("evenkeel-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        TempDir(dir)
    }

    fn lines(&self, prefix: &str) -> (usize, Vec<String>) {
        let mut names: Vec<PathBuf> = std::fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                path.file_name()
                    .unwrap()
                    .to_string_lossy()
                    .starts_with(prefix)
            })
            .collect();
        names.sort();
        let text: String = names
            .iter()
            .map(|path| std::fs::read_to_string(path).unwrap())
            .collect();
        assert!(text.is_empty() || text.ends_with('\n'));
        (names.len(), text.lines().map(str::to_owned).collect())
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn config(dir: &TempDir) -> Records {
    Records {
        dir: dir.0.clone(),
        chunks: ChunkSink::None,
        sample: 1.0,
        rotate_bytes: 1 << 30,
        rotate_age: Duration::from_secs(3600),
        queue: 10_000,
    }
}

/// An exchange whose log was kept by `writer`.
fn with_chunks(writer: &RecordWriter, chunks: u64) -> Exchange {
    let mut log = writer.chunk_log(1 << 20);
    for at in 0..chunks {
        log.push(super::super::chunk_log::Chunk {
            arrival_ns: 2_000_000_000 + at * 20_000_000,
            choice: 0,
            kind: super::super::chunk_log::ChunkKind::Text,
            tokens: None,
            handed_ns: Some(2_000_050_000 + at * 20_000_000),
        });
    }
    Exchange {
        chunks: Some(log),
        ..exchange("p", "i")
    }
}

#[test]
fn a_long_chunk_log_is_written_whole_and_gives_its_blocks_back() {
    let dir = TempDir::new("spill");
    let records = Records {
        chunks: ChunkSink::All,
        ..config(&dir)
    };
    let writer = RecordWriter::start_with(&records, "").unwrap();
    let exchange = with_chunks(&writer, 4096);
    assert!(writer.spill.held() > 30, "most of the log is on disk");
    writer.submit(exchange);
    writer.flush();
    assert_eq!((writer.written(), writer.spill.held()), (1, 0));
    let (_, lines) = dir.lines("chunks");
    let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    let chunks = line["chunks"].as_array().unwrap();
    assert_eq!(
        (chunks.len(), &line["chunks_truncated"]),
        (4096, &false.into())
    );
    assert_eq!(
        chunks[4095][0].as_i64().unwrap() - chunks[0][0].as_i64().unwrap(),
        4095 * 20_000
    );
    let (_, records) = dir.lines("records");
    let record: Record = serde_json::from_str(&records[0]).unwrap();
    assert_eq!(record.chunk_gap_ms.unwrap(), vec![20.0; 4095]);
}

#[test]
fn every_record_is_a_whole_line_and_files_rotate_by_size() {
    let dir = TempDir::new("rotate");
    let records = Records {
        rotate_bytes: 100_000,
        ..config(&dir)
    };
    let writer = RecordWriter::start_with(&records, "[server]\n").unwrap();
    (0..500).for_each(|_| writer.submit(exchange("p", "i")));
    writer.flush_and_close();
    let (files, lines) = dir.lines("records-");
    assert!(files > 2, "{files}");
    assert_eq!(lines.len() as u64 + writer.dropped(), 500);
    assert_eq!(writer.dropped(), 0);
    lines
        .iter()
        .for_each(|line| drop(serde_json::from_str::<Record>(line).unwrap()));
}

#[test]
fn records_are_on_disk_soon_without_a_flush() {
    let dir = TempDir::new("idle");
    let writer = RecordWriter::start_with(&config(&dir), "").unwrap();
    writer.submit(exchange("p", "i"));
    let began = Instant::now();
    while dir.lines("records-").1.is_empty() {
        assert!(began.elapsed() < Duration::from_secs(5));
        std::thread::yield_now();
    }
}

/// A sink that waits at its first item until it is told to go on.
struct Gate(Receiver<()>, SyncSender<()>);

impl Sink for Gate {
    type Item = u8;
    fn take(&mut self, _: u8) -> u64 {
        let _ = self.1.try_send(());
        let _ = self.0.recv();
        1
    }
    fn buffered(&self) -> usize {
        0
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_queue_drops_and_counts_and_never_waits() {
    let (go, gate) = sync_channel(0);
    let (entered, inside) = sync_channel(1);
    let writer = LineWriter::start("gate", 2, Gate(gate, entered)).unwrap();
    writer.submit(0);
    inside.recv().unwrap();
    (1..=10).for_each(|item| writer.submit(item));
    assert_eq!(writer.dropped(), 8);
    drop(go);
    writer.close();
}

#[test]
fn a_disk_that_refuses_is_counted_and_does_no_harm() {
    let dir = TempDir::new("refuse");
    let writer = RecordWriter::start_with(&config(&dir), "").unwrap();
    std::fs::remove_dir_all(&dir.0).unwrap();
    writer.submit(exchange("p", "i"));
    writer.flush();
    assert_eq!(writer.disk_errors(), 1);
    std::fs::create_dir_all(&dir.0).unwrap();
    writer.submit(exchange("p", "i"));
    writer.flush();
    assert_eq!(dir.lines("records-").1.len(), 1);
}

#[test]
fn the_run_file_holds_configuration_version_and_machine() {
    let dir = TempDir::new("run");
    let source = "[server]\nlisten = \"127.0.0.1:0\"\n";
    RecordWriter::start_with(&config(&dir), source)
        .unwrap()
        .flush_and_close();
    let run: toml::Table = std::fs::read_to_string(dir.0.join("run.toml"))
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(run["config"].as_str().unwrap(), source);
    assert_eq!(run["version"].as_str().unwrap(), env!("CARGO_PKG_VERSION"));
    assert!(run["machine"]["os"].is_str());
}
