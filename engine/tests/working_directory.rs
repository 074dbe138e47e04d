//! A process that changes its working directory after it built an engine. The directory is the process's, so this test is
//! alone in its file.

use std::time::Duration;

use xuid_engine::registry::local::{CreateOptions, LocalRegistry};
use xuid_engine::{Engine, Layout, Order, Run};

#[test]
fn an_engine_on_a_relative_folder_goes_on_when_the_process_works_elsewhere() {
    let place = tempfile::tempdir().unwrap();
    std::env::set_current_dir(place.path()).unwrap();
    let engine = Engine::builder().data_dir("of-builder").build().unwrap();
    let options = CreateOptions { layout: Layout::default(), floor: 0, workers: 4 };
    let registry = LocalRegistry::open_or_create("of-registry".as_ref(), &options).unwrap();
    let other = Engine::builder().registry(Box::new(registry)).build().unwrap();
    std::env::set_current_dir("/").unwrap();
    for engine in [engine, other] {
        // The first window is of two seconds, the next one of four.
        while engine.stats().windows.left_ms <= 2_000 {
            let status = engine.status();
            // The second engine has no spill, and says so.
            let is_troubled = status.notes.iter().any(|note| note.contains("registry"));
            assert!(status.fresh && !is_troubled, "{status:?}");
            std::thread::park_timeout(Duration::from_millis(10));
        }
        assert_eq!(engine.runs(10, Order::Fresh).unwrap().iter().map(Run::len).sum::<u32>(), 10);
        engine.shutdown();
    }
    assert!(place.path().join("of-builder/registry").is_file());
    assert!(place.path().join("of-registry/registry").is_file());
}
