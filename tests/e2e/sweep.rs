//! `evenkeel sweep` as a process: what it keeps, what it survives, what it refuses.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use evenkeel::engine::profile::Profile;
use evenkeel::engine::server::{self, EngineOptions};
use evenkeel::measure::record::Record;
use evenkeel::study::files::{Folder, PointFolder};
use evenkeel::study::monitor::{Reading, Source};
use evenkeel::study::{PointFile, Scenario};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::support::child::{PROGRAM, run};
use crate::support::proxy::Dir;
use crate::support::reply::Reply;
use crate::support::upstream::Script;

const LENGTHS: &str = "[length_sets.tiny]\nclasses = [\n\
    { name = \"a\", share = 1, prompt_tokens = 20, output_tokens = 4, spread = 0.5 },\n\
    { name = \"b\", share = 1, prompt_tokens = 60, output_tokens = 8, spread = 0.5 },\n]\n";

/// Six short points on simulated engines.
fn small() -> String {
    format!(
        "name = \"small\"\nobjectives = [\"ttft:500\"]\n[fleet]\nkind = \"simulated\"\nprofile = \"test-fast\"\n\
        [matrix]\ninstances = [1, 2]\n[timing]\nwarm_up_s = 0.1\nduration_s = 0.3\nlook_every_s = 0.05\n\
        [online]\nconcurrency = [2]\nlengths = [\"tiny\"]\n[mixed]\nrate_per_s = [40]\nbatch_concurrency = 2\n\
        batch_lengths = \"tiny\"\nlengths = [\"tiny\"]\n{LENGTHS}"
    )
}

/// A folder with a plan, and room for a study.
struct Place {
    dir: Dir,
}

impl Place {
    fn with(plan: &str) -> Place {
        let dir = Dir::new();
        std::fs::write(dir.0.join("plan.toml"), plan).unwrap();
        Place { dir }
    }

    fn plan(&self) -> PathBuf {
        self.dir.0.join("plan.toml")
    }

    fn out(&self) -> PathBuf {
        self.dir.0.join("out")
    }

    fn args(&self) -> Vec<String> {
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        vec![
            "sweep".into(),
            text(self.plan()),
            "--out".into(),
            text(self.out()),
        ]
    }

    /// Exit code, standard output, standard error.
    fn sweep(&self, more: &[&str]) -> (Option<i32>, String, String) {
        let args = self.args();
        let all: Vec<&str> = args
            .iter()
            .map(String::as_str)
            .chain(more.iter().copied())
            .collect();
        let (status, out, err) = run(&all);
        assert!(!err.contains("panicked"), "{err}");
        (status.code(), out, err)
    }

    fn start(&self) -> Started {
        let mut process = Command::new(PROGRAM)
            .args(self.args())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Started { process, lines }
    }

    fn points(&self) -> BTreeMap<String, PointFile> {
        let points = Folder::new(self.out()).points().unwrap().into_iter();
        points.map(|(point, _)| (point.id.clone(), point)).collect()
    }

    /// The names that the plan has.
    fn planned(&self) -> Vec<String> {
        let (code, out, _) = self.sweep(&["--list"]);
        assert_eq!(code, Some(0));
        let (_, list) = out.split_once("\n\n").unwrap();
        let mut ids: Vec<String> = list.lines().map(str::to_owned).collect();
        ids.sort();
        ids
    }
}

fn read<T: DeserializeOwned>(point: &PointFolder, name: &str) -> T {
    serde_json::from_slice(&std::fs::read(point.file(name)).unwrap()).unwrap()
}

fn lines<T: DeserializeOwned>(point: &PointFolder, name: &str) -> Vec<T> {
    let text = std::fs::read_to_string(point.file(name)).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A sweep under way; killed when dropped.
struct Started {
    process: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Started {
    /// Reads on until so many points were said to be finished.
    fn after_points(&mut self, points: usize) {
        let mut seen = 0;
        while seen < points {
            let mut line = String::new();
            assert!(
                self.lines.read_line(&mut line).unwrap() > 0,
                "it ended early"
            );
            seen += usize::from(line.starts_with('['));
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    fn rest(&mut self) -> (Option<i32>, String) {
        let lines = (&mut self.lines).lines().map(Result::unwrap);
        let out = lines.collect::<Vec<_>>().join("\n");
        (self.process.wait().unwrap().code(), out)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_killed_sweep_goes_on_to_the_same_set_of_points() {
    let place = Place::with(&small());
    let planned = place.planned();
    let mut killed = place.start();
    killed.after_points(2);
    killed.signal("KILL");
    killed.rest();
    let kept = place.points();
    assert!((2..planned.len()).contains(&kept.len()), "{}", kept.len());

    let (code, out, err) = place.sweep(&[]);
    assert_eq!(code, Some(0), "{out}{err}");
    let points = place.points();
    assert_eq!(points.keys().cloned().collect::<Vec<_>>(), planned);
    for (id, point) in &kept {
        assert_eq!(
            points[id].started_unix_ns, point.started_unix_ns,
            "{id} ran again"
        );
    }
    let (code, out, _) = place.sweep(&[]);
    assert_eq!(code, Some(0));
    assert!(out.contains("all 6 points"), "{out}");
    assert!(
        !out.contains("\n["),
        "a finished study was run again: {out}"
    );
}

#[test]
fn a_point_has_all_its_files_joined_on_ids_and_on_one_time_axis() {
    let place = Place::with(&small());
    let (code, out, err) = place.sweep(&[]);
    assert_eq!(code, Some(0), "{out}{err}");
    let folder = Folder::new(place.out());
    let study = folder.read().unwrap();
    assert_eq!((study.name.as_str(), study.simulated), ("small", false));
    assert_eq!(study.objectives, ["ttft:500"]);
    assert!(study.machine.cores > 0 && study.plan_sha256.len() == 64);
    assert_eq!(std::fs::read_to_string(folder.plan()).unwrap(), small());
    for (point, files) in folder.points().unwrap() {
        let id = &point.id;
        let result: Value = read(&files, "result.json");
        assert_eq!(result["label"], id.as_str());
        assert_eq!(result["failed"], 0, "{id}");
        assert!(result["ttfts"].is_array(), "{id}: no details");
        assert_eq!(
            result["evenkeel"]["goodput"]["objectives"][0]["limit_ms"],
            500.0
        );

        let requests: Vec<Value> = lines(&files, "requests.jsonl");
        let records: Vec<Record> = lines(&files, "records.jsonl");
        let mut ids: Vec<&str> = records
            .iter()
            .map(|record| record.request_id.as_str())
            .collect();
        ids.sort_unstable();
        for request in &requests {
            let request = request["metadata"]["x_request_id"].as_str().unwrap();
            assert!(
                ids.binary_search(&request).is_ok(),
                "{request} has no record"
            );
        }
        let batch = files.file("batch_result.json").exists();
        assert_eq!(batch, point.setting.batch_concurrency.is_some());
        assert_eq!(batch, records.len() > requests.len(), "{id}");

        let first = &requests[0]["metadata"]["request_start_ns"];
        let first_s = (first.as_u64().unwrap() - point.started_unix_ns) as f64 / 1e9;
        assert!((0.0..point.seconds).contains(&first_s), "{first_s}");
        let readings = lines::<Reading>(&files, "monitor.jsonl");
        let engines = readings.iter().filter(|one| one.source == Source::Engine);
        let during = engines
            .clone()
            .filter(|one| (0.0..point.seconds).contains(&one.at_s));
        assert!(during.count() > 0, "{id}: nobody looked while it ran");
        let mut names: Vec<&str> = engines.filter_map(|one| one.instance.as_deref()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), point.setting.instances as usize);
        let named = |name: &str| {
            records
                .iter()
                .any(|record| record.instance.as_deref() == Some(name))
        };
        assert!(
            names.iter().any(|name| named(name)),
            "{names:?} is nowhere in the records"
        );
        assert!(readings.iter().any(|one| one.source == Source::Proxy));
        let gpu = readings.iter().filter(|one| one.source == Source::Gpu);
        let used = gpu.filter(|one| {
            one.figures
                .gpu_memory_used_bytes
                .is_some_and(|used| used > 1e9)
        });
        assert!(used.count() > 0, "{id}: no GPU was looked at");
    }
}

#[test]
fn in_virtual_time_the_same_plan_gives_the_same_requests() {
    let places = [Place::with(&small()), Place::with(&small())];
    for place in &places {
        let (code, out, err) = place.sweep(&["--simulate"]);
        assert_eq!(code, Some(0), "{out}{err}");
        assert!(Folder::new(place.out()).read().unwrap().simulated);
    }
    let read = |place: &Place, id: &str, name: &str| {
        std::fs::read(Folder::new(place.out()).point(id).file(name)).unwrap()
    };
    let points = places[0].points();
    assert_eq!(
        points.keys().cloned().collect::<Vec<_>>(),
        places[0].planned()
    );
    for id in points.keys() {
        for name in [
            "requests.jsonl",
            "records.jsonl",
            "monitor.jsonl",
            "point.json",
        ] {
            assert!(
                read(&places[0], id, name) == read(&places[1], id, name),
                "{id}/{name}"
            );
        }
    }
    let mixed = points
        .values()
        .filter(|point| point.setting.scenario == Scenario::Mixed);
    assert_eq!(mixed.count(), 4);
    let (code, _, err) = places[0].sweep(&[]);
    assert_eq!(code, Some(2));
    assert!(err.contains("begun with --simulate"), "{err}");
}

#[test]
fn an_interrupted_sweep_keeps_what_it_has_and_says_how_to_go_on() {
    let place = Place::with(&small().replace("duration_s = 0.3", "duration_s = 600"));
    let mut started = place.start();
    let points = place.out().join("points");
    while std::fs::read_dir(&points).map_or(0, |entries| entries.count()) == 0 {
        std::thread::yield_now();
    }
    let (code, _, err) = place.sweep(&[]);
    assert_eq!(code, Some(2));
    assert!(err.contains("another sweep is writing into"), "{err}");
    started.signal("INT");
    let (code, out) = started.rest();
    assert_eq!(code, Some(130), "{out}");
    assert!(out.contains("0 of 6 points are kept"), "{out}");
    assert!(out.contains("go on with: evenkeel sweep"), "{out}");
    assert!(place.points().is_empty());
}

#[test]
fn another_plan_or_a_folder_of_others_is_refused() {
    let place = Place::with(&small());
    assert_eq!(place.sweep(&["--simulate"]).0, Some(0));
    std::fs::write(
        place.plan(),
        small().replace("[2]\nlengths", "[3]\nlengths"),
    )
    .unwrap();
    let (code, _, err) = place.sweep(&["--simulate"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("another plan, `small`"), "{err}");

    let others = Place::with(&small());
    std::fs::create_dir(others.out()).unwrap();
    std::fs::write(others.out().join("thesis.txt"), "mine").unwrap();
    let (code, _, err) = others.sweep(&["--simulate"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("thesis.txt is in it"), "{err}");
}

#[test]
fn a_wrong_plan_is_shown_with_its_line_before_anything_is_made() {
    for (plan, word) in [
        (
            small().replace("concurrency = [2]", "concurency = [2]"),
            "did you mean `concurrency`",
        ),
        (
            format!(
                "{}[[variants]]\nname = \"v\"\nchange = {{ concurrency = 1, policy = \"random\" }}\n",
                small()
            ),
            "one variable at a time",
        ),
        ("name = ".into(), "not TOML"),
    ] {
        let place = Place::with(&plan);
        let (code, _, err) = place.sweep(&[]);
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains(word) && err.contains("plan.toml:"), "{err}");
        assert!(!place.out().exists());
    }
    let (status, _, err) = run(&["sweep", "/no/plan.toml", "--out", "/no/out"]);
    assert_eq!(status.code(), Some(2));
    assert!(err.contains("/no/plan.toml"), "{err}");
}

/// A plan for a fleet of somebody's; `hooks` are lines of that table.
fn live(url: &str, hooks: &str, more: &str) -> String {
    format!(
        "name = \"live\"\n[fleet]\nkind = \"live\"\nbase_url = \"{url}\"\n[hooks]\n{hooks}\n\
        [timing]\nwarm_up_s = 0\nduration_s = 0.2\nlook_every_s = 0.02\n\
        [online]\nconcurrency = [1, 2]\nlengths = [\"tiny\"]\n{LENGTHS}{more}"
    )
}

/// Engines of this process behind a plan that is run to its end.
async fn with_engine(
    plan: impl FnOnce(&str) -> String,
    check: impl FnOnce(&Place) + Send + 'static,
) {
    let profile = Profile::load("test-fast").unwrap();
    let engines = server::start(EngineOptions::new(profile, 1)).await.unwrap();
    let place = Place::with(&plan(&format!("http://{}", engines.addrs()[0])));
    tokio::task::spawn_blocking(move || check(&place))
        .await
        .unwrap();
    engines.shutdown().await;
}

/// A script that writes down what it is told; `log` is its only argument.
fn script(dir: &Path) -> PathBuf {
    let path = dir.join("fleet.sh");
    let text = "echo $2 $EVENKEEL_INSTANCES $EVENKEEL_GPUS $EVENKEEL_POLICY $EVENKEEL_VARIANT $EVENKEEL_POINT $EVENKEEL_ENGINE_MAX_NUM_SEQS >> $1\necho said $2\n";
    std::fs::write(&path, text).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hooks_make_the_fleet_that_a_point_wants_and_exporters_are_read() {
    let tools = Dir::new();
    let (fleet, told) = (script(&tools.0), tools.0.join("told"));
    let hook = |which: &str| {
        format!(
            "{which} = \"sh {} {} {which}\"",
            fleet.display(),
            told.display()
        )
    };
    let hooks = ["start", "restart", "stop"].map(hook).join("\n");
    let exporter = Script::new(|_| {
        Reply::whole(200, "text/plain", b"DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 90\nDCGM_FI_DEV_GPU_UTIL{gpu=\nDCGM_FI_DEV_GPU_UTIL{gpu=\"1\"} 10\n")
    })
    .start();
    let exporter_url = exporter.url();
    let plan = |url: &str| {
        let more = format!(
            "[engine]\nmax_num_seqs = 8\n[[variants]]\nname = \"wide\"\nchange = {{ engine = {{ max_num_seqs = 9 }} }}\nat = {{ concurrency = [2] }}\n\
            [[monitor]]\nkind = \"engine\"\nurl = \"{url}/metrics\"\ninstance = \"i0\"\n\
            [[monitor]]\nkind = \"gpu\"\nurl = \"{exporter_url}/metrics\"\ninstance = \"i0\"\ngpu = \"0\"\n\
            [[monitor]]\nkind = \"gpu\"\nurl = \"http://127.0.0.1:1/metrics\"\ninstance = \"i1\"\n\
            [[monitor]]\nkind = \"host\"\nurl = \"http://127.0.0.1:1/metrics\"\n"
        );
        live(url, &hooks, &more)
    };
    let told_by = told.clone();
    with_engine(plan, move |place| {
        let (code, out, err) = place.sweep(&[]);
        assert_eq!(code, Some(0), "{out}{err}");
        let folder = Folder::new(place.out());
        let points = folder.points().unwrap();
        assert_eq!(points.len(), 3);
        let id = |at: usize| points[at].0.id.clone();
        let line = |which: &str, variant: &str, at: usize, seqs: u32| {
            format!(
                "{which} 1 1 least_outstanding_tokens {variant} {} {seqs}",
                id(at)
            )
        };
        let told = std::fs::read_to_string(&told_by).unwrap();
        let right = [
            line("start", "base", 0, 8),
            line("restart", "base", 1, 8),
            line("stop", "base", 1, 8),
            line("start", "wide", 2, 9),
            line("stop", "wide", 2, 9),
        ];
        assert_eq!(told.lines().collect::<Vec<_>>(), right);
        for (point, files) in points {
            let readings = lines::<Reading>(&files, "monitor.jsonl");
            let of = |source| readings.iter().filter(move |one| one.source == source);
            assert!(of(Source::Engine).count() > 1);
            assert!(of(Source::Gpu).all(|one| one.figures.gpu_use_share == Some(0.9)));
            assert!(of(Source::Gpu).count() > 1);
            assert_eq!(
                of(Source::Host).count(),
                0,
                "what does not answer is absent"
            );
            let notes = point.notes.join("\n");
            assert!(notes.contains("lines that are no figures"), "{notes}");
            assert_eq!(
                notes.matches("did not answer").count(),
                1,
                "i1 is not of one instance: {notes}"
            );
            assert!(notes.contains("hook "), "{notes}");
            let log = std::fs::read_to_string(files.file("hooks.log")).unwrap();
            assert!(log.contains("said "), "{log}");
            assert!(!files.file("records.jsonl").exists());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_hook_stops_the_sweep_with_its_output_and_the_fleet_is_stopped() {
    let tools = Dir::new();
    let stopped = tools.0.join("stopped");
    let hooks = format!(
        "start = \"true\"\nrestart = \"echo no GPU left; exit 7\"\nstop = \"touch {}\"",
        stopped.display()
    );
    with_engine(
        |url| live(url, &hooks, ""),
        |place| {
            let (code, out, err) = place.sweep(&[]);
            assert_eq!(code, Some(1));
            for word in [
                "`restart` failed with exit code 7",
                "no GPU left\n",
                "same sweep again",
            ] {
                assert!(err.contains(word), "{err}");
            }
            assert!(out.contains("1 of 2 points are kept"), "{out}");
            assert_eq!(place.points().len(), 1);
        },
    )
    .await;
    assert!(stopped.exists());
}

#[test]
fn a_fleet_that_never_answers_is_given_up_with_what_to_do() {
    let plan = live(
        "http://127.0.0.1:1",
        "start = \"true\"\nready_limit_s = 0.1",
        "",
    );
    let (code, _, err) = Place::with(&plan).sweep(&[]);
    assert_eq!(code, Some(1));
    for word in [
        "http://127.0.0.1:1/v1/models was not ready within 0.1 s",
        "ready_limit_s",
    ] {
        assert!(err.contains(word), "{err}");
    }
}
