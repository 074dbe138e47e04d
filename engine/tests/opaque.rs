//! Engines of opaque ids: what callers see, and which key a namespace has.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use xuid_engine::registry::local::{CreateOptions, LocalError, LocalRegistry};
use xuid_engine::{
    BuildError, Engine, Face, Id, IdError, IdErrorKind, Layout, OpaqueKeyError, Order, Run, Veil,
};

const KEY: &str = "1b1a1918131211100b0a090803020100";

fn veil(text: &str) -> Veil {
    text.parse().unwrap()
}

fn build(folder: &Path, key: Option<&str>, layout: Option<Layout>) -> Result<Engine, BuildError> {
    let mut builder = Engine::builder().data_dir(folder).wait(Duration::from_secs(10));
    if let Some(key) = key {
        builder = builder.opaque_key(veil(key));
    }
    if let Some(layout) = layout {
        builder = builder.layout(layout);
    }
    builder.build()
}

fn ids_of(runs: Vec<Run>, ids: &mut Vec<Id>) {
    for run in runs {
        assert_eq!((run.len(), run.stride()), (1, 1), "no two sealed ids are neighbours");
        ids.extend(run);
    }
}

/// Takes ids in every way there is.
fn draw(engine: &Engine) -> Vec<Id> {
    let mut handle = engine.handle();
    let mut ids = Vec::new();
    for round in 0..20 {
        ids.extend((0..10).map(|_| engine.next_id().unwrap()));
        ids.extend((0..10).map(|_| handle.next_id().unwrap()));
        ids.extend((0..10).filter_map(|_| engine.try_next_id().ok()));
        for order in [Order::Any, Order::Fresh] {
            let mut filled = vec![Id::default(); 5 + round * 7];
            engine.fill(&mut filled, order).unwrap();
            ids.extend(filled);
            ids_of(engine.runs(1 + round as u32 * 3, order).unwrap(), &mut ids);
            // What is there already stays as it is.
            let mut runs = engine.runs(2, order).unwrap();
            if engine.try_runs(3, order, &mut runs).is_ok() {
                assert_eq!(runs.len(), 5);
            }
            ids_of(runs, &mut ids);
        }
    }
    ids
}

fn check(engine: &Engine, ids: &[Id], seen: &mut HashSet<Id>) {
    let now_ms = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    let (veil, layout) = (veil(KEY), Layout::default());
    for id in ids {
        assert!(seen.insert(*id), "{id} came twice");
        let parts = engine.decode(*id);
        assert_eq!(parts, layout.decode(veil.open(*id)));
        assert!(engine.workers().contains(&parts.worker), "{id} is of worker {}", parts.worker);
        assert!((now_ms - 300_000..now_ms + 1_000).contains(&parts.unix_ms), "{id} is of {}", parts.unix_ms);
    }
}

#[test]
fn opaque_ids_of_every_call_are_unique_open_and_are_accounted_for_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = HashSet::new();
    for _ in 0..2 {
        let engine = build(folder.path(), Some(KEY), None).unwrap();
        assert_eq!(engine.layout(), Layout::default().with_face(Face::Opaque));
        let ids = draw(&engine);
        check(&engine, &ids, &mut seen);
        let stats = engine.shutdown();
        assert_eq!((stats.moving(), stats.issued), (0, ids.len() as u64), "{stats:#?}");
    }
}

#[test]
fn a_call_for_ordered_opaque_ids_is_refused_however_it_is_made_and_nothing_is_spent() {
    let folder = tempfile::tempdir().unwrap();
    let engine = build(folder.path(), Some(KEY), None).unwrap();
    let refused = |found: Result<(), IdError>| {
        let error = found.unwrap_err();
        assert!(error.kind() == IdErrorKind::NoOrder && !error.is_retryable(), "{error:?}");
        assert!(error.to_string().contains("opaque") && error.retry_after().is_none(), "{error}");
    };
    let (mut runs, mut ids) = (Vec::new(), [Id::default(); 3]);
    refused(engine.try_runs(1, Order::Ordered, &mut runs));
    refused(engine.runs(1, Order::Ordered).map(drop));
    refused(engine.fill(&mut ids, Order::Ordered));
    let mut pending = std::pin::pin!(engine.request(1, Order::Ordered, Duration::from_secs(1)));
    match pending.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(answer) => refused(answer.map(drop)),
        std::task::Poll::Pending => panic!("it waits for what never comes"),
    }
    assert!(runs.is_empty() && ids == [Id::default(); 3]);
    let status = engine.status();
    assert_eq!((status.ready, status.fresh, status.ordered), (true, true, false));
    assert_eq!(engine.shutdown().issued, 0);
}

#[test]
fn a_namespace_has_one_key_for_ever_or_none_for_ever() {
    let (opaque, plain) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (opaque, plain) = (opaque.path(), plain.path());
    build(opaque, Some(KEY), None).unwrap().shutdown();
    build(plain, None, None).unwrap().shutdown();
    let other = KEY.replace("1b", "1c");
    let face = Layout::default().with_face(Face::Opaque);
    for (folder, key, layout, wanted) in [
        (opaque, None, None, OpaqueKeyError::Absent),
        (opaque, None, Some(Layout::default()), OpaqueKeyError::Absent),
        (opaque, None, Some(face), OpaqueKeyError::Absent),
        (opaque, Some(&*other), None, OpaqueKeyError::Other),
        (plain, Some(KEY), None, OpaqueKeyError::Unwanted),
        (plain, Some(KEY), Some(face), OpaqueKeyError::Unwanted),
    ] {
        match build(folder, key, layout) {
            Err(BuildError::Key(found)) => assert_eq!(found, wanted),
            found => panic!("{found:?} where {wanted:?} was wanted"),
        }
    }
    for layout in [Layout::default(), face] {
        build(opaque, Some(KEY), Some(layout)).unwrap().shutdown();
    }
}

#[test]
fn what_would_not_be_opaque_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let error = build(folder, Some(KEY), Some("js".parse().unwrap())).unwrap_err().to_string();
    assert!(error.contains("63 bits") && error.contains("53"), "{error}");
    let face = Layout::default().with_face(Face::Opaque);
    assert!(matches!(build(folder, None, Some(face)), Err(BuildError::Local(LocalError::Key(_)))));
    let options = CreateOptions { layout: face, floor: 0, workers: 4 };
    let made = LocalRegistry::open_or_create(folder, &options);
    assert!(matches!(made, Err(LocalError::Key(OpaqueKeyError::Absent))), "a registry of any key");
    assert!(!folder.join("registry").exists());
    let in_memory = Engine::memory(1).layout(face).build();
    assert!(matches!(in_memory, Err(BuildError::Key(OpaqueKeyError::Absent))), "nothing would seal its ids");
}
