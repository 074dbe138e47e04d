//! Answers that are lost at every byte of a grant's transaction.

use std::time::Duration;

use xuid_engine::sequence::store::Outcome;
use xuid_engine::sequence::store::database::{DatabaseOptions, open};
use xuid_tests::{Ending, Relay, Rng};

use crate::fixture::{Ranges, Server, ask, create, grant_one, mark, on_both, patient};

on_both!(answers_cut_at_every_byte_of_a_commit_grant_nothing_twice);

/// The step of a row that nothing else is said of.
const STEP: u64 = 1_000;

/// From here to its end an answer is cut at every byte: it holds what was updated and that it was committed. Before that,
/// every byte is as good as the next few.
const LAST_BYTES: usize = 200;

/// What came of all that was tried.
#[derive(Debug, Default)]
struct Tally {
    ranges: Ranges,
    granted: u64,
    unknown: u64,
    away: u64,
}

impl Tally {
    fn take(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Granted { .. } => self.granted += 1,
            Outcome::Unknown { .. } => self.unknown += 1,
            Outcome::Away { .. } => self.away += 1,
            other => panic!("{other:?}"),
        }
        self.ranges.take(&[ask("order")], std::slice::from_ref(outcome));
    }
}

/// However late a transaction lands whose answer was lost: it is unknown, so it may be in the mark or not. What was
/// granted is in it, and what was away is not.
fn answers_cut_at_every_byte_of_a_commit_grant_nothing_twice(server: &mut Server) {
    create(&mut *server.prepared(), "order");
    let relay = Relay::start(server.addr()).unwrap();
    let url = server.url_by(&relay.addr().to_string());
    let mut store = open(&url, &patient("xuid")).unwrap();
    let mut rng = Rng::from_env("cuts");
    let is_long = std::env::var("XUID_LONG").is_ok();
    let (mut tally, mut bytes) = (Tally::default(), 0);
    let whole = {
        store.identity().unwrap();
        relay.arm(usize::MAX, Ending::Cut);
        tally.take(&grant_one(&mut *store, "order"));
        relay.passed()
    };
    assert!(tally.granted == 1 && whole > LAST_BYTES, "{whole} bytes: {tally:?}");
    loop {
        // Connected, and looked at, before the answers are counted.
        if store.identity().is_err() {
            continue;
        }
        relay.arm(bytes, Ending::Cut);
        let outcome = grant_one(&mut *store, "order");
        let is_struck = relay.disarm();
        tally.take(&outcome);
        if is_struck {
            assert!(!matches!(outcome, Outcome::Granted { .. }), "granted without the answer's byte {bytes}");
            bytes += if is_long || bytes + LAST_BYTES > whole { 1 } else { 1 + rng.below(24) as usize };
        } else if matches!(outcome, Outcome::Granted { .. }) {
            break;
        }
        // A larger mark may have some more digits.
        assert!(bytes < whole + 50, "{tally:?}");
    }
    println!("an answer has {whole} bytes");
    // Swallowed instead, at a few places: the store gives up by its own deadline.
    let short = DatabaseOptions { statement: Duration::from_millis(400), ..patient("xuid") };
    let mut store = open(&url, &short).unwrap();
    for at in [0, bytes / 3, bytes - 1] {
        if store.identity().is_err() {
            continue;
        }
        relay.arm(at, Ending::Swallow);
        tally.take(&grant_one(&mut *store, "order"));
        relay.disarm();
    }
    relay.cut();
    // Every transaction that is still under way ends before this one, which waits for the row.
    let mut last = server.store();
    let Outcome::Granted { first, end, .. } = grant_one(&mut *last, "order") else { panic!() };
    tally.ranges.add("order", first, end);
    let moved = mark(&mut server.sql(), "order") - 1;
    println!(
        "{} granted, {} unknown, {} away; the mark moved by {moved}",
        tally.granted, tally.unknown, tally.away
    );
    assert_eq!(tally.ranges.total("order"), (tally.granted + 1) * STEP);
    assert!(moved >= (tally.granted + 1) * STEP, "a grant is not in the mark");
    assert!(moved <= (tally.granted + tally.unknown + 1) * STEP, "what was away is in the mark");
    assert!(moved > (tally.granted + 1) * STEP, "no lost answer was one of a commit");
}
