//! Fencing and adopting.

use super::*;
use crate::registry::Adopted;
use crate::registry::local::format::Side;

/// The tick, in the default layout, of a round time in 2023 and that time in nanoseconds.
const NOW_NS: u64 = 1_700_000_000_000_000_000;
const NOW_TICK: u64 = 1_700_000_000_000 - xuid_id::DEFAULT_EPOCH_MS;

#[test]
fn a_fence_raises_everything_above_what_was_granted() {
    let folder = folder();
    let mut registry = made_in(folder.path(), 4);
    registry.claim(1, 1, &claim_of(5_000, 1)).unwrap();
    registry.create_mark(spill(1), &mark_of(7, 2)).unwrap();
    let genesis = *registry.genesis();
    drop(registry);

    let fenced = fence_restored(folder.path(), NOW_NS).unwrap();
    assert_eq!(fenced.reserved_until, NOW_TICK + 125_001);
    assert_eq!((fenced.genesis, fenced.marks, fenced.repaired), (genesis, 1, 0));
    let mut registry = LocalRegistry::open(folder.path()).unwrap();
    assert_eq!(registry.genesis(), &genesis);
    for row in registry.workers().unwrap() {
        let found = row.record.unwrap();
        assert_eq!(found.record.reserved_until, fenced.reserved_until);
        assert!(found.version > 1 << 32);
    }
    let mark = registry.mark(spill(1)).unwrap();
    assert_eq!(mark.record.granted_upto, u64::MAX);
    assert!(mark.version > 1 << 32);
    registry.create_mark(spill(2), &mark_of(0, 3)).unwrap();
}

#[test]
fn a_fence_goes_above_the_highest_record_and_mends_damaged_ones() {
    let folder = folder();
    let mut registry = made_in(folder.path(), 4);
    registry.claim(1, 1, &claim_of(NOW_TICK + 500_000, 1)).unwrap();
    drop(registry);
    let mut bytes = std::fs::read(registry_of(folder.path())).unwrap();
    for copy in Side::BOTH {
        for place in [Place::worker(2), Place::mark(9)] {
            bytes[offset_of(4, place, copy) + 100] ^= 1;
        }
    }
    std::fs::write(registry_of(folder.path()), bytes).unwrap();
    assert!(LocalRegistry::open(folder.path()).unwrap().worker(2).is_err());
    let fenced = fence_restored(folder.path(), NOW_NS).unwrap();
    assert_eq!((fenced.reserved_until, fenced.repaired), (NOW_TICK + 500_000, 2));
    let found = LocalRegistry::open(folder.path()).unwrap().worker(2).unwrap();
    assert_eq!(found.record.reserved_until, NOW_TICK + 500_000);
}

/// Else it would go no higher than what it could read, and what was granted above that would be granted again.
#[test]
fn a_fence_is_refused_where_what_the_folder_knew_cannot_be_read_whole() {
    let folder = folder();
    drop(made_in(folder.path(), 4));
    hints::READ_AT.set(Some(|_, _, _| Err(io::Error::from_raw_os_error(libc::EIO))));
    let refused = fence_restored(folder.path(), NOW_NS);
    hints::READ_AT.set(None);
    let refused = refused.expect_err("it is fenced").to_string();
    assert!(refused.contains("registry.known-"), "{refused}");
    fence_restored(folder.path(), NOW_NS).unwrap();
}

/// A disk is rolled back to before the last fence, again and again, file and inode: what was put back is all that the
/// next fence can know, but for the time.
#[test]
fn versions_of_before_a_fence_never_come_again_whatever_is_rolled_back() {
    let (folder, elsewhere) = (folder(), folder());
    drop(made_in(folder.path(), 4));
    let (path, kept) = (registry_of(folder.path()), elsewhere.path().join("kept"));
    let content = std::fs::read(&path).unwrap();
    std::fs::hard_link(&path, &kept).unwrap();
    let mut seen = std::collections::HashSet::new();
    for fences in 0..3 {
        let mut registry = LocalRegistry::open(folder.path()).unwrap();
        for operation in 1..20 {
            let found = registry.worker(1).unwrap();
            assert!(seen.insert(found.version), "version {} came again after {fences} fences", found.version);
            registry.swap_worker(1, found.version, &claim_of(5_000, operation)).unwrap();
        }
        drop(registry);
        for entry in std::fs::read_dir(folder.path()).unwrap().flatten() {
            std::fs::remove_file(entry.path()).unwrap();
        }
        std::fs::write(&kept, &content).unwrap();
        std::fs::hard_link(&kept, &path).unwrap();
        fence_restored(folder.path(), NOW_NS + fences * 1_000_000).unwrap();
    }
}

/// Where each file of a folder is another one: put back, or moved to another host.
#[test]
fn a_folder_that_was_put_back_or_moved_as_other_files_goes_on_as_the_same_cluster_above_what_was_granted() {
    let (original, elsewhere) = (folder(), folder());
    let mut registry = made_in(original.path(), 4);
    registry.claim(1, 1, &claim_of(5_000, 1)).unwrap();
    registry.create_mark(spill(1), &mark_of(7, 2)).unwrap();
    let genesis = *registry.genesis();
    drop(registry);
    for entry in std::fs::read_dir(original.path()).unwrap().flatten() {
        std::fs::copy(entry.path(), elsewhere.path().join(entry.file_name())).unwrap();
    }
    assert!(matches!(LocalRegistry::open(elsewhere.path()).err(), Some(LocalError::Copied { .. })));
    let fenced = fence_restored(elsewhere.path(), NOW_NS).unwrap();
    assert_eq!((fenced.genesis, fenced.reserved_until, fenced.marks), (genesis, NOW_TICK + 125_001, 1));
    assert_eq!(inspect(elsewhere.path()).unwrap().findings, []);
    let mut registry = LocalRegistry::open(elsewhere.path()).unwrap();
    assert_eq!((registry.genesis(), registry.last_worker()), (&genesis, None));
    assert!((0..4).all(|n| registry.worker(n).unwrap().record.reserved_until == fenced.reserved_until));
    assert_eq!(registry.mark(spill(1)).unwrap().record.granted_upto, u64::MAX);
}

#[test]
fn fences_one_after_the_other_only_rise_whatever_their_clocks_say() {
    let folder = folder();
    drop(made_in(folder.path(), 4));
    let hour = 3_600_000_000_000;
    let (mut reached, mut version) = (0, 0);
    for now in [NOW_NS, NOW_NS, NOW_NS - hour, NOW_NS + hour, NOW_NS, 0] {
        let fenced = fence_restored(folder.path(), now).unwrap();
        assert!(fenced.reserved_until >= reached, "a fence at {now} lowered {reached} to {fenced:?}");
        reached = fenced.reserved_until;
        let found = LocalRegistry::open(folder.path()).unwrap().worker(0).unwrap();
        assert!(found.record.reserved_until == reached && found.version > version, "{found:?} at {now}");
        version = found.version;
    }
    assert_eq!(reached, NOW_TICK + 3_600_000 + 125_001);
}

/// What the folder knew covers more than the clock and the backup: the time since the backup, with a clock that is back.
#[test]
fn a_fence_by_a_clock_that_is_behind_goes_above_what_the_folder_knew_and_tells_the_newest_change() {
    let folder = folder();
    let mut registry = made_in(folder.path(), 4);
    let backup = std::fs::read(registry_of(folder.path())).unwrap();
    registry.claim(1, 1, &claim_of(NOW_TICK + 60_000, 1)).unwrap();
    drop(registry);
    for another_file in [false, true] {
        let put_back = if another_file { folder.path().join("back") } else { registry_of(folder.path()) };
        std::fs::write(&put_back, &backup).unwrap();
        std::fs::rename(&put_back, registry_of(folder.path())).unwrap();
        assert!(LocalRegistry::open(folder.path()).is_err());
        let fenced = fence_restored(folder.path(), NOW_NS - 3_600_000_000_000).unwrap();
        assert_eq!(fenced.reserved_until, NOW_TICK + 60_000, "another file: {another_file}");
        // By the second time it is what the first fence changed.
        let is_told = fenced.newest_change_ms.is_some_and(|ms| ms > 1_700_000_000_000);
        assert_eq!(is_told, !another_file, "{fenced:?}");
    }
}

/// Where this user may give files away, as root may, whose restores are fenced by root.
#[test]
fn what_root_makes_in_another_user_s_folder_is_that_user_s() {
    use std::os::unix::fs::{MetadataExt, chown};
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = folder();
    drop(made_in(folder.path(), 4));
    chown(folder.path(), Some(65_534), Some(65_534)).unwrap();
    fence_restored(folder.path(), NOW_NS).unwrap();
    drop(LocalRegistry::open(folder.path()).unwrap());
    let known = restored::hints_in(folder.path()).remove(0);
    for path in [registry_of(folder.path()), known] {
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (65_534, 65_534, 0o600), "{path:?}");
    }
}

#[test]
fn the_registry_of_another_cluster_is_not_fenced_into_a_folder() {
    let (ours, other) = (folder(), folder());
    let cluster = made_in(ours.path(), 4).genesis().cluster;
    let theirs = made_in(other.path(), 4).genesis().cluster;
    std::fs::write(ours.path().join("node.json"), format!("{{\"version\":1,\"cluster\":\"{cluster}\"}}"))
        .unwrap();
    let hints = restored::hints_in(ours.path());
    std::fs::copy(registry_of(other.path()), registry_of(ours.path())).unwrap();
    let refused = fence_restored(ours.path(), NOW_NS).unwrap_err().to_string();
    assert!(refused.contains(&cluster.to_string()) && refused.contains(&theirs.to_string()), "{refused}");
    assert_eq!(restored::hints_in(ours.path()), hints, "what the folder knows is kept");
}

#[test]
fn a_fence_is_refused_while_a_process_is_at_work() {
    let folder = folder();
    let mut registry = made_in(folder.path(), 4);
    let error = fence_restored(folder.path(), NOW_NS).err().unwrap();
    assert!(matches!(error, LocalError::InUse { pid, .. } if pid == std::process::id()), "{error}");
    assert!(matches!(adopt(folder.path(), NOW_NS), Err(LocalError::InUse { .. })));
    registry.claim(0, 1, &claim_of(5_000, 1)).unwrap();
    registry.close();
    fence_restored(folder.path(), NOW_NS).unwrap();
    // Whoever still had the old file open is told so.
    assert!(matches!(registry.worker(0), Err(ReadError::Foreign { .. })));
}

#[test]
fn adopting_a_copy_makes_another_cluster_of_it_and_fences_it() {
    let (original, copy) = (folder(), folder());
    let mut registry = made_in(original.path(), 4);
    registry.create_mark(spill(1), &mark_of(7, 2)).unwrap();
    let before = registry.genesis().cluster;
    let node = format!("{{\"version\":1,\"cluster\":\"{before}\",\"more\":[1]}}");
    std::fs::write(copy.path().join("node.json"), node).unwrap();
    std::fs::copy(registry_of(original.path()), registry_of(copy.path())).unwrap();

    let adopted = adopt(copy.path(), NOW_NS).unwrap();
    assert_eq!(adopted.before, before);
    assert_ne!(adopted.cluster, before);
    let mut theirs = LocalRegistry::open(copy.path()).unwrap();
    assert_eq!(theirs.genesis().cluster, adopted.cluster);
    assert_eq!(theirs.worker(0).unwrap().record.reserved_until, NOW_TICK + 125_001);
    assert_eq!(theirs.mark(spill(1)).unwrap().record.granted_upto, u64::MAX);
    let node: serde_json::Value =
        serde_json::from_slice(&std::fs::read(copy.path().join("node.json")).unwrap()).unwrap();
    let cluster = adopted.cluster.to_string();
    assert_eq!(node, serde_json::json!({ "version": 1, "cluster": cluster, "more": [1] }));
    assert_eq!(registry.genesis().cluster, before);
    registry.claim(0, 1, &claim_of(5_000, 1)).unwrap();
}

#[test]
fn adopting_again_changes_nothing_but_mends_node_json() {
    let folder = folder();
    let cluster = made_in(folder.path(), 4).genesis().cluster;
    std::fs::write(folder.path().join("node.json"), "{\"version\":1,\"cluster\":\"00\"}").unwrap();
    let adopted = adopt(folder.path(), NOW_NS).unwrap();
    assert_eq!(adopted, Adopted { before: cluster, cluster, fenced: None });
    let node = std::fs::read_to_string(folder.path().join("node.json")).unwrap();
    assert!(node.contains(&cluster.to_string()), "{node}");
    assert_eq!(LocalRegistry::open(folder.path()).unwrap().worker(0).unwrap().version, 1);
}

#[test]
fn a_copy_beside_a_node_json_of_another_version_is_left_alone() {
    let (original, copy) = (folder(), folder());
    drop(made_in(original.path(), 4));
    std::fs::copy(registry_of(original.path()), registry_of(copy.path())).unwrap();
    let node = copy.path().join("node.json");
    std::fs::write(&node, "{\"version\":2}").unwrap();
    let before = std::fs::read(registry_of(copy.path())).unwrap();
    let error = adopt(copy.path(), NOW_NS).unwrap_err();
    assert!(matches!(error, LocalError::NodeVersion { found: 2, known: 1, .. }), "{error}");
    assert_eq!(std::fs::read(registry_of(copy.path())).unwrap(), before);
    assert_eq!(std::fs::read_to_string(node).unwrap(), "{\"version\":2}");
}

#[test]
fn an_inspection_says_what_is_there_and_what_is_wrong_and_writes_nothing() {
    let folder = folder();
    let mut registry = made_in(folder.path(), 4);
    registry.claim(1, 1, &claim_of(5_000, 1)).unwrap();
    registry.create_mark(spill(1), &mark_of(7, 2)).unwrap();
    let path = registry_of(folder.path());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[offset_of(4, Place::worker(0), Side::A) + 40] ^= 1;
    for copy in Side::BOTH {
        bytes[offset_of(4, Place::worker(3), copy) + 40] ^= 1;
    }
    std::fs::write(&path, &bytes).unwrap();

    let found = inspect(folder.path()).unwrap();
    assert_eq!(&found.genesis, registry.genesis());
    assert_eq!(found.workers[1].record.as_ref().unwrap().record.reserved_until, 5_000);
    assert!(found.workers[1].live.is_some() && found.workers[2].live.is_none());
    assert_eq!(found.marks, [(spill(1), mark_of(7, 2))]);
    let findings: Vec<_> = found.findings.iter().map(ToString::to_string).collect();
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings[0].contains("worker 0") && findings[1].contains("worker 3"), "{findings:?}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert!(matches!(inspect(&folder.path().join("none")), Err(LocalError::Absent { .. })));
}
