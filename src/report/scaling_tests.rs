#![allow(clippy::unwrap_used)]
use super::*;
use crate::report::capacity::Sign;
use crate::report::fixture::{study_file, view, view_at};
use crate::study::Load;

#[test]
fn efficiency_is_at_equal_load_for_each_instance_and_never_at_equal_total_load() {
    let points = [
        view(1, 1, 16, 1000.0),
        view(1, 1, 32, 1500.0),
        view(4, 1, 16, 1000.0),
        view(4, 1, 64, 3120.0),
        view(4, 1, 128, 3000.0),
    ];
    let views = scalings(&points, &study_file(None));
    assert_eq!((views.len(), views[0].scaling), (1, Scaling::Horizontal));
    let fleet = &views[0].fleets[1];
    let told: Vec<(f64, f64, Band)> = fleet
        .at_equal_load
        .iter()
        .map(|one| (one.load_per_unit, one.value, one.band))
        .collect();
    assert_eq!(
        told,
        [
            (16.0, 0.78, Band::Acceptable),
            (32.0, 0.5, Band::Bottleneck)
        ]
    );
    // the fleet's best is 64 places, that of the one 32
    let best = fleet.at_best.as_ref().unwrap();
    assert!((best.value - 3120.0 / 4.0 / 1500.0).abs() < 1e-9);
    assert_eq!(fleet.effective.as_ref().unwrap().load, 64.0);
    assert_eq!(fleet.overload.as_ref().unwrap().sign, Sign::ThroughputFell);
    assert_eq!(fleet.overload.as_ref().unwrap().load, 128.0);
    assert!(
        views[0].fleets[0]
            .effective
            .as_ref()
            .unwrap()
            .is_highest_tried
    );
}

#[test]
fn horizontal_and_vertical_are_apart() {
    let points = [
        view(1, 1, 16, 1000.0),
        view(1, 4, 64, 2400.0),
        view(2, 1, 32, 1900.0),
        view(2, 4, 128, 4700.0),
    ];
    let views = scalings(&points, &study_file(None));
    let told: Vec<(Scaling, Vec<(u32, u32)>)> = views
        .iter()
        .map(|view| {
            let sizes = view.fleets.iter();
            let sizes = sizes.map(|fleet| (fleet.instances, fleet.gpus_per_instance));
            (view.scaling, sizes.collect())
        })
        .collect();
    assert_eq!(
        told,
        [
            (Scaling::Horizontal, vec![(1, 1), (2, 1)]),
            (Scaling::Vertical, vec![(1, 1), (1, 4)]),
            // two of four GPUs are a multiple of one of four
            (Scaling::Horizontal, vec![(1, 4), (2, 4)]),
        ]
    );
    let vertical = views[1].fleets[1].at_highest_load().unwrap();
    assert_eq!((vertical.value, vertical.band), (0.6, Band::Doubtful));
}

#[test]
fn the_interval_says_what_it_was_made_from() {
    let mut points = vec![view(1, 1, 16, 1000.0), view(2, 1, 32, 1800.0)];
    let of = |points: &[PointView]| {
        let views = scalings(points, &study_file(None));
        views[0].fleets[1].at_equal_load[0].clone()
    };
    let slices = of(&points);
    assert_eq!(slices.interval_of, Some(IntervalOf::Slices));
    for repeat in 1..4 {
        let shift = f64::from(repeat);
        points.push(view_at(1, 1, 16, 1000.0 + shift, repeat));
        points.push(view_at(2, 1, 32, 1800.0 - 40.0 * shift, repeat));
    }
    let repeats = of(&points);
    assert_eq!(repeats.interval_of, Some(IntervalOf::Repeats));
    assert!(repeats.interval.unwrap().contains(repeats.value));
    assert_eq!(repeats.points.len(), 8);
    assert!((repeats.value - 1740.0 / 2003.0).abs() < 1e-9);
}

#[test]
fn failures_lower_what_an_efficiency_is_called() {
    let mut points = [view(1, 1, 16, 1000.0), view(2, 1, 32, 1950.0)];
    points[1].success_share = Some(0.95);
    let views = scalings(&points, &study_file(None));
    let one = &views[0].fleets[1].at_equal_load[0];
    assert_eq!(one.band, Band::Acceptable);
    assert!((one.failed_share.unwrap() - 0.05).abs() < 1e-9);
    // without objectives, a load that loses requests is not effective
    assert_eq!(views[0].fleets[1].effective, None);
}

#[test]
fn the_service_level_bounds_the_largest_effective_load() {
    let mut points = [
        view(1, 1, 16, 1000.0),
        view(1, 1, 32, 1500.0),
        view(1, 1, 64, 1800.0),
    ];
    for (point, share) in points.iter_mut().zip([1.0, 0.995, 0.6]) {
        point.attainment = Some(share);
        point.good_output_tokens_per_s = Some(900.0);
    }
    let with_twice = [points.to_vec(), vec![view(2, 1, 32, 1990.0)]].concat();
    let views = scalings(&with_twice, &study_file(Some(3.6)));
    let one = &views[0].fleets[0];
    let effective = one.effective.as_ref().unwrap();
    assert_eq!((effective.load, effective.is_highest_tried), (32.0, false));
    // 3.6 an hour are 0.001 a second, for 900 tokens
    assert!((one.price_per_million_tokens.unwrap() - 0.001 / 900.0 * 1e6).abs() < 1e-9);
    assert_eq!(one.overload, None);
}

#[test]
fn offline_work_must_not_take_longer_each_with_more_instances() {
    let mut points = [view(1, 1, 100, 1000.0), view(2, 1, 200, 1900.0)];
    for (point, requests) in points.iter_mut().zip([100, 200]) {
        point.setting.scenario = Scenario::Offline;
        point.setting.load = Load::Batch { requests };
    }
    let grew = |points: &[PointView]| {
        let views = scalings(points, &study_file(None));
        views[0].fleets[1].at_equal_load[0].request_time_grew
    };
    assert!(!grew(&points));
    let slower = points[1].latencies.e2e.as_mut().unwrap();
    slower.mean *= 1.3;
    assert!(grew(&points));
}
