//! Coalescing against a naive model: sets of ids.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const SECOND: Limits = Limits { max_ticks: 1_000, least_ids: 64, max_extents: 10_000 };

/// Four workers, eight sequences: small enough that pieces meet all the time.
fn small() -> Layout {
    Layout::new(58, 2, 3, 1_000, 0).unwrap()
}

fn expand(extents: &[Extent], layout: &Layout) -> Vec<u64> {
    let of = |extent: &Extent| {
        let (first, len) = (extent.first, u64::from(extent.len));
        let stride = layout.stride();
        (0..u64::from(extent.ticks)).flat_map(move |tick| (0..len).map(move |at| first + tick * stride + at))
    };
    extents.iter().flat_map(of).collect()
}

fn total(extents: &[Extent]) -> u64 {
    extents.iter().map(Extent::ids).sum()
}

/// Shuffles without a generator: by the bits of a multiplicative hash.
fn shuffled(mut pieces: Vec<Extent>) -> Vec<Extent> {
    pieces.sort_by_key(|piece| piece.first.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20));
    pieces
}

/// One tick of worker 7, cut into blocks of at most 1,024 as the ring holds them.
fn blocks(tick: u64, from: u32, until: u32) -> Vec<Extent> {
    let layout = Layout::default();
    let mut pieces = Vec::new();
    let mut at = from;
    while at < until {
        let aligned = if at == 0 { 1_024 } else { 1 << at.trailing_zeros().min(10) };
        let len = aligned.min(1 << (until - at).ilog2());
        pieces.push(Extent { first: layout.encode(tick, 7, at).raw(), len, ticks: 1 });
        at += len;
    }
    pieces
}

fn check(pieces: &[Extent], layout: &Layout, limits: &Limits) -> Coalesced {
    let given: BTreeSet<u64> = expand(pieces, layout).into_iter().collect();
    let coalesced = coalesce(pieces.to_vec(), layout, limits);
    let out = expand(&coalesced.extents, layout);
    let once: BTreeSet<u64> = out.iter().copied().collect();
    assert_eq!(once.len(), out.len(), "C1: an id came out twice");
    assert!(once.is_subset(&given), "C1: an id came out that had not gone in");
    assert_eq!(given.len() as u64, out.len() as u64 + coalesced.trimmed, "C2");
    assert!(coalesced.extents.len() <= limits.max_extents);
    assert!(coalesced.extents.is_sorted_by_key(|extent| extent.first), "the oldest come first");
    for extent in &coalesced.extents {
        let last = extent.first + u64::from(extent.len) - 1;
        assert!(extent.len > 0 && extent.first / 8 == last / 8, "C3: {extent:?} leaves its worker");
        assert!(u64::from(extent.ticks) <= limits.max_ticks, "C3: {extent:?} is too long");
        assert!(extent.ids() >= limits.least_ids, "C3: {extent:?} is not worth a record");
    }
    coalesced
}

/// Extents anywhere on a small map, those left out that would overlap an earlier one.
fn scattered() -> impl Strategy<Value = Vec<Extent>> {
    let piece = (0u64..24, 0u32..4, 0u32..8, 1u32..=8, prop_oneof![Just(1u32), 1u32..12]);
    prop::collection::vec(piece, 0..80).prop_map(|wanted| {
        let layout = small();
        let mut taken = BTreeSet::new();
        let mut pieces = Vec::new();
        for (tick, worker, start, len, ticks) in wanted {
            let first = layout.encode(tick, worker, start).raw();
            let piece = Extent { first, len: len.min(8 - start), ticks };
            let ids = expand(&[piece], &layout);
            if ids.iter().all(|id| !taken.contains(id)) {
                taken.extend(ids);
                pieces.push(piece);
            }
        }
        pieces
    })
}

/// A map mostly full, in pieces of one tick: what an idle second leaves.
fn nearly_full() -> impl Strategy<Value = Vec<Extent>> {
    prop::collection::vec((0u32..4, 0u32..8, 0u32..8), 1..60).prop_map(|ticks| {
        let layout = small();
        let mut pieces = Vec::new();
        for (tick, (worker, skipped, cut)) in ticks.into_iter().enumerate() {
            let from = if skipped < 6 { 0 } else { skipped - 5 };
            let at = |sequence| layout.encode(tick as u64, worker / 2, sequence).raw();
            let middle = cut.max(from);
            pieces.push(Extent { first: at(middle), len: 8 - middle, ticks: 1 });
            if middle > from {
                pieces.push(Extent { first: at(from), len: middle - from, ticks: 1 });
            }
        }
        pieces
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    let max_extents = prop_oneof![3 => Just(usize::MAX), 1 => 0usize..6];
    (1u64..20, 1u64..12, max_extents).prop_map(|(max_ticks, least_ids, max_extents)| Limits {
        max_ticks,
        least_ids,
        max_extents,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_id_comes_out_once_or_is_counted_as_trimmed(pieces in scattered(), limits in limits()) {
        check(&pieces, &small(), &limits);
    }

    #[test]
    fn nearly_equal_ticks_lose_no_id_uncounted(pieces in nearly_full(), limits in limits()) {
        check(&pieces, &small(), &limits);
    }

    #[test]
    fn nothing_is_trimmed_when_every_id_is_worth_a_record(
        pieces in prop_oneof![scattered(), nearly_full()], max_ticks in 1u64..20,
    ) {
        let limits = Limits { max_ticks, least_ids: 1, max_extents: usize::MAX };
        prop_assert_eq!(check(&pieces, &small(), &limits).trimmed, 0);
    }

    #[test]
    fn the_order_of_the_pieces_does_not_matter(pieces in scattered(), limits in limits()) {
        let mut backwards = pieces.clone();
        backwards.reverse();
        let (one, other) = (coalesce(pieces, &small(), &limits), coalesce(backwards, &small(), &limits));
        prop_assert_eq!(one.extents, other.extents);
    }
}

#[test]
fn an_idle_second_is_one_extent() {
    let pieces = shuffled((5_000..6_000).flat_map(|tick| blocks(tick, 0, 4_096)).collect());
    let coalesced = coalesce(pieces, &Layout::default(), &SECOND);
    let first = Layout::default().encode(5_000, 7, 0).raw();
    assert_eq!(coalesced.extents, [Extent { first, len: 4_096, ticks: 1_000 }]);
    assert_eq!(coalesced.trimmed, 0);
}

#[test]
fn ticks_begun_at_rotating_offsets_stay_few_extents_and_lose_little() {
    // As fresh calls leave a second: tick t begins at offset t mod 64 and a few ids of it are used.
    let pieces: Vec<_> = (0..1_000u32)
        .flat_map(|tick| {
            let (offset, used) = (tick % 64, 1 + tick % 7);
            let after = blocks(u64::from(tick), offset + used, 4_096);
            blocks(u64::from(tick), 0, offset).into_iter().chain(after)
        })
        .collect();
    let given = total(&pieces);
    // What lies before the offsets is narrow and ragged; a bar of a ring's block keeps it from becoming 200 records.
    let limits = Limits { least_ids: 1_024, ..SECOND };
    let coalesced = coalesce(shuffled(pieces), &Layout::default(), &limits);
    assert!(coalesced.extents.len() <= 8, "{} extents", coalesced.extents.len());
    assert!(coalesced.trimmed * 50 < given, "{} of {given} trimmed", coalesced.trimmed);
}

#[test]
fn what_sticks_out_is_kept_when_it_is_worth_a_record() {
    // For half a second the whole tick is unused, then its first 30 ids are taken.
    let pieces: Vec<_> =
        (0..1_000).flat_map(|tick| blocks(tick, if tick < 500 { 0 } else { 30 }, 4_096)).collect();
    let coalesced = coalesce(pieces, &Layout::default(), &SECOND);
    assert_eq!(coalesced.trimmed, 0);
    let shapes: Vec<_> = coalesced.extents.iter().map(|extent| (extent.len, extent.ticks)).collect();
    assert_eq!(shapes, [(30, 500), (4_066, 1_000)]);
}

#[test]
fn a_whole_tick_below_a_narrow_rectangle_is_not_cut_up() {
    let layout = Layout::default();
    let narrow = Extent { first: layout.encode(0, 7, 2_000).raw(), len: 70, ticks: 900 };
    let whole = Extent { first: layout.encode(900, 7, 0).raw(), len: 4_096, ticks: 1 };
    assert_eq!(coalesce(vec![whole, narrow], &layout, &SECOND).extents, [narrow, whole]);
}

#[test]
fn a_long_piece_is_cut_at_the_longest_extent() {
    let first = Layout::default().encode(40, 3, 1_000).raw();
    let coalesced = coalesce(vec![Extent { first, len: 96, ticks: 2_500 }], &Layout::default(), &SECOND);
    assert_eq!(coalesced.extents.iter().map(|extent| extent.ticks).collect::<Vec<_>>(), [1_000, 1_000, 500]);
    assert_eq!(coalesced.trimmed, 0);
}

#[test]
fn workers_next_to_each_other_are_never_joined() {
    let layout = Layout::default();
    let pieces: Vec<_> = (0..3)
        .map(|worker| Extent { first: layout.encode(9, worker, 0).raw(), len: 4_096, ticks: 10 })
        .collect();
    assert_eq!(coalesce(pieces.clone(), &layout, &SECOND).extents, pieces);
}

#[test]
fn of_too_many_extents_the_smallest_are_dropped_and_counted() {
    let layout = Layout::default();
    // Three ticks apart, so that nothing joins.
    let pieces: Vec<_> = (1..=10)
        .map(|size| Extent {
            first: layout.encode(u64::from(size) * 3, 0, 0).raw(),
            len: size * 100,
            ticks: 1,
        })
        .collect();
    let coalesced = coalesce(pieces, &layout, &Limits { max_extents: 4, ..SECOND });
    assert_eq!(coalesced.extents.iter().map(|extent| extent.len).collect::<Vec<_>>(), [700, 800, 900, 1_000]);
    assert_eq!(coalesced.trimmed, 2_100);
}

#[test]
fn nothing_comes_of_nothing() {
    let coalesced = coalesce(Vec::new(), &Layout::default(), &SECOND);
    assert!(coalesced.extents.is_empty());
    assert_eq!(coalesced.trimmed, 0);
}
