//! Copies of this process, and others with its token.

use super::*;

#[test]
fn a_write_with_our_token_that_is_none_of_ours_is_a_copys() {
    let registry = registry(1);
    let mut ownership = ownership(&registry, 1);
    drop(ownership.take(&request(2_000)).unwrap());
    // The operation is one of ours, and its end was another one.
    let found = ownership.registry.worker(0).unwrap();
    let ghost = WorkerRecord { reserved_until: 2_180, ..found.record };
    registry.tamper_worker(0, Some(Versioned { record: ghost, version: found.version + 1 }));
    assert!(matches!(ownership.extend(0, 2_050, 2_200), Err(ExtendError::Copied { worker: 0, .. })));
    assert_eq!(ownership.copies, 1);
    assert!(ownership.identity.token != found.record.token, "it is another process now");
}

/// A machine that was put back to a snapshot in which its window had ended: its original went on with the worker, of which the
/// registry that was put back says that it is free.
#[test]
fn who_may_be_a_copy_takes_its_worker_only_where_no_other_is_free() {
    for (workers, pinned) in [(2, None), (1, None), (2, Some(1))] {
        let registry = registry(workers);
        let mut ownership = ownership(&registry, 1);
        let held = ownership.take(&WorkerRequest { pinned, ..request(2_000) }).unwrap().worker();
        let now = registry.clone().worker(held).unwrap().record.reserved_until + 100;
        // The other one is free, and its mark the higher.
        if workers > 1 {
            let other = registry.clone().worker(1 - held).unwrap();
            let record = WorkerRecord { reserved_until: now, ..other.record };
            registry.tamper_worker(1 - held, Some(Versioned { record, version: other.version + 1 }));
        }
        ownership.identity.random = || 0;
        ownership.reset_identity();
        let taken = ownership.take(&WorkerRequest { pinned, ..request(now) }).unwrap().worker();
        let is_own = workers == 1 || pinned.is_some();
        assert_eq!(taken == held, is_own, "{workers} workers, {pinned:?}: {held} and then {taken}");
    }
}

#[test]
fn who_drew_another_token_takes_nothing_that_was_in_doubt() {
    let registry = registry(1);
    let mut ownership = ownership(&registry, 1);
    ownership.mark(spill(), true).unwrap();
    drop(ownership.take(&request(2_000)).unwrap());
    registry.fail(Fault::LandsUnseen);
    registry.fail_reads(1);
    assert!(ownership.extend(0, 2_050, 2_200).is_err());
    registry.fail(Fault::LandsLate);
    assert!(ownership.grant(spill(), 0, 5).is_err());
    ownership.reset_identity();
    registry.land();
    assert!(matches!(ownership.extend(0, 2_060, 2_300), Err(ExtendError::Lost { .. })));
    assert!(matches!(ownership.grant(spill(), 0, 5), Err(GrantError::Moved { granted_upto: 5 })));
}

#[test]
fn a_twin_with_our_token_is_not_taken_for_ourselves() {
    let registry = registry(1);
    // A machine that was copied while it ran: token, operation numbers and what is held are the same in both.
    let (mut one, mut twin) = (ownership(&registry, 1), ownership(&registry, 1));
    drop(one.take(&request(2_000)).unwrap());
    let held = one.holds.get(&0).map(|hold| (hold.version, hold.reserved_until, hold.operation)).unwrap();
    twin.operation = one.operation;
    twin.hold(0, held.0, held.1, held.2);
    assert_eq!(span(one.extend(0, 2_050, 2_200).unwrap()), 2_100..2_200);
    let error = twin.extend(0, 2_050, 2_200).unwrap_err();
    assert!(
        matches!(&error, ExtendError::Copied { why, .. } if why.contains("copy of this machine")),
        "{error}"
    );
    assert_eq!(span(one.extend(0, 2_150, 2_300).unwrap()), 2_200..2_300);
}

/// A record with our token, of an operation that is not ours yet.
fn written_by_a_copy(registry: &MemoryRegistry, ownership: &Ownership, worker: u32, until: u64) {
    let found = registry.clone().worker(worker).unwrap();
    let (token, operation) = (ownership.identity.token, ownership.operation + 1);
    let record = WorkerRecord { reserved_until: until, token, operation, ..found.record };
    registry.tamper_worker(worker, Some(Versioned { record, version: found.version + 1 }));
}

#[test]
fn a_copy_is_met_wherever_a_worker_shows_a_write_of_it() {
    // In the rows, before a worker is taken.
    let rows = registry(2);
    let mut one = ownership(&rows, 1);
    let other = 1 - one.take(&request(2_000)).unwrap().worker();
    written_by_a_copy(&rows, &one, other, 2_300);
    let except = WorkerRequest { except: vec![1 - other], ..request(2_400) };
    assert!(matches!(one.take(&except), Err(TakeError::Copied { .. })));
    assert!((one.copies, one.holds.len()) == (1, 0) && one.identity.token != Token([1; 16]));
    assert!(one.take(&except).is_ok(), "once told it is another process");

    // In a claim that is in doubt: the same operation, and another end.
    let claims = registry(1);
    let mut one = ownership(&claims, 1);
    claims.fail(Fault::LostUnseen);
    claims.fail_reads(1);
    assert!(matches!(one.take(&request(2_000)), Err(TakeError::InDoubt { .. })));
    one.operation -= 1;
    written_by_a_copy(&claims, &one, 0, 2_150);
    one.operation += 1;
    assert!(matches!(one.take(&request(2_010)), Err(TakeError::Copied { .. })));
    assert_eq!((one.copies, one.unknown, one.unknown_ours + one.unknown_theirs), (1, 1, 1));

    // Where a worker is handed back.
    let handed_back = registry(1);
    let mut one = ownership(&handed_back, 1);
    drop(one.take(&request(2_000)).unwrap());
    written_by_a_copy(&handed_back, &one, 0, 2_200);
    assert!(matches!(one.release(0, 2_050), Err(SwapError::Conflict)));
    assert_eq!(one.copies, 1);
}

#[test]
fn a_copy_is_met_at_once_although_it_counts_from_where_it_was_copied() {
    let written = |registry: &MemoryRegistry, one: &Ownership, worker| {
        let found = registry.clone().worker(worker).unwrap();
        let (token, operation) = (one.identity.token, 4);
        let record = WorkerRecord { reserved_until: 2_150, token, operation, ..found.record };
        registry.tamper_worker(worker, Some(Versioned { record, version: found.version + 1 }));
    };
    // In the rows: this process wrote nothing of that worker.
    let rows = registry(2);
    let mut one = ownership(&rows, 1);
    one.operation = 8;
    let other = 1 - one.take(&request(2_000)).unwrap().worker();
    written(&rows, &one, other);
    let except = WorkerRequest { except: vec![1 - other], ..request(2_400) };
    assert!(matches!(one.take(&except), Err(TakeError::Copied { .. })));
    assert_eq!((one.copies, one.writes.len()), (1, 0), "with another token nothing was written yet");

    // In the place of a claim that was lost, and which is no copy's where it was stored.
    for lost in [true, false] {
        let claims = registry(1);
        let mut one = ownership(&claims, 1);
        one.operation = 8;
        claims.fail(if lost { Fault::LostUnseen } else { Fault::LandsUnseen });
        claims.fail_reads(1);
        assert!(matches!(one.take(&request(2_000)), Err(TakeError::InDoubt { .. })));
        if lost {
            written(&claims, &one, 0);
        }
        assert_eq!(matches!(one.take(&request(2_010)), Err(TakeError::Copied { .. })), lost);
        assert_eq!(one.copies, u64::from(lost));
    }
}

#[test]
fn a_copy_is_met_where_a_mark_shows_a_grant_of_it() {
    for (operation, known) in [(1, false), (7, false), (7, true)] {
        let registry = registry(1);
        let mut one = ownership(&registry, 1);
        one.mark(spill(), true).unwrap();
        let record = MarkRecord { granted_upto: 5, token: one.identity.token, operation };
        if known {
            one.marks.insert(spill(), 5);
        }
        registry.tamper_mark(spill(), Some(Versioned { record, version: 9 }));
        assert!(matches!(one.grant(spill(), 0, 9), Err(GrantError::Later { .. })));
        assert_eq!(one.copies, 1);
        assert!(matches!(one.grant(spill(), 0, 9), Err(GrantError::Moved { granted_upto: 5 })));
        assert_eq!(one.grant(spill(), 5, 9).unwrap(), 9);
        assert_eq!(one.copies, 1, "once");
    }
}

#[test]
fn a_copy_is_met_after_a_write_of_ours_that_it_followed() {
    let registry = registry(1);
    let mut one = ownership(&registry, 1);
    drop(one.take(&request(2_000)).unwrap());
    one.operation += 5;
    drop(one.extend(0, 2_050, 2_200).unwrap());
    // It counts from where it was copied.
    let found = registry.clone().worker(0).unwrap();
    let record = WorkerRecord { reserved_until: 2_300, operation: 4, ..found.record };
    registry.tamper_worker(0, Some(Versioned { record, version: found.version + 1 }));
    assert!(matches!(one.extend(0, 2_150, 2_400), Err(ExtendError::Copied { .. })));
}

/// Two of one memory, which hold worker 0 up to tick 2100. The first has written more since.
fn twins(registry: &MemoryRegistry) -> (Ownership, Ownership) {
    let (mut one, mut twin) = (ownership(registry, 1), ownership(registry, 1));
    drop(one.take(&request(2_000)).unwrap());
    let held = one.holds.get(&0).map(|hold| (hold.version, hold.reserved_until, hold.operation)).unwrap();
    twin.operation = one.operation;
    twin.hold(0, held.0, held.1, held.2);
    one.mark(spill(), true).unwrap();
    one.grant(spill(), 0, 5).unwrap();
    (one, twin)
}

#[test]
fn a_copy_that_handed_back_is_met_and_not_taken_for_a_restore() {
    let renews = |one: &mut Ownership| match one.extend(0, 2_050, 2_200) {
        Err(ExtendError::Copied { worker: 0, .. }) => {}
        other => panic!("{other:?}"),
    };
    let hands_back = |one: &mut Ownership| assert!(matches!(one.release(0, 2_020), Err(SwapError::Conflict)));
    let takes = |one: &mut Ownership| match one.take(&WorkerRequest { except: vec![0], ..request(2_050) }) {
        Err(TakeError::Copied { .. }) => {}
        other => panic!("{other:?}"),
    };
    for does in [&renews as &dyn Fn(&mut Ownership), &hands_back, &takes] {
        let registry = registry(2);
        // Or one of two would be drawn.
        registry.tamper_worker(1, None);
        let (mut one, mut twin) = twins(&registry);
        twin.release(0, 2_010).unwrap();
        does(&mut one);
        assert_eq!((one.copies, one.holds.len(), one.left.len()), (1, 0, 0));
    }
}

#[test]
fn no_window_begins_below_what_was_granted_here_although_a_copy_handed_that_back() {
    let renews = |one: &mut Ownership| assert!(one.extend(0, 2_050, 2_200).is_err());
    let hands_back = |one: &mut Ownership| assert!(one.release(0, 2_050).is_err());
    let leaps = Ownership::reset_identity;
    let leaves = |one: &mut Ownership| one.forget(0);
    for does in [&leaps as &dyn Fn(&mut Ownership), &leaves, &hands_back, &renews] {
        for pinned in [None, Some(0)] {
            let registry = registry(2);
            registry.tamper_worker(1, None);
            let (mut one, mut twin) = twins(&registry);
            twin.release(0, 2_010).unwrap();
            does(&mut one);
            // Ids of tick 2050 may have been issued here.
            let again = WorkerRequest { pinned, ..request(2_050) };
            let refused = one.take(&again);
            assert!(refused.is_err(), "{refused:?}");
            let later = WorkerRequest { pinned, ..request(2_100) };
            assert_eq!(span(one.take(&later).unwrap()), 2_100..2_200);
            // What was handed back here is another matter.
            one.release(0, 2_110).unwrap();
            let later = WorkerRequest { pinned, ..request(2_110) };
            assert_eq!(span(one.take(&later).unwrap()), 2_110..2_210);
        }
    }
}
