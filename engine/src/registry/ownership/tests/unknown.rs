//! Writes whose outcome is not known.

use super::*;

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
