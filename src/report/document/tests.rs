//! What a report must hold.
#![allow(clippy::unwrap_used)]

use super::sample::{matrix, point, setting, study};
use super::told::tell_apart;
use super::{Document, Part};
use crate::report::page::page;
use crate::study::{Load, Scenario};

#[test]
fn a_study_without_a_point_makes_a_page_that_says_so() {
    let page = page(&Document::of(&[study("empty", &[])]));
    assert!(page.contains("not measured") && !page.contains("NaN"));
}

#[test]
fn one_point_makes_a_whole_page() {
    let one = point(setting(
        Scenario::Online,
        1,
        Load::Closed { concurrency: 4 },
    ));
    let page = page(&Document::of(&[study("one", &[one])]));
    assert!(page.contains("online-n1-g1-c4"));
    assert!(!page.contains("NaN") && !page.contains(">inf"));
}

#[test]
fn what_a_plan_says_is_never_markup() {
    let mut bad = setting(Scenario::Online, 1, Load::Closed { concurrency: 4 });
    let script = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>";
    bad.lengths = script.into();
    bad.policy = script.into();
    bad.variant = script.into();
    bad.engine
        .insert(script.into(), toml::Value::String(script.into()));
    let mut points = vec![
        point(setting(
            Scenario::Online,
            2,
            Load::Closed { concurrency: 8 },
        )),
        point(setting(
            Scenario::Online,
            1,
            Load::Closed { concurrency: 4 },
        )),
    ];
    points[1].file.setting = bad;
    points[1].file.notes.push(script.into());
    points[1].requests[0].id = script.into();
    let mut study = study(script, &points);
    study.file.machine.system = script.into();
    study.plan = Some(script.into());
    study.unfinished.push(script.into());
    let page = page(&Document::of(&[study]));
    assert!(!page.contains("<script>alert") && !page.contains("<img"));
    assert!(page.contains("&lt;script&gt;alert"));
}

#[test]
fn tables_have_one_name_each_and_every_row_has_its_cells() {
    let document = Document::of(&[study("matrix", &matrix())]);
    let tables = document.tables();
    let mut ids: Vec<&str> = tables.iter().map(|table| table.id.as_str()).collect();
    ids.sort_unstable();
    let all = ids.len();
    ids.dedup();
    assert_eq!((ids.len(), all > 10), (all, true));
    for table in tables {
        let mut keys: Vec<&str> = table.columns.iter().map(|column| column.key).collect();
        keys.sort_unstable();
        let columns = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), columns, "keys of {}", table.id);
        assert!(
            table.rows.iter().all(|row| row.cells.len() == columns),
            "{}",
            table.id
        );
    }
}

#[test]
fn a_point_that_nothing_watched_says_that_of_gpus_and_not_zero() {
    let mut one = point(setting(
        Scenario::Online,
        1,
        Load::Closed { concurrency: 4 },
    ));
    one.monitor.clear();
    for request in &mut one.requests {
        request.served = None;
    }
    let document = Document::of(&[study("blind", &[one])]);
    let tables = document.tables();
    let watched = tables.iter().find(|table| table.id == "watched").unwrap();
    let json = serde_json::to_value(watched).unwrap();
    assert!(json["rows"][0]["gpu_use_share"].is_null());
    let server = tables
        .iter()
        .find(|table| table.id == "server_ttft")
        .unwrap();
    assert!(serde_json::to_value(server).unwrap()["rows"][0]["p99_ms"].is_null());
}

#[test]
fn studies_stand_side_by_side_where_their_points_are_the_same() {
    let one = |instances| {
        let load = Load::Closed {
            concurrency: 4 * instances,
        };
        point(setting(Scenario::Online, instances, load))
    };
    let mut second = study("second", &[one(1), one(2)]);
    for (index, point) in second.points.iter_mut().enumerate() {
        point.place = format!("point-1-{index}");
    }
    let document = Document::of(&[study("first", &[one(1)]), second]);
    let tables = document.tables();
    let compared = tables.iter().find(|table| table.id == "compared").unwrap();
    let rows = serde_json::to_value(compared).unwrap()["rows"].clone();
    assert_eq!(rows.as_array().unwrap().len(), 2);
    assert_eq!(rows[0]["study"], "first");
    assert_eq!(
        (&rows[1]["study"], &rows[1]["output_ratio"]),
        (&"second".into(), &1.0.into())
    );
    assert_eq!(document.heads.len(), 2);
}

#[test]
fn studies_of_one_name_are_told_apart_by_their_folders() {
    let mut studies = [study("a", &[]), study("a", &[]), study("b", &[])];
    studies[1].folder = "later".into();
    tell_apart(&mut studies);
    let labels: Vec<&str> = studies.iter().map(|study| study.label.as_str()).collect();
    assert_eq!(labels, ["a (study)", "a (later)", "b"]);
}

#[test]
fn links_of_rows_lead_to_places_of_the_page() {
    let document = Document::of(&[study("matrix", &matrix())]);
    let page = page(&document);
    for table in document.tables() {
        for link in table.rows.iter().filter_map(|row| row.link.as_ref()) {
            assert!(page.contains(&format!("id=\"{link}\"")), "{link}");
        }
    }
    let points = document
        .sections
        .iter()
        .find(|section| section.id == "points");
    assert!(matches!(points.unwrap().parts[0], Part::Choice(_)));
}
