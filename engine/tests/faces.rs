//! Engines of layouts whose ids are not `time | worker | sequence`, or have fewer bits than 63.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use xuid_engine::{Engine, Face, Floor, Id, Layout, Order};

const ORDERS: [Order; 3] = [Order::Any, Order::Fresh, Order::Ordered];

fn named(name: &str) -> Layout {
    name.parse().unwrap()
}

fn build(folder: &Path, layout: Layout) -> Engine {
    // Land of the last minutes, so that a layout of few ids a second is none that waits.
    let builder =
        Engine::builder().data_dir(folder).layout(layout).floor(Floor::Before(Duration::from_hours(1)));
    builder.workers(4).backfill(Duration::from_mins(1)).wait(Duration::from_secs(10)).build().unwrap()
}

/// Takes ids in every way there is.
fn draw(engine: &Engine) -> Vec<Id> {
    let mut handle = engine.handle();
    let mut ids = Vec::new();
    for round in 0..20 {
        ids.extend((0..10).map(|_| engine.next_id().unwrap()));
        ids.extend((0..10).map(|_| handle.next_id().unwrap()));
        ids.extend((0..10).filter_map(|_| engine.try_next_id().ok()));
        for order in ORDERS {
            let mut filled = vec![Id::default(); 5];
            engine.fill(&mut filled, order).unwrap();
            ids.extend(filled);
            for run in engine.runs(1 + round * 3, order).unwrap() {
                let stride = u64::from(run.stride());
                assert_eq!(run.stride(), engine.layout().run_stride());
                let (first, len) = (run.first().raw(), u64::from(run.len()));
                let of_run: Vec<_> = run.into_iter().collect();
                assert!(of_run.iter().map(|id| id.raw()).eq((0..len).map(|at| first + at * stride)));
                ids.extend(of_run);
            }
            let mut runs = Vec::new();
            if engine.try_runs(3, order, &mut runs).is_ok() {
                ids.extend(runs.into_iter().flatten());
            }
        }
    }
    ids
}

fn check(engine: &Engine, ids: &[Id], seen: &mut HashSet<Id>) {
    let (layout, workers) = (engine.layout(), engine.workers());
    let now_ms = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    for id in ids {
        assert!(seen.insert(*id), "{id} came twice");
        assert!(*id <= layout.last_id(), "{id} has more bits than {layout}");
        let parts = layout.decode(*id);
        assert!(workers.contains(&parts.worker), "{id} is of worker {}, not of {workers:?}", parts.worker);
        assert!((now_ms - 300_000..now_ms + 1_000).contains(&parts.unix_ms), "{id} is of {}", parts.unix_ms);
    }
}

#[test]
fn ids_of_every_call_bear_the_face_are_unique_and_accounted_for_over_a_restart() {
    for name in
        ["sonyflake", "sonyflake2", "js", "instagram", "35/9/12,tick=16ms", "41/5/7,face=worker-lowest"]
    {
        let folder = tempfile::tempdir().unwrap();
        let mut seen = HashSet::new();
        for _ in 0..2 {
            let engine = build(folder.path(), named(name));
            assert_eq!(engine.layout(), named(name));
            let ids = draw(&engine);
            check(&engine, &ids, &mut seen);
            let stats = engine.shutdown();
            assert_eq!(stats.moving(), 0, "{name}: every id is accounted for: {stats:#?}");
            assert_eq!(stats.issued, ids.len() as u64, "{name}: {stats:#?}");
        }
    }
}

#[test]
fn a_thread_that_calls_engines_of_both_faces_gets_of_each_its_own_ids() {
    let (plain, lowest) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engines = [build(plain.path(), Layout::default()), build(lowest.path(), named("sonyflake"))];
    let mut seen = [HashSet::new(), HashSet::new()];
    let mut drawn = [Vec::new(), Vec::new()];
    for round in 0..600 {
        for (engine, drawn) in engines.iter().zip(&mut drawn) {
            drawn.extend((0..=(round % 3)).map(|_| engine.next_id().unwrap()));
        }
    }
    for ((engine, seen), drawn) in engines.iter().zip(&mut seen).zip(&drawn) {
        check(engine, drawn, seen);
        engine.publish();
        let stats = engine.shutdown();
        assert_eq!((stats.moving(), stats.issued), (0, drawn.len() as u64), "{stats:#?}");
    }
}

#[test]
fn ordered_ids_ascend_as_callers_see_them_over_several_workers() {
    let folder = tempfile::tempdir().unwrap();
    // A tick of 128 ids: many of them are used up.
    let engine = build(folder.path(), named("41/5/7,face=worker-lowest"));
    let mut last = Id::default();
    for _ in 0..2_000 {
        for run in engine.runs(17, Order::Ordered).unwrap() {
            for id in run {
                assert!(id > last, "{id} after {last}");
                last = id;
            }
        }
    }
}

#[test]
fn a_folder_of_one_face_is_not_opened_with_another() {
    let folder = tempfile::tempdir().unwrap();
    build(folder.path(), named("sonyflake")).shutdown();
    let plain = named("sonyflake").with_face(Face::Plain);
    let error = Engine::builder().data_dir(folder.path()).layout(plain).build().unwrap_err().to_string();
    assert!(error.contains("worker-lowest"), "{error}");
}
