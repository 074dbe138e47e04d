use xuid_spill::{Expected, Identity, MIN_BYTES, MemoryStorage};

use super::*;

const SECONDS: u64 = 5;
const FLOOR: u64 = 1_000_000;
/// Where records begin, and how long one is (`docs/spill-format.md`).
const RECORDS: usize = 8_192;
const RECORD: usize = 32;

/// An idle second, so many after the floor.
fn second(number: u64) -> Extent {
    Extent { first: (FLOOR + number * 1_000) * Layout::default().stride(), len: 4_096, ticks: 1_000 }
}

/// A spill of this size that holds the first idle seconds, and the disk below.
fn filled(bytes: u64, seconds: u64) -> (Log, MemoryStorage) {
    let (layout, disk) = (Layout::default(), MemoryStorage::new());
    let identity = Identity {
        spill: SpillId::from_bytes([9; 16]),
        cluster: [1; 16],
        stride: layout.stride(),
        layout: layout.to_bytes(),
    };
    let mut log = Log::create(Box::new(disk.clone()), identity, bytes).unwrap();
    log.resume_at(0);
    log.append(&(0..seconds).map(second).collect::<Vec<_>>()).unwrap();
    (log, disk)
}

/// A reserve whose spill holds five idle seconds, and the disk below.
fn spilled() -> (Reserve, MemoryStorage) {
    let (log, disk) = filled(MIN_BYTES + 64 * RECORD as u64, SECONDS);
    (Reserve::new(Layout::default(), 3_600_000, Ok((log, 0))), disk)
}

/// All is granted, and what happens to the disk happens before it is read.
fn granted_over(spoil: impl FnOnce(&mut Vec<u8>)) -> (Reserve, u64) {
    let (mut reserve, disk) = spilled();
    let ids = reserve.stock().ids;
    let job = reserve.plan_grant(FLOOR + 9_000, 0, true);
    let Some(GrantRequest { from, upto, .. }) = job else { panic!("no grant is wanted") };
    assert_eq!((from, upto), (0, SECONDS));
    disk.tamper(spoil);
    reserve.granted(from, Ok(upto), 0);
    (reserve, ids)
}

/// At light load, that is: a burst gets both.
#[test]
fn what_a_call_gives_back_after_more_than_a_second_is_not_fresh() {
    let (mut reserve, _) = spilled();
    let (now, stride) = (FLOOR + 5_000, Layout::default().stride());
    for age in [999, 1_000, 1_001] {
        reserve.take_back(Run::new((now - age) * stride, 8), Some(now));
    }
    let fresh: Vec<_> = std::iter::from_fn(|| reserve.block(now, false, 8)).collect();
    assert_eq!((fresh.len(), reserve.held()), (2, 8));
    assert_eq!(reserve.block(now, true, 8).map(Block::into_run).unwrap().raw(), (now - 1_001) * stride);
}

#[test]
fn what_was_granted_is_held() {
    let (reserve, ids) = granted_over(|_| {});
    assert_eq!((reserve.held(), reserve.tally.replayed, reserve.tally.wasted_grant), (ids, ids, 0));
}

#[test]
fn a_granted_record_that_rotted_is_waste_and_the_others_are_held() {
    let (reserve, ids) = granted_over(|bytes| bytes[RECORDS + 2 * RECORD] ^= 1);
    let lost = second(2).ids();
    assert_eq!((reserve.held(), reserve.tally.replayed), (ids - lost, ids));
    assert_eq!((reserve.tally.damaged, reserve.tally.wasted_grant), (1, lost));
}

#[test]
fn a_grant_that_cannot_be_read_at_all_is_waste() {
    let (reserve, ids) = granted_over(|bytes| bytes.truncate(RECORDS));
    assert!(!reserve.has_spill(), "{:?}", reserve.why_not);
    assert_eq!((reserve.held(), reserve.tally.replayed, reserve.tally.wasted_grant), (0, ids, ids));
}

#[test]
fn where_somebody_else_moved_the_mark_the_next_grant_begins_there() {
    let (mut reserve, _disk) = spilled();
    assert!(matches!(reserve.plan_grant(FLOOR + 9_000, 0, true), Some(GrantRequest { from: 0, .. })));
    reserve.granted(0, Err(GrantError::Moved { granted_upto: 3 }), 0);
    let job = reserve.plan_grant(FLOOR + 9_000, 0, true);
    assert!(matches!(job, Some(GrantRequest { from: 3, upto: SECONDS, .. })), "{job:?}");
    assert_eq!(reserve.held(), 0, "what was granted to somebody else is not read");
}

/// Else the books of a stop would have them twice, or in a file that may not hold them.
#[test]
fn what_a_stop_appended_is_waste_if_its_sync_fails() {
    let (mut reserve, disk) = spilled();
    let before = reserve.tally.spilled;
    disk.fail_sync(1);
    reserve.seal(vec![second(SECONDS)], FLOOR + 9_000);
    let tally = &reserve.tally;
    assert_eq!((tally.failures, tally.spilled, tally.wasted_spill), (1, before, second(SECONDS).ids()));
}

/// The next process reads the file from a mark that was not moved, and this one's grant was asked for before.
#[test]
fn what_a_leap_gives_up_is_erased_before_a_grant_under_way_is_read() {
    let (mut reserve, disk) = spilled();
    let ids = reserve.stock().ids;
    assert!(reserve.plan_grant(FLOOR + 9_000, 0, true).is_some());
    reserve.void(false);
    reserve.granted(0, Ok(SECONDS), 0);
    assert_eq!((reserve.held(), reserve.stock().ids), (0, 0));
    assert_eq!((reserve.tally.replayed, reserve.tally.wasted_step), (ids, ids));
    let layout = Layout::default();
    let expected = Expected { cluster: [1; 16], stride: layout.stride(), layout: layout.to_bytes() };
    let (mut next, _) = Log::open(Box::new(disk), &expected).unwrap();
    next.resume_at(0);
    assert_eq!(next.stock().extents, 0);
}

/// A server that was quiet for longer than ids may be old has something to bridge an outage with.
#[test]
fn what_is_held_ahead_and_became_too_old_is_replaced_in_calm() {
    let (mut reserve, _disk) = spilled();
    let ids = reserve.stock().ids;
    assert!(reserve.plan_grant(FLOOR + 9_000, 0, true).is_some());
    reserve.granted(0, Ok(SECONDS), 0);
    assert_eq!(reserve.held(), ids);
    reserve.put_away((3_600..3_648).map(second).collect());
    let request = reserve.plan_grant(FLOOR + 3_648_000, 0, false).expect("a grant ahead");
    assert_eq!((request.from, reserve.held(), reserve.tally.expired), (SECONDS, 0, ids));
}

/// No turn comes between the two.
#[test]
fn what_a_leap_gives_up_is_erased_before_a_stop_puts_more_there() {
    let (mut reserve, disk) = spilled();
    reserve.void(false);
    reserve.seal(vec![second(SECONDS)], FLOOR + 9_000);
    let layout = Layout::default();
    let expected = Expected { cluster: [1; 16], stride: layout.stride(), layout: layout.to_bytes() };
    let (mut next, _) = Log::open(Box::new(disk), &expected).unwrap();
    next.resume_at(0);
    let mut left = Vec::new();
    next.read(next.tail()..next.head(), &mut left).unwrap();
    assert_eq!(left, [(SECONDS, second(SECONDS))]);
}

#[test]
fn a_file_that_what_is_given_up_cannot_be_erased_from_is_used_no_more() {
    let (mut reserve, disk) = spilled();
    reserve.void(false);
    disk.fail_sync(1);
    reserve.erase_given_up();
    assert!(!reserve.has_spill() && reserve.tally.failures == 1);
    // The mark is moved all the same.
    let request = reserve.plan_grant(FLOOR + 9_000, 0, false).expect("a move of the mark");
    assert_eq!((request.upto, request.gives_up, request.is_erased), (SECONDS, true, false));
}

/// A person would remove ids of after the leap with it.
#[test]
fn a_file_is_called_dangerous_only_while_what_is_given_up_is_in_it() {
    let (mut reserve, _disk) = spilled();
    reserve.void(false);
    reserve.erase_given_up();
    assert!(reserve.plan_giving_up().is_some_and(|request| request.is_erased));
    reserve.put_away(vec![second(SECONDS)]);
    reserve.give_up_stock();
    assert!(reserve.plan_giving_up().is_some_and(|request| !request.is_erased));
}

/// A leap, or a copy that was met, and then a disk that fails before the registry answers: the next life would read what was given up.
#[test]
fn what_is_given_up_is_given_up_without_the_file_too() {
    for fails_first in [false, true] {
        let (mut reserve, disk) = spilled();
        let fails = |reserve: &mut Reserve| {
            // The whole record is there, and the log says that it is not.
            disk.fail_write(1, 32);
            reserve.put_away(vec![second(9)]);
            assert!(!reserve.has_spill());
        };
        if fails_first {
            fails(&mut reserve);
            reserve.give_up_stock();
        } else {
            reserve.give_up_stock();
            fails(&mut reserve);
        }
        let plan = |reserve: &mut Reserve, boot| reserve.plan_grant(FLOOR + 9_000, boot, false);
        let later = Err(GrantError::Later { why: "away".into() });
        // What was given up before has not seen it.
        let upto = SECONDS + u64::from(fails_first);
        for (boot, answer) in [(0, later), (2_000_000_000, Ok(upto))] {
            let request = plan(&mut reserve, boot).expect("a move of the mark");
            assert_eq!((request.upto, request.gives_up), (upto, true));
            reserve.granted(request.from, answer, boot);
            assert!(plan(&mut reserve, boot).is_none());
        }
        assert!(plan(&mut reserve, 4_000_000_000).is_none() && reserve.held() == 0);
    }
}

/// Else the registry would be asked without end.
#[test]
fn a_giving_up_that_is_refused_is_not_asked_for_again() {
    for has_file in [true, false] {
        let (mut reserve, disk) = spilled();
        reserve.give_up_stock();
        if !has_file {
            disk.fail_write(1, 0);
            reserve.put_away(vec![second(9)]);
        }
        let request = reserve.plan_grant(FLOOR + 9_000, 0, false).expect("a move of the mark");
        assert!(request.gives_up);
        reserve.granted(request.from, Err(GrantError::Refused { why: "unreadable".into() }), 0);
        for boot in [0, 5_000_000_000, 500_000_000_000] {
            assert!(reserve.plan_grant(FLOOR + 9_000, boot, false).is_none(), "with its file: {has_file}");
        }
        assert!(!reserve.has_spill());
    }
}

/// A page of 128 records, and a spill of many.
#[test]
fn a_page_that_cannot_be_read_costs_its_records_and_not_the_spill() {
    const LAST: u64 = 3_000;
    let layout = Layout::default();
    let (log, disk) = filled(MIN_BYTES + 4_096 * RECORD as u64, LAST);
    drop(log);
    let page = (RECORDS + 128 * RECORD) as u64;
    disk.fail_reads(page..page + 4_096);
    let expected = Expected { cluster: [1; 16], stride: layout.stride(), layout: layout.to_bytes() };
    let (mut log, report) = Log::open(Box::new(disk), &expected).unwrap();
    assert_eq!(report.unreadable, 128);
    log.resume_at(0);
    let mut reserve = Reserve::new(layout, 3_600_000, Ok((log, 0)));
    let tick = FLOOR + LAST * 1_000;
    let mut seconds = 0;
    while let Some(GrantRequest { from, upto, .. }) = reserve.plan_grant(tick, 0, true) {
        reserve.granted(from, Ok(upto), 0);
        while let Some(run) = reserve.run(tick, 1 << 20) {
            seconds += u64::from(run.len());
        }
    }
    assert!(reserve.has_spill(), "{:?}", reserve.why_not);
    assert_eq!((seconds / second(0).ids(), seconds % second(0).ids()), (LAST - 128, 0));
}

#[test]
fn the_oldest_id_is_that_of_the_spill_or_of_memory_and_never_too_old() {
    let (mut reserve, _disk) = spilled();
    reserve.look_for_oldest(FLOOR + 9_000);
    assert_eq!(reserve.oldest_tick, Some(FLOOR));
    let Some(GrantRequest { from, .. }) = reserve.plan_grant(FLOOR + 9_000, 0, true) else {
        panic!("no grant is wanted")
    };
    reserve.granted(from, Ok(2), 0);
    reserve.look_for_oldest(FLOOR + 9_000);
    assert_eq!(reserve.oldest_tick, Some(FLOOR), "the first second is in memory now");
    reserve.granted.drain();
    reserve.look_for_oldest(FLOOR + 9_000);
    assert_eq!(reserve.oldest_tick, Some(FLOOR + 2_000), "two seconds were granted and are spent");
    let max_age = 3_600_000;
    reserve.look_for_oldest(FLOOR + 3_500 + max_age);
    assert_eq!(reserve.oldest_tick, Some(FLOOR + 3_500), "what is before that in its second is too old");
    reserve.look_for_oldest(FLOOR + 9_000 + max_age);
    assert_eq!(reserve.oldest_tick, None);
}
