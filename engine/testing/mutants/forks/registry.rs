//! A local registry in a forked child of the process that opened it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use xuid_spill::SpillId;

use super::{end, fork, has_changed};
use crate::Layout;
use crate::registry::local::{CreateOptions, LocalRegistry};
use crate::registry::{MarkRecord, Registry, Token, WorkerRecord};
use crate::sys::guards::Guard;
use crate::testing::mutants::only_without;

/// What each file of a folder holds.
fn files(folder: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    files.map(|file| (file.file_name(), std::fs::read(file.path()).unwrap())).collect()
}

/// The calls of a registry that a forked child makes, each with whether it was refused as a fork's.
fn calls_of_a_child(registry: &mut LocalRegistry) -> [(&'static str, bool); 7] {
    fn is_refused<T, E: ToString>(answer: Result<T, E>) -> bool {
        answer.is_err_and(|error| error.to_string().contains("is a fork of the one that opened"))
    }
    let (spill, token) = (SpillId::from_bytes([2; 16]), Token([9; 16]));
    let claim = WorkerRecord { reserved_until: 9_000, token, operation: 9, owner: "a child".into() };
    let mark = MarkRecord { granted_upto: 9, token, operation: 9 };
    [
        ("worker", is_refused(registry.worker(1))),
        ("workers", is_refused(registry.workers())),
        ("mark", is_refused(registry.mark(spill))),
        ("claim", is_refused(registry.claim(0, 1, &claim))),
        ("swap_worker", is_refused(registry.swap_worker(1, 2, &claim))),
        ("create_mark", is_refused(registry.create_mark(SpillId::from_bytes([3; 16]), &mark))),
        ("swap_mark", is_refused(registry.swap_mark(spill, 2, &mark))),
    ]
}

/// Without the page only its id tells a process from its parent, and the first one of a pid namespace has its parent's.
#[test]
fn a_forked_child_is_refused_each_call_of_its_parents_registry_and_leaves_its_seat_alone() {
    only_without(&[Guard::ForkPage], || {
        let folder = tempfile::tempdir().unwrap();
        let options = CreateOptions { layout: Layout::default(), floor: 1_000, workers: 4 };
        let open = || LocalRegistry::open_or_create(folder.path(), &options).unwrap();
        let mut registry = open();
        let claim =
            WorkerRecord { reserved_until: 5_000, token: Token([1; 16]), operation: 1, owner: "us".into() };
        registry.claim(1, 1, &claim).unwrap();
        let mark = MarkRecord { granted_upto: 5, token: Token([1; 16]), operation: 2 };
        registry.create_mark(SpillId::from_bytes([2; 16]), &mark).unwrap();
        let before = files(folder.path());
        let child = fork();
        if child == 0 {
            let is_open = calls_of_a_child(&mut registry).iter().any(|(_, refused)| !refused);
            registry.leave(1);
            registry.close();
            drop(registry);
            end(is_open);
        }
        if has_changed(child) {
            return Some("the child was not refused".into());
        }
        assert_eq!(files(folder.path()), before, "the child wrote");
        // The seat is still locked, and says who holds what.
        let live = open().workers().unwrap().remove(1).live;
        assert!(live.is_some_and(|holder| holder.ends_with(&format!("pid {}", std::process::id()))));
        registry.swap_worker(1, 2, &WorkerRecord { reserved_until: 6_000, ..claim }).unwrap();
        None
    });
}
