//! Whether what was planted is there: each kind shows the marks a person would name it by.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::report::goodput::Objective;
use crate::report::latency::Figure;
use crate::study::Scaling;
use crate::study::monitor::{Figures, Reading, Source};

/// A point in the figures that tell faults apart; of instances, the means over those that are there.
#[derive(Debug)]
struct Seen {
    scaling: Scaling,
    units: u32,
    load_each: f64,
    tokens_per_s: f64,
    tpot_ms: f64,
    gpu_use: f64,
    sm_active: f64,
    running: f64,
    waiting: f64,
    kv_used: f64,
    preemptions: f64,
    host_cpu: f64,
    generator_cpu: f64,
    late_ms: f64,
    /// requests that count
    requests: u64,
    /// share of them within the service level
    met: f64,
    /// open requests on the fullest instance over the mean
    hot: f64,
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let all: Vec<f64> = values.collect();
    all.iter().sum::<f64>() / all.len().max(1) as f64
}

fn seen(study: &PlantedStudy, point: &SimPoint) -> Seen {
    let objectives = study.objectives.iter();
    let objectives = objectives.map(|text| Objective::parse(text).unwrap());
    let summary = point.summary(objectives.collect());
    let tpot = summary.latencies.get(Figure::Tpot).unwrap();
    let window = summary.window.unwrap();
    let (from_s, until_s) = (window.from_ns as f64 / 1e9, window.to_ns as f64 / 1e9);
    let measured = |reading: &&Reading| (from_s..until_s).contains(&reading.at_s);
    let of = |source: Source, figure: fn(&Figures) -> Option<f64>| {
        let its = point.readings.iter().filter(measured);
        mean(
            its.filter(|reading| reading.source == source)
                .filter_map(|reading| figure(&reading.figures)),
        )
    };
    let open_on = |name: String| {
        let its = point.readings.iter().filter(measured);
        let its = its.filter(|reading| reading.instance.as_deref() == Some(&name));
        mean(its.filter_map(|reading| reading.figures.open_requests))
    };
    let open: Vec<f64> = (0..point.setting.instances)
        .map(|at| open_on(crate::simulate::instance_name(at)))
        .collect();
    let last = point
        .readings
        .iter()
        .rfind(|reading| reading.source == Source::Engine);
    Seen {
        scaling: point.setting.scaling,
        units: point.setting.instances * point.setting.gpus_per_instance,
        load_each: point.setting.load_per_instance,
        tokens_per_s: summary.throughput.unwrap().output_tokens_per_s(),
        tpot_ms: tpot.percentile(50.0).unwrap(),
        requests: summary.counts.kept,
        met: summary.goodput.as_ref().unwrap().good as f64 / summary.counts.kept as f64,
        gpu_use: of(Source::Gpu, |figures| figures.gpu_use_share),
        sm_active: of(Source::Gpu, |figures| figures.sm_active_share),
        running: of(Source::Engine, |figures| figures.running),
        waiting: of(Source::Engine, |figures| figures.waiting),
        kv_used: of(Source::Engine, |figures| figures.kv_used_share),
        preemptions: last.unwrap().figures.preemptions_total.unwrap(),
        host_cpu: of(Source::Host, |figures| figures.cpu_use_share),
        generator_cpu: of(Source::Generator, |figures| figures.cpu_use_share),
        late_ms: point
            .run
            .lag
            .filter(|_| point.scheduled)
            .map_or(0.0, |lag| lag.own_p99_ms),
        hot: open.iter().copied().fold(0.0, f64::max) / mean(open.into_iter()).max(0.01),
    }
}

/// The points of each study of a kind, seen.
fn studies(kind: Kind, count: u32) -> Vec<(PlantedStudy, Vec<Seen>)> {
    let run = |study: PlantedStudy| {
        let points = study.run().unwrap();
        let all = points.iter().map(|point| seen(&study, point)).collect();
        (study, all)
    };
    variants(kind, count, 1)
        .unwrap()
        .into_iter()
        .map(run)
        .collect()
}

/// The points of one size, lowest load first.
fn of_size(all: &[Seen], scaling: Scaling, units: u32) -> Vec<&Seen> {
    let fits = |one: &&Seen| one.units == units && (units == 1 || one.scaling == scaling);
    all.iter().filter(fits).collect()
}

/// The points of one instance, and those of four.
fn one_and_four(all: &[Seen]) -> (Vec<&Seen>, Vec<&Seen>) {
    (
        of_size(all, Scaling::Horizontal, 1),
        of_size(all, Scaling::Horizontal, 4),
    )
}

fn efficiency(one: &Seen, more: &Seen) -> f64 {
    assert_eq!(one.load_each, more.load_each);
    more.tokens_per_s / (f64::from(more.units) * one.tokens_per_s)
}

/// How much the last doubling of the load brings: 2 is all of it.
fn last_gain(points: &[&Seen]) -> f64 {
    let [.., before, last] = points else {
        panic!("too few points")
    };
    last.tokens_per_s / before.tokens_per_s
}

#[test]
fn a_healthy_fleet_scales_and_keeps_its_service_level_and_has_room() {
    for (study, all) in studies(Kind::Healthy, 6) {
        assert!(study.truth.is_empty());
        for more in all.iter().filter(|one| one.units > 1) {
            let one = all
                .iter()
                .find(|one| one.units == 1 && one.load_each == more.load_each)
                .unwrap();
            // how many requests end in the window is chance, and under Poisson arrivals how many come
            let chance = 2.5 * (1.0 / one.requests as f64 + 1.0 / more.requests as f64).sqrt();
            let found = efficiency(one, more);
            assert!(
                found >= 0.95 - chance.max(0.05),
                "{}: {one:?} {more:?}",
                study.name
            );
        }
        for one in &all {
            assert!(
                one.waiting < 1.0 && one.preemptions == 0.0 && one.kv_used < 0.7,
                "{}: {one:?}",
                study.name
            );
            assert!(
                one.host_cpu < 0.3 && one.generator_cpu < 0.5,
                "{}: {one:?}",
                study.name
            );
        }
        let half = &of_size(&all, all.last().unwrap().scaling, 4)[2];
        assert!(
            half.met >= study.attainment,
            "{}: {half:?} {:?}",
            study.name,
            study.objectives
        );
    }
}

#[test]
fn a_compute_bound_fleet_gains_nothing_but_tpot_at_full_gpus() {
    for (study, all) in studies(Kind::One(Fault::ComputeBound), 3) {
        let (one, _) = one_and_four(&all);
        let [.., before, last] = &one[..] else {
            panic!()
        };
        assert!(
            last_gain(&one) < 1.2 && last.tpot_ms > 1.5 * before.tpot_ms,
            "{}: {last:?}",
            study.name
        );
        assert!(
            last.gpu_use > 0.95 && last.sm_active > 0.8 && last.kv_used < 0.7,
            "{}: {last:?}",
            study.name
        );
        assert_eq!(last.preemptions, 0.0);
    }
}

#[test]
fn too_few_sequences_leave_a_queue_before_an_empty_cache_and_tpot_as_it_was() {
    for (study, all) in studies(Kind::One(Fault::MaxNumSeqs), 3) {
        let (one, _) = one_and_four(&all);
        let [first, .., last] = &one[..] else {
            panic!()
        };
        let most = f64::from(study.points[0].fleet.profile.max_num_seqs);
        assert!(
            last_gain(&one) < 1.05 && last.tpot_ms < 1.2 * first.tpot_ms,
            "{}: {last:?}",
            study.name
        );
        assert!(
            last.running > 0.95 * most && last.waiting > 5.0 * most,
            "{}: {last:?}",
            study.name
        );
        assert!(
            last.kv_used < 0.2 && last.preemptions == 0.0,
            "{}: {last:?}",
            study.name
        );
    }
}

#[test]
fn a_skewed_balancer_fills_one_instance_and_loses_what_the_others_could_do() {
    for (study, all) in studies(Kind::One(Fault::SkewedBalancer), 3) {
        let (one, four) = one_and_four(&all);
        let (one, four) = (one.last().unwrap(), four.last().unwrap());
        assert!(four.hot > 2.8, "{}: {four:?}", study.name);
        assert!(efficiency(one, four) < 0.7, "{}: {four:?}", study.name);
    }
}

#[test]
fn a_small_cache_is_full_and_preempts() {
    for (study, all) in studies(Kind::One(Fault::KvPreemption), 3) {
        let (one, four) = one_and_four(&all);
        for last in [one.last().unwrap(), four.last().unwrap()] {
            assert!(
                last.kv_used > 0.9 && last.preemptions > 100.0 && last.waiting > 10.0,
                "{}: {last:?}",
                study.name
            );
        }
        assert!(last_gain(&one) < 1.05);
    }
}

#[test]
fn a_busy_cpu_leaves_the_gpu_idle() {
    for (study, all) in studies(Kind::One(Fault::CpuBound), 3) {
        let (one, _) = one_and_four(&all);
        let last = one.last().unwrap();
        assert!(last_gain(&one) < 1.05, "{}: {last:?}", study.name);
        assert!(
            last.gpu_use < 0.5 && last.host_cpu > 0.95 && last.waiting < 1.0,
            "{}: {last:?}",
            study.name
        );
    }
}

#[test]
fn a_bad_link_keeps_gpus_busy_with_each_other() {
    for (study, all) in studies(Kind::One(Fault::Communication), 3) {
        let one = of_size(&all, Scaling::Vertical, 1);
        let four = of_size(&all, Scaling::Vertical, 4);
        for (one, four) in one.iter().zip(&four) {
            assert!(efficiency(one, four) < 0.6, "{}: {four:?}", study.name);
            assert!(
                four.gpu_use > 0.9 && four.sm_active < 0.4,
                "{}: {four:?}",
                study.name
            );
        }
        let machines = of_size(&all, Scaling::Horizontal, 4);
        for (one, four) in one
            .iter()
            .zip(machines)
            .filter(|(one, _)| one.requests >= 100)
        {
            assert!(efficiency(one, four) > 0.9, "{}: {four:?}", study.name);
        }
    }
}

#[test]
fn a_slow_client_is_full_while_the_fleet_is_not() {
    for (study, all) in studies(Kind::One(Fault::SlowClient), 4) {
        let (one, four) = one_and_four(&all);
        let last = four.last().unwrap();
        assert!(
            last.generator_cpu > 0.85 && efficiency(one.last().unwrap(), last) < 0.5,
            "{}: {last:?}",
            study.name
        );
        assert!(
            last.running < 0.7 * one.last().unwrap().running && last.waiting < 5.0,
            "{}: {last:?}",
            study.name
        );
        let scheduled = matches!(
            study.points[0].setting.load,
            crate::study::Load::Poisson { .. }
        );
        assert!(
            !scheduled || last.late_ms > 1000.0,
            "{}: {last:?}",
            study.name
        );
    }
}

#[test]
fn of_two_faults_one_shows_on_one_instance_and_the_other_on_four() {
    let mut first_faults = std::collections::BTreeSet::new();
    for (study, all) in studies(Kind::Two, 9) {
        let (one, four) = one_and_four(&all);
        let alone = one.last().unwrap();
        assert!(last_gain(&one) < 1.05, "{}: {alone:?}", study.name);
        let shows = match study.truth[0] {
            Fault::MaxNumSeqs => alone.waiting > 5.0 * alone.running && alone.kv_used < 0.2,
            Fault::KvPreemption => alone.preemptions > 100.0 && alone.kv_used > 0.9,
            Fault::CpuBound => alone.host_cpu > 0.95 && alone.gpu_use < 0.5,
            _ => false,
        };
        assert!(shows, "{}: {alone:?}", study.name);
        assert_eq!(study.truth[1], Fault::SkewedBalancer);
        assert!(four.iter().all(|one| one.hot > 2.5), "{}", study.name);
        first_faults.insert(study.truth[0]);
    }
    assert_eq!(first_faults.len(), 3);
}

#[test]
fn a_planted_efficiency_is_that_of_the_runs() {
    for seed in 1..4 {
        let study = of_efficiency(0.78, seed).unwrap();
        let all: Vec<Seen> = study
            .run()
            .unwrap()
            .iter()
            .map(|point| seen(&study, point))
            .collect();
        let (one, four) = one_and_four(&all);
        let found = efficiency(one.last().unwrap(), four.last().unwrap());
        assert!((found - 0.78).abs() < 0.03, "seed {seed}: {found}");
    }
}

#[test]
fn studies_are_the_same_every_time_and_a_larger_count_goes_on() {
    let drawn = |count, seed| {
        let studies = variants(Kind::One(Fault::CpuBound), count, seed).unwrap();
        studies
            .iter()
            .map(|study| format!("{study:?}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(drawn(4, 1), drawn(6, 1)[..4]);
    assert_ne!(drawn(4, 1), drawn(4, 2));
    let study = &variants(Kind::Healthy, 1, 7).unwrap()[0];
    let (once, again) = (study.run().unwrap(), study.run().unwrap());
    assert_eq!(once[3].run.samples, again[3].run.samples);
    let ids: std::collections::HashSet<String> = study
        .points
        .iter()
        .map(|point| point.setting.id())
        .collect();
    assert_eq!(ids.len(), study.points.len());
}
