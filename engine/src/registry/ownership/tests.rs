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
fn an_unknown_outcome_that_landed_is_recognised_by_token_and_operation() {
    let registry = registry(1);
    let mut ownership = ownership(&registry, 1);
    registry.fail(Fault::LandsUnseen);
    assert_eq!(span(ownership.take(&request(2_000)).unwrap()), 2_000..2_100);
    registry.fail(Fault::LandsUnseen);
    assert_eq!(span(ownership.extend(0, 2_050, 2_200).unwrap()), 2_100..2_200);
    assert_eq!((ownership.unknown, ownership.unknown_ours), (2, 2));
}

#[test]
fn an_unknown_outcome_that_was_lost_is_not_ours() {
    let registry = registry(1);
    let mut first = ownership(&registry, 1);
    registry.fail(Fault::LostUnseen);
    assert!(first.take(&request(2_000)).is_err());
    assert_eq!(span(ownership(&registry, 2).take(&request(2_000)).unwrap()), 2_000..2_100);
    assert_eq!((first.unknown, first.unknown_ours), (1, 0));
}

#[test]
fn an_earlier_process_with_the_same_operation_number_is_somebody_else() {
    let registry = registry(1);
    drop(ownership(&registry, 1).take(&request(2_000)).unwrap());
    // Restarted: the operation numbers begin again, the token does not.
    let mut again = ownership(&registry, 2);
    registry.fail(Fault::LostUnseen);
    assert!(again.take(&request(2_500)).is_err());
    let mut third = ownership(&registry, 3);
    assert_eq!(span(third.take(&request(2_500)).unwrap()), 2_500..2_600);
}

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
    assert!(
        (ownership.copies, ownership.identity.token) != (1, found.record.token),
        "it is another process now"
    );
}

#[test]
fn a_renewal_of_ours_that_could_not_be_read_back_is_no_copys() {
    let registry = registry(1);
    let mut ownership = ownership(&registry, 1);
    drop(ownership.take(&request(2_000)).unwrap());
    registry.fail_reads(1);
    assert_eq!(span(ownership.extend(0, 2_050, 2_200).unwrap()), 2_100..2_200);
    assert_eq!(span(ownership.extend(0, 2_150, 2_300).unwrap()), 2_200..2_300);
    assert_eq!(ownership.copies, 0);
}

#[test]
fn a_renewal_in_doubt_is_ours_once_the_record_shows_it_and_only_once() {
    let registry = registry(1);
    let mut ownership = ownership(&registry, 1);
    drop(ownership.take(&request(2_000)).unwrap());
    registry.fail(Fault::LandsUnseen);
    registry.fail_reads(1);
    assert!(matches!(ownership.extend(0, 2_050, 2_200), Err(ExtendError::Later { .. })), "nobody knows yet");
    assert_eq!(span(ownership.extend(0, 2_060, 2_300).unwrap()), 2_100..2_200, "what was in doubt");
    assert_eq!(span(ownership.extend(0, 2_150, 2_400).unwrap()), 2_200..2_400, "and then what follows it");
    assert_eq!((ownership.unknown, ownership.unknown_ours), (1, 1));
}

#[test]
fn a_renewal_that_lands_after_it_was_looked_for_is_ours_all_the_same() {
    let registry = registry(1);
    let mut ownership = ownership(&registry, 1);
    drop(ownership.take(&request(2_000)).unwrap());
    registry.fail(Fault::LandsLate);
    registry.fail(Fault::Away);
    assert!(matches!(ownership.extend(0, 2_050, 2_200), Err(ExtendError::Later { .. })));
    registry.land();
    assert_eq!(span(ownership.extend(0, 2_060, 2_300).unwrap()), 2_100..2_200);
    assert_eq!(span(ownership.extend(0, 2_150, 2_400).unwrap()), 2_200..2_400);
}

#[test]
fn a_renewal_that_was_overtaken_by_the_next_never_lands() {
    let registry = registry(1);
    let mut ownership = ownership(&registry, 1);
    drop(ownership.take(&request(2_000)).unwrap());
    registry.fail(Fault::LandsLate);
    assert_eq!(
        span(ownership.extend(0, 2_050, 2_200).unwrap()),
        2_100..2_200,
        "the second try of the same call"
    );
    registry.land();
    assert_eq!(span(ownership.extend(0, 2_150, 2_400).unwrap()), 2_200..2_400);
}

#[test]
fn a_claim_in_doubt_is_ours_once_the_record_shows_it() {
    let registry = registry(2);
    let mut ownership = ownership(&registry, 1);
    registry.fail(Fault::LandsUnseen);
    registry.fail_reads(1);
    assert!(matches!(ownership.take(&request(2_000)), Err(TakeError::InDoubt { .. })));
    let window = ownership.take(&request(2_010)).unwrap();
    let worker = window.worker();
    assert_eq!(span(window), 2_000..2_100, "not a second worker, nor a second window");
    assert_eq!(span(ownership.extend(worker, 2_050, 2_200).unwrap()), 2_100..2_200);
    let other = ownership.take(&WorkerRequest { except: vec![worker], ..request(2_050) }).unwrap();
    assert_ne!(other.worker(), worker);
}

#[test]
fn a_claim_in_doubt_that_is_over_when_it_shows_is_left() {
    let registry = registry(2);
    let mut ownership = ownership(&registry, 1);
    registry.fail(Fault::LandsUnseen);
    registry.fail_reads(1);
    assert!(ownership.take(&request(2_000)).is_err());
    assert_eq!(span(ownership.take(&request(2_500)).unwrap()), 2_500..2_600);
}

#[test]
fn a_grant_in_doubt_is_ours_once_the_mark_shows_it_and_only_once() {
    let registry = registry(1);
    let mut ownership = ownership(&registry, 1);
    ownership.mark(spill(), true).unwrap();
    registry.fail(Fault::LandsLate);
    assert!(matches!(ownership.grant(spill(), 0, 5), Err(GrantError::Later { .. })));
    registry.land();
    assert_eq!(ownership.grant(spill(), 2, 9).unwrap(), 5, "as far as the one that was in doubt went");
    assert!(matches!(ownership.grant(spill(), 2, 9), Err(GrantError::Moved { granted_upto: 5 })));
    assert_eq!(ownership.grant(spill(), 5, 9).unwrap(), 9);
}

#[test]
fn of_several_grants_in_doubt_the_one_that_landed_is_ours_whichever_it_was() {
    for asked_again in 0..2 * doubt::MOST_IN_DOUBT as u64 {
        let registry = registry(1);
        let mut ownership = ownership(&registry, 1);
        ownership.mark(spill(), true).unwrap();
        registry.fail(Fault::LandsLate);
        assert!(matches!(ownership.grant(spill(), 0, 5), Err(GrantError::Later { .. })));
        for again in 0..asked_again {
            registry.fail(Fault::LostUnseen);
            assert!(matches!(ownership.grant(spill(), 0, 6 + again), Err(GrantError::Later { .. })));
        }
        assert!(ownership.grants.len() <= doubt::MOST_IN_DOUBT);
        registry.land();
        assert_eq!(ownership.grant(spill(), 0, 9).unwrap(), 5, "as far as the one that landed went");
        let told = (ownership.unknown, ownership.unknown_ours, ownership.unknown_theirs, ownership.doubts());
        assert_eq!(told, (1 + asked_again, 1, asked_again, 0));
        assert_eq!(ownership.grant(spill(), 5, 9).unwrap(), 9);
    }
}

#[test]
fn a_grant_in_doubt_that_ended_before_what_is_wanted_now_is_told_to_nobody() {
    let registry = registry(1);
    let mut ownership = ownership(&registry, 1);
    ownership.mark(spill(), true).unwrap();
    registry.fail(Fault::LandsLate);
    assert!(ownership.grant(spill(), 0, 5).is_err());
    registry.land();
    // The five became too old meanwhile.
    assert_eq!(ownership.grant(spill(), 7, 9).unwrap(), 9);
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

#[test]
fn what_was_in_doubt_and_landed_is_no_copys_where_a_worker_is_handed_back() {
    let registry = registry(1);
    let mut one = ownership(&registry, 1);
    drop(one.take(&request(2_000)).unwrap());
    registry.fail(Fault::LandsUnseen);
    registry.fail_reads(1);
    assert!(one.extend(0, 2_050, 2_200).is_err());
    assert!(matches!(one.release(0, 2_060), Err(SwapError::Conflict)));
    assert_eq!((one.copies, one.unknown, one.unknown_ours + one.unknown_theirs), (0, 1, 1));
    // Nor is one that could not be read back.
    drop(one.take(&request(2_300)).unwrap());
    registry.fail_reads(1);
    drop(one.extend(0, 2_350, 2_500).unwrap());
    assert!(matches!(one.release(0, 2_360), Err(SwapError::Conflict)));
    assert_eq!(one.copies, 0);
}

#[test]
fn a_write_that_was_forgotten_among_many_in_doubt_is_no_copys() {
    let many = doubt::MOST_IN_DOUBT as u64 + 4;
    let registry = registry(1);
    let mut one = ownership(&registry, 1);
    drop(one.take(&request(2_000)).unwrap());
    one.mark(spill(), true).unwrap();
    for n in 0..many {
        let fault = || if n == many - 2 { Fault::LandsLate } else { Fault::LostUnseen };
        registry.fail(fault());
        registry.fail_reads(1);
        assert!(matches!(one.extend(0, 2_050, 2_200 + n), Err(ExtendError::Later { .. })));
        registry.fail(fault());
        assert!(matches!(one.grant(spill(), 0, 5 + n), Err(GrantError::Later { .. })));
    }
    registry.land();
    let landed = 2_200 + many - 2;
    // Nobody knows which ticks it was to grant.
    assert_eq!(span(one.extend(0, 2_060, 2_400).unwrap()), landed..2_400);
    assert!(matches!(one.grant(spill(), 0, 4), Err(GrantError::Moved { .. })));
    assert_eq!(one.grant(spill(), many + 9, many + 10).unwrap(), many + 10);
    assert_eq!((one.copies, one.doubts()), (0, 0));
    assert_eq!(one.unknown, one.unknown_ours + one.unknown_theirs);
}

#[test]
fn a_grant_that_a_panic_broke_off_and_that_lands_late_is_no_copys() {
    let registry = registry(1);
    let mut one = ownership(&registry, 1);
    one.mark(spill(), true).unwrap();
    let before = registry.clone().mark(spill()).unwrap();
    registry.fail(Fault::LandsAndPanics);
    let panics = std::panic::AssertUnwindSafe(|| one.grant(spill(), 0, 5));
    assert!(std::panic::catch_unwind(panics).is_err());
    one.after_panic();
    let landed = registry.clone().mark(spill()).unwrap();
    registry.tamper_mark(spill(), Some(before));
    registry.fail(Fault::LostUnseen);
    assert!(one.grant(spill(), 0, 6).is_err());
    registry.tamper_mark(spill(), Some(landed));
    assert!(matches!(one.grant(spill(), 0, 7), Err(GrantError::Moved { granted_upto: 5 })));
    assert_eq!(one.copies, 0);
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
