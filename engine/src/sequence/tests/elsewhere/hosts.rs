//! Servers on several hosts of one database, each with a witness that sees what its own host was granted.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::clock::{Clock, SECOND};
use crate::registry::sequences::memory::RecordFault;
use crate::sequence::tests::SteppedClock;
use crate::sequence::tests::meddled::slow;
use crate::sequence::{Demand, SequenceErrorKind};

/// One server, its way to the database, and its sequence.
struct Host {
    store: MemoryStore,
    _sequences: Sequences,
    teller: Teller,
    a: Sequence,
}

impl Host {
    fn take(&mut self, turns: usize, ids: &mut Vec<u64>) {
        take_in_turns(turns, &self.a, ids, || self.teller.turn_now());
    }
}

/// Records of one host, as a server has them by default beside a registry of its own.
fn records(cluster: u8) -> MemoryRecords {
    MemoryRecords::new(ClusterId::from_bytes([cluster; 16])).described("local")
}

/// A database and its replica.
fn world_of_two() -> World {
    let world = World::with_hosts(2);
    world.create("a", SequenceSettings::default());
    world.database.store(0).record_identity().unwrap();
    world
}

/// Two hosts, of which each took ids for so many turns behind the replica's last commit, which is promoted then; and those ids.
fn behind_a_promotion(lossless: bool, turns: [usize; 2]) -> ([Host; 2], Vec<u64>) {
    let (world, clock) = (world_of_two(), clock());
    let mut hosts = [1, 2].map(|cluster| {
        let store = world.database.store(0);
        let builder = Sequences::builder(Box::new(store.clone())).records(Box::new(records(cluster)));
        let builder = builder.lossless_failover(lossless).wait(LONG).clock(clock.clone());
        let (sequences, teller) = builder.assemble_for_test();
        Host { store, a: sequence(&sequences, "a"), _sequences: sequences, teller }
    });
    let mut ids = Vec::new();
    for Host { teller, a, .. } in &mut hosts {
        ids.push(next(a, || teller.turn_now()));
    }
    world.database.replicate(0, 1);
    for (host, turns) in hosts.iter_mut().zip(turns) {
        host.take(turns, &mut ids);
    }
    for host in &hosts {
        host.store.connect_to(1);
    }
    (hosts, ids)
}

fn twice_of_hosts_with_witnesses_of_their_own() -> usize {
    let (mut hosts, mut ids) = behind_a_promotion(false, [100, 100]);
    for host in &mut hosts {
        host.take(3_000, &mut ids);
    }
    twice(&ids)
}

#[test]
fn a_witness_that_each_host_has_of_its_own_is_no_proof() {
    assert_eq!(twice_of_hosts_with_witnesses_of_their_own(), 0);
    assert!(Guard::without(&[Guard::UnsharedIsWatched], twice_of_hosts_with_witnesses_of_their_own) > 0);
}

/// Ids that came twice where leftovers lie of a host that died with their grant, which the promoted one gave to another process.
fn twice_of_leftovers_over_a_fail_over() -> usize {
    let (world, folder, clock) = (world_of_two(), tempfile::tempdir().unwrap(), clock());
    world.database.replicate(0, 1);
    let records = records(9);
    let life = |host| {
        let builder = Sequences::builder(Box::new(world.database.store(host)));
        let builder = builder.records(Box::new(records.clone())).data_dir(folder.path());
        builder.wait(LONG).clock(clock.clone()).assemble_for_test()
    };
    let (first, mut teller) = life(0);
    next(&sequence(&first, "a"), || teller.turn_now());
    teller.stop();
    drop((first, teller));
    let (mut promoted, mut granted) = (world.database.store(1), Vec::new());
    promoted.grant(&[Ask { name: named("a"), count: 2_000, least: 1, floor: 0 }], &mut granted);
    let Some(Outcome::Granted { first, end, .. }) = granted.pop() else { panic!("it has ids") };
    let mut ids: Vec<u64> = (first..end).collect();
    promoted.raise(&named("a"), 20_000).unwrap();
    promoted.record_identity().unwrap();
    let (second, mut teller) = life(1);
    let (a, before) = (sequence(&second, "a"), ids.len());
    take_in_turns(20, &a, &mut ids, || teller.turn_now());
    assert!(ids.len() > before, "it goes on behind the fence");
    twice(&ids)
}

#[test]
fn leftovers_of_a_host_that_was_left_are_not_used_beside_a_witness_of_one_host() {
    assert_eq!(twice_of_leftovers_over_a_fail_over(), 0);
}

/// Whoever vouches for the store vouches for no mark of this very process: beside a witness that does not see the grants of all, its
/// gaps are what others were granted.
#[test]
fn beside_a_witness_of_its_own_a_process_uses_no_grant_below_its_own_where_a_person_vouches() {
    // More than the other one asks for at once later, and then that one's next grant, above it.
    let (mut hosts, mut ids) = behind_a_promotion(true, [2_000, 40]);
    // The one with the higher mark is first: what the replica grants lies in a gap of its record.
    for host in hosts.iter_mut().rev() {
        host.take(3_000, &mut ids);
    }
    assert_eq!(twice(&ids), 0);
}

/// Two hosts of one database, each with a folder and a witness of its own, and the ids of their first lives: both were killed, or the
/// name is strict and they stopped, so that nothing is left of it. Then a dump of before that is put back, whose identity is the same.
struct BehindADump {
    world: World,
    clock: Arc<SteppedClock>,
    witnesses: [MemoryRecords; 2],
    folders: [TempDir; 2],
    ids: Vec<u64>,
}

impl BehindADump {
    fn new(is_strict: bool) -> Self {
        let world = World::new();
        world.create("a", SequenceSettings { strict: is_strict, ..SequenceSettings::default() });
        world.database.store(0).record_identity().unwrap();
        let dump = world.database.dump(0);
        let (witnesses, folders) = ([records(1), records(2)], [(); 2].map(|()| tempfile::tempdir().unwrap()));
        let mut hosts = Self { world, clock: clock(), witnesses, folders, ids: Vec::new() };
        for (at, count) in [(0, 1), (1, 300)] {
            let (a, _sequences, mut teller) = hosts.life(at);
            hosts.ids.extend((0..count).map(|_| next(&a, || teller.turn_now())));
            if is_strict {
                teller.stop();
            }
        }
        hosts.world.database.restore(0, &dump);
        hosts
    }

    fn life(&self, at: usize) -> (Sequence, Sequences, Teller) {
        let builder = Sequences::builder(Box::new(self.world.database.store(0)));
        let builder = builder.records(Box::new(self.witnesses[at].clone())).data_dir(self.folders[at].path());
        let (sequences, teller) = builder.wait(LONG).clock(self.clock.clone()).assemble_for_test();
        (sequence(&sequences, "a"), sequences, teller)
    }

    /// A host goes on in another life, as far as it is granted something.
    fn go_on(&mut self, at: usize) {
        let (a, _sequences, mut teller) = self.life(at);
        teller.turn_now();
        let mut call = Box::pin(a.request(Demand::ordered(1), LONG));
        for _ in 0..10 {
            if let Poll::Ready(got) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                self.ids.extend(got.into_iter().flatten().flatten());
                break;
            }
            teller.turn_now();
        }
    }

    fn twice(&self) -> usize {
        twice(&self.ids)
    }
}

/// Ids that came twice where the first host goes on behind the dump.
fn twice_of_a_dump_between_lives(is_strict: bool) -> usize {
    let mut hosts = BehindADump::new(is_strict);
    hosts.go_on(0);
    hosts.twice()
}

/// What the folder's own witness saw tells that the store went back; what others were granted meanwhile it does not tell.
#[test]
fn a_dump_that_is_put_back_between_lives_is_noticed_by_what_a_witness_of_one_host_saw() {
    for is_strict in [false, true] {
        let twice = || twice_of_a_dump_between_lives(is_strict);
        assert_eq!(twice(), 0, "strict: {is_strict}");
        assert!(Guard::without(&[Guard::OwnRecordIsMark], twice) > 0, "strict: {is_strict}");
    }
}

/// Another process kept the file's lock for just too long, say: what can't be read before a grant tells no less than what is read
/// behind it.
#[test]
fn a_witness_of_one_host_that_is_away_before_the_grant_and_back_behind_it_does_not_hide_a_dump() {
    let mut hosts = BehindADump::new(false);
    hosts.witnesses[0].fail([RecordFault::Away]);
    hosts.go_on(0);
    assert_eq!(hosts.twice(), 0);
}

/// Ids that came twice where both go on behind the dump, the one that was granted more first.
fn twice_of_a_dump_that_another_host_met() -> usize {
    let mut hosts = BehindADump::new(false);
    hosts.go_on(1);
    hosts.go_on(0);
    hosts.twice()
}

/// What it is granted is thrown away; had that moved the mark, it would be above what the other one knows.
#[test]
fn a_host_that_meets_a_dump_hides_it_from_no_other_one() {
    assert_eq!(twice_of_a_dump_that_another_host_met(), 0);
    assert!(Guard::without(&[Guard::GrantAboveFloor], twice_of_a_dump_that_another_host_met) > 0);
}

/// Each life of it is granted a step more, and one of them the numbers of the other host.
#[test]
fn a_host_that_is_started_again_and_again_behind_a_dump_waits_for_a_fence_in_each_life() {
    let mut hosts = BehindADump::new(false);
    (0..4).for_each(|_| hosts.go_on(0));
    assert_eq!(hosts.twice(), 0);
    let mut store = hosts.world.database.store(0);
    store.raise(&named("a"), 20_000).unwrap();
    store.record_identity().unwrap();
    hosts.go_on(0);
    assert_eq!(hosts.ids.last(), Some(&20_000), "behind the fence");
}

/// "Create it if it is absent" is what clients do; of numbers that were granted before they know nothing.
#[test]
fn a_row_that_is_gone_is_not_made_again_below_what_a_witness_of_one_host_saw() {
    let hosts = BehindADump::new(false);
    hosts.world.database.remove(0, "a");
    let (a, sequences, mut teller) = hosts.life(0);
    let mut create = |start| {
        let reply = sequences.create(&named("a"), NewSequence { start, ..NewSequence::default() });
        teller.turn_now();
        reply.wait()
    };
    assert!(matches!(create(1), Err(ControlError::Refused { why }) if why.contains("start of 1001")));
    create(1_001).unwrap();
    create(1).unwrap();
    assert_eq!(next(&a, || teller.turn_now()), 1_001);
}

/// A dead connection of before the restore, say, is met by the look whether the row is there.
#[test]
fn a_row_of_which_it_is_not_known_whether_it_is_there_is_not_made_below_what_was_granted() {
    let hosts = BehindADump::new(false);
    hosts.world.database.remove(0, "a");
    let meddle = |asked| match asked {
        Asked::Read => Err(StoreError::Away { why: "the connection was closed".into() }),
        _ => Ok(()),
    };
    let store = MeddledStore { inner: hosts.world.database.store(0), meddle, says_why: true };
    let builder = Sequences::builder(Box::new(store)).records(Box::new(hosts.witnesses[0].clone()));
    let (sequences, mut teller) = builder.clock(hosts.clock.clone()).assemble_for_test();
    let reply = sequences.create(&named("a"), NewSequence::default());
    teller.turn_now();
    assert!(matches!(reply.wait(), Err(ControlError::StoreAway { .. })));
    assert_eq!(hosts.world.database.mark(0, "a"), None);
}

/// What another process holds the lock of for a moment is not known, and so is no leave to begin at 1.
#[test]
fn a_row_is_not_made_again_where_the_witness_of_one_host_cannot_be_read() {
    let hosts = BehindADump::new(false);
    hosts.world.database.remove(0, "a");
    let (_a, sequences, mut teller) = hosts.life(0);
    hosts.witnesses[0].fail([RecordFault::Away]);
    let reply = sequences.create(&named("a"), NewSequence::default());
    teller.turn_now();
    assert!(matches!(reply.wait(), Err(ControlError::StoreAway { why }) if why.contains("witness")));
    assert_eq!(hosts.world.database.mark(0, "a"), None);
}

/// A record that a fence of its registry closed, say: what is granted meanwhile would be thrown away, and had moved the mark.
#[test]
fn a_name_whose_record_waits_for_a_person_is_not_asked_for_beside_a_witness_of_one_host() {
    let mut hosts = BehindADump::new(false);
    hosts.witnesses[0].set_closed("a", true);
    let (a, sequences, mut teller) = hosts.life(0);
    let mark = hosts.world.database.mark(0, "a");
    take_in_turns(10, &a, &mut hosts.ids, || teller.turn_now());
    assert_eq!((hosts.world.database.mark(0, "a"), hosts.twice()), (mark, 0));
    let error = a.try_next_ordered().unwrap_err();
    assert_eq!((error.kind(), sequences.status().behind), (SequenceErrorKind::StoreBehind, None));
    hosts.world.database.remove(0, "a");
    let reply = sequences.create(&named("a"), NewSequence::default());
    teller.turn_now();
    assert!(matches!(reply.wait(), Err(ControlError::Refused { .. })));
}

/// Of each row of many it is looked whether it is there, by a store that takes its time.
#[test]
fn rows_that_are_made_again_by_many_questions_keep_no_name_waiting_for_long() {
    let (world, clock) = (World::new(), clock());
    let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
    for name in &names {
        world.create(name, SequenceSettings::default());
    }
    let store = slow(world.database.store(0), &clock, Asked::Read, Duration::from_millis(900));
    let (sequences, mut teller) =
        Sequences::builder(Box::new(store)).clock(clock.clone()).assemble_for_test();
    for name in &names {
        next(&sequence(&sequences, name), || teller.turn_now());
    }
    let begun = clock.read().boot;
    let create = |name: &String| sequences.create(&named(name), NewSequence::default());
    let replies: Vec<_> = names.iter().map(create).collect();
    teller.turn_now();
    assert!(clock.read().boot - begun < 5 * SECOND);
    drop(replies);
}
