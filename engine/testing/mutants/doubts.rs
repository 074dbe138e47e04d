//! Writes of which it is not known whether they were stored, where the record shows another write of the same token: an
//! earlier one of this process, or one of a copy of its memory.

use std::ops::Range;

use xuid_id::Layout;

use crate::registry::memory::{Fault, MemoryRegistry};
use crate::registry::ownership::{ExtendError, Ownership, TakeError, Window};
use crate::registry::{ClusterId, Genesis};
use crate::sys::guards::Guard;
use crate::testing::mutants::{only_without, ownership, request, span};
use crate::testing::simulation::twins::Link;

fn registry() -> MemoryRegistry {
    let cluster = ClusterId::from_bytes([1; 16]);
    MemoryRegistry::new(Genesis::new(cluster, Layout::default(), 1_000, 1))
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> Option<String> {
    let meet = one.start < other.end && other.start < one.end;
    meet.then(|| format!("{one:?} was granted, and {other:?}"))
}

/// The next write is lost, and so is the way to see that.
fn lose(registry: &MemoryRegistry) {
    registry.fail(Fault::LostUnseen);
    registry.fail_reads(1);
}

/// What a renewal brought; nothing where the record was found to be a copy's.
fn window_of(renewed: Result<Window, ExtendError>) -> Option<Range<u64>> {
    match renewed {
        Ok(window) => Some(span(window)),
        Err(error) => {
            assert!(matches!(error, ExtendError::Copied { .. }), "{error}");
            None
        }
    }
}

/// Two of one memory, which hold ticks 2000..2100 of worker 0.
fn twins() -> (Ownership, Ownership, MemoryRegistry) {
    let (here, there) = (registry(), registry());
    let links = [&here, &there].map(Link::new);
    let [one, twin] = [&links[0], &links[1]].map(|link| {
        let mut ownership = ownership(link, 1);
        drop(ownership.take(&request(2_000)).unwrap());
        ownership
    });
    links[1].put_to(&here);
    (one, twin, here)
}

#[test]
fn a_claim_that_was_lost_is_not_taken_for_an_earlier_write_of_this_process() {
    only_without(&[Guard::ClaimCompared], || {
        let registry = registry();
        let [mut one, mut other] = [1, 2].map(|token| ownership(&Link::new(&registry), token));
        // The record shows its token.
        drop(one.take(&request(2_000)).unwrap());
        one.release(0, 2_050).unwrap();
        lose(&registry);
        assert!(matches!(one.take(&request(2_500)), Err(TakeError::InDoubt { .. })));
        let first = span(one.take(&request(2_510)).unwrap());
        match other.take(&request(2_520)) {
            Ok(window) => overlap(&first, &span(window)),
            Err(error) => {
                assert!(matches!(error, TakeError::NoneFree { earliest: 2_610 }), "{error}");
                None
            }
        }
    });
}

#[test]
fn a_renewal_of_a_copy_is_not_taken_for_one_that_is_in_doubt() {
    only_without(&[Guard::RenewalCompared], || {
        let (mut one, mut twin, registry) = twins();
        for end in [2_300, 2_400] {
            lose(&registry);
            assert!(twin.extend(0, 2_050, end).is_err());
        }
        // Its second operation, too, came to nothing; the third has the end of the twin's second.
        registry.fail(Fault::Away);
        assert!(one.extend(0, 2_050, 2_200).is_err());
        let first = span(one.extend(0, 2_050, 2_300).unwrap());
        window_of(twin.extend(0, 2_060, 2_500)).and_then(|window| overlap(&first, &window))
    });
}

#[test]
fn a_renewal_of_a_copy_with_the_same_operation_number_is_told_by_its_end() {
    only_without(&[Guard::OwnEnd], || {
        let (mut one, mut twin, registry) = twins();
        let first = span(one.extend(0, 2_050, 2_200).unwrap());
        registry.fail(Fault::LostUnseen);
        window_of(twin.extend(0, 2_050, 2_300)).and_then(|window| overlap(&first, &window))
    });
}
