//! Windows, marks and workers of one process.

mod copies;
mod unknown;

use xuid_id::Layout;

use super::*;
use crate::registry::ReadError;
use crate::registry::memory::{Fault, MemoryRegistry};
use crate::registry::{ClusterId, Genesis, MarkRecord, Versioned};

const FLOOR: u64 = 1_000;

fn registry(workers: u32) -> MemoryRegistry {
    let cluster = ClusterId::from_bytes([1; 16]);
    MemoryRegistry::new(Genesis::new(cluster, Layout::default(), FLOOR, workers))
}

fn ownership(registry: &MemoryRegistry, token: u8) -> Ownership {
    Ownership::new(Box::new(registry.clone()), Identity::new(Token([token; 16]), format!("test {token}")))
}

fn request(now: u64) -> WorkerRequest {
    WorkerRequest { now, start: now, end: now + 100, pinned: None, except: Vec::new() }
}

fn spill() -> SpillId {
    SpillId::from_bytes([9; 16])
}

fn span(window: Window) -> Range<u64> {
    window.into_parts().1
}

#[test]
fn windows_of_one_worker_follow_each_other_across_holders() {
    let registry = registry(1);
    let (mut first, mut second) = (ownership(&registry, 1), ownership(&registry, 2));
    assert_eq!(span(first.take(&request(2_000)).unwrap()), 2_000..2_100);
    assert_eq!(span(first.extend(0, 2_050, 2_200).unwrap()), 2_100..2_200);
    assert!(matches!(second.take(&request(2_150)), Err(TakeError::NoneFree { earliest: 2_200 })));
    assert_eq!(span(second.take(&request(2_300)).unwrap()), 2_300..2_400);
    assert!(
        matches!(first.extend(0, 2_320, 2_500), Err(ExtendError::Lost { worker: 0, .. })),
        "it is the other's now"
    );
    assert_eq!(span(second.extend(0, 2_350, 2_600).unwrap()), 2_400..2_600);
}

#[test]
fn a_closed_worker_is_taken_by_nobody_and_that_is_said() {
    let closed = crate::registry::Workers { from: 0, until: 2 };
    let genesis = Genesis::new(ClusterId::from_bytes([1; 16]), Layout::default(), FLOOR, 3);
    let registry = MemoryRegistry::new(Genesis { closed, ..genesis });
    let mut first = ownership(&registry, 1);
    let pinned = WorkerRequest { pinned: Some(1), ..request(2_000) };
    assert!(matches!(first.take(&pinned), Err(TakeError::Closed { worker: 1 })));
    assert_eq!(first.take(&request(2_000)).unwrap().worker(), 2);
    assert!(matches!(
        ownership(&registry, 2).take(&request(2_050)),
        Err(TakeError::NoneFree { earliest: 2_100 })
    ));
    let all = crate::registry::Workers { from: 0, until: 3 };
    let registry = MemoryRegistry::new(Genesis { closed: all, ..genesis });
    assert!(matches!(ownership(&registry, 1).take(&request(2_000)), Err(TakeError::AllClosed)));
}

#[test]
fn nothing_is_granted_below_the_floor() {
    let registry = registry(1);
    let early = WorkerRequest { start: 0, ..request(1_500) };
    assert_eq!(span(ownership(&registry, 1).take(&early).unwrap()), FLOOR..1_600);
}

#[test]
fn what_was_handed_back_is_granted_again_and_no_more() {
    let registry = registry(1);
    let mut first = ownership(&registry, 1);
    drop(first.take(&request(2_000)).unwrap());
    first.release(0, 2_010).unwrap();
    assert_eq!(span(ownership(&registry, 2).take(&request(2_010)).unwrap()), 2_010..2_110);
    assert!(
        matches!(first.extend(0, 2_020, 2_300), Err(ExtendError::Lost { .. })),
        "it is not held any more"
    );
}

#[test]
fn a_worker_that_is_announced_can_be_asked_for_when_its_windows_are_over() {
    let registry = registry(4);
    let pinned = WorkerRequest { pinned: Some(2), ..request(2_000) };
    drop(ownership(&registry, 1).take(&pinned).unwrap());
    let later = WorkerRequest { now: 2_200, start: 2_200, end: 2_300, ..pinned };
    assert_eq!(span(ownership(&registry, 2).take(&later).unwrap()), 2_200..2_300);
}

#[test]
fn a_record_that_went_back_is_left_by_its_holder() {
    let registry = registry(1);
    let mut ownership = ownership(&registry, 1);
    let before = ownership.registry.worker(0).unwrap();
    drop(ownership.take(&request(2_000)).unwrap());
    registry.tamper_worker(0, Some(before));
    let error = ownership.extend(0, 2_050, 2_200).unwrap_err();
    assert!(matches!(&error, ExtendError::Lost { why, .. } if why.contains("fence")), "{error}");
}

#[test]
fn a_worker_that_was_left_for_good_is_taken_again_after_a_fence_only() {
    for pinned in [None, Some(0)] {
        let registry = registry(1);
        let mut ownership = ownership(&registry, 1);
        let before = ownership.registry.worker(0).unwrap();
        assert_eq!(span(ownership.take(&request(2_000)).unwrap()), 2_000..2_100);
        registry.tamper_worker(0, Some(before.clone()));
        assert!(ownership.extend(0, 2_050, 2_200).is_err());
        let request = WorkerRequest { pinned, ..request(2_050) };
        // What it says is free was granted to us.
        let error = ownership.take(&request).unwrap_err();
        assert!(
            matches!(
                (pinned, &error),
                (None, TakeError::NoneUsable) | (Some(0), TakeError::WentBack { worker: 0 })
            ),
            "pinned: {pinned:?}: {error}"
        );
        registry.tamper_worker(0, None);
        assert!(ownership.take(&request).is_err());
        let fenced = WorkerRecord { reserved_until: 2_300, ..before.record };
        registry.tamper_worker(0, Some(Versioned { record: fenced, version: 1 << 32 }));
        let later = WorkerRequest { now: 2_300, start: 2_300, end: 2_400, ..request };
        assert_eq!(span(ownership.take(&later).unwrap()), 2_300..2_400, "pinned: {pinned:?}");
    }
}

#[test]
fn a_record_of_somebody_else_at_the_version_we_know_is_not_ours() {
    // A fence after a restore comes to versions that were there before, and refuses what was begun before it.
    let registry = registry(1);
    let mut ownership = ownership(&registry, 1);
    drop(ownership.take(&request(2_000)).unwrap());
    let version = ownership.registry.worker(0).unwrap().version;
    let record =
        WorkerRecord { reserved_until: 9_000, token: Token::default(), operation: 0, owner: "fence".into() };
    registry.tamper_worker(0, Some(Versioned { record, version }));
    let error = ownership.look_again(0).unwrap_err();
    assert!(matches!(&error, ExtendError::Lost { for_good: false, .. }), "{error}");
}

#[test]
fn an_absent_record_is_never_made_again() {
    let registry = registry(2);
    registry.tamper_worker(0, None);
    let mut ownership = ownership(&registry, 1);
    for _ in 0..8 {
        let window = ownership.take(&request(2_000)).unwrap();
        let worker = window.worker();
        assert_eq!(worker, 1);
        ownership.release(worker, 2_000).unwrap();
    }
    let pinned = WorkerRequest { pinned: Some(0), ..request(3_000) };
    assert!(matches!(ownership.take(&pinned), Err(TakeError::Read(ReadError::Absent { .. }))));
    registry.tamper_worker(1, None);
    assert!(matches!(ownership.take(&request(4_000)), Err(TakeError::NoneUsable)));
}

#[test]
fn a_pinned_worker_that_somebody_holds_is_named_with_its_owner() {
    let registry = registry(4);
    let pinned = WorkerRequest { pinned: Some(2), ..request(2_000) };
    drop(ownership(&registry, 1).take(&pinned).unwrap());
    let error = ownership(&registry, 2).take(&WorkerRequest { now: 2_050, ..pinned }).unwrap_err();
    assert!(
        matches!(&error, TakeError::Held { worker: 2, until: 2_100, owner } if owner == "test 1"),
        "{error}"
    );
}

#[test]
fn a_worker_whose_mark_is_ahead_is_never_taken() {
    let registry = registry(3);
    let mut held = Vec::new();
    for token in 1..=3 {
        held.push(ownership(&registry, token).take(&request(2_000)).unwrap().worker());
    }
    held.sort_unstable();
    assert_eq!(held, [0, 1, 2], "each another one");
    assert!(matches!(
        ownership(&registry, 4).take(&request(2_050)),
        Err(TakeError::NoneFree { earliest: 2_100 })
    ));
}

#[test]
fn no_window_reaches_far_beyond_the_registrys_own_time() {
    let registry = registry(1);
    let layout = Layout::default();
    registry.set_time(Some(layout.tick_to_ns(5_000)));
    let far = WorkerRequest { end: 10_000_000, ..request(5_000) };
    assert_eq!(span(ownership(&registry, 1).take(&far).unwrap()), 5_000..125_000);
}

#[test]
fn extents_are_granted_once_and_marks_never_go_back() {
    let registry = registry(1);
    let (mut first, mut second) = (ownership(&registry, 1), ownership(&registry, 2));
    assert!(matches!(first.mark(spill(), false), Err(GrantError::Refused { .. })), "absent is not zero");
    assert_eq!(first.mark(spill(), true).unwrap(), 0);
    first.grant(spill(), 0, 10).unwrap();
    // A copy of the spill in another process begins at the mark it read.
    assert_eq!(second.mark(spill(), false).unwrap(), 10);
    second.grant(spill(), 10, 15).unwrap();
    assert!(matches!(first.grant(spill(), 10, 20), Err(GrantError::Moved { granted_upto: 15 })));
    first.grant(spill(), 15, 16).unwrap();
    let old = MarkRecord { granted_upto: 3, token: Token([1; 16]), operation: 1 };
    registry.tamper_mark(spill(), Some(Versioned { record: old, version: 9 }));
    assert!(
        matches!(first.grant(spill(), 16, 20), Err(GrantError::Refused { .. })),
        "restored without a fence"
    );
    registry.tamper_mark(spill(), None);
    assert!(matches!(first.grant(spill(), 16, 20), Err(GrantError::Refused { .. })));
}

#[test]
fn a_grant_with_an_unknown_outcome_is_ours_only_if_the_mark_says_so() {
    let registry = registry(1);
    let mut ownership = ownership(&registry, 1);
    ownership.mark(spill(), true).unwrap();
    registry.fail(Fault::LandsUnseen);
    ownership.grant(spill(), 0, 10).unwrap();
    registry.fail(Fault::LostUnseen);
    assert!(matches!(ownership.grant(spill(), 10, 20), Err(GrantError::Later { .. })));
    registry.fail(Fault::Away);
    assert!(matches!(ownership.grant(spill(), 10, 20), Err(GrantError::Later { .. })));
    ownership.grant(spill(), 10, 20).unwrap();
}

/// Both have the spill's file, one of them a copy of it, and ask for the same extents.
#[test]
fn a_grant_in_doubt_is_not_ours_because_another_copy_of_the_spill_was_granted_as_much() {
    let granted_twice = || {
        let registry = registry(1);
        let (mut first, mut second) = (ownership(&registry, 1), ownership(&registry, 2));
        first.mark(spill(), true).unwrap();
        registry.fail(Fault::LostUnseen);
        assert!(matches!(first.grant(spill(), 0, 10), Err(GrantError::Later { .. })));
        assert_eq!(second.grant(spill(), 0, 10).unwrap(), 10);
        first.grant(spill(), 0, 10).is_ok()
    };
    assert!(!granted_twice());
    assert!(Guard::without(&[Guard::GrantCompared], granted_twice));
}
