//! Ids: each once, those in order rising, and what a request for them costs.

use xuid_engine::{Engine, Id};

use super::*;
use crate::fronts::client::RUNS_KEPT;
use crate::state::access::AccessRules;

#[test]
fn ids_of_one_conversation_are_all_different_and_ordered_ones_ascend() {
    let mut talk = Talk::greeted(Home::shared());
    let mut seen = std::collections::HashSet::new();
    let mut last = 0;
    for request_id in 0..30 {
        let order = Order::ALL[request_id as usize % 3];
        let bulk = Bulk::new(700, order, PATIENCE);
        talk.send(&frame(|out| match request_id % 2 {
            0 => request_array(out, request_id, bulk),
            _ => request_runs(out, request_id, bulk),
        }));
        talk.settle();
        let replies = talk.replies();
        let [(id, Said::Ids(ids))] = &replies[..] else { panic!("{replies:?}") };
        assert_eq!((*id, ids.len()), (request_id, 700));
        assert!(ids.iter().all(|id| seen.insert(*id)), "an id came twice");
        if order == Order::Ordered {
            assert!(ids.is_sorted() && ids[0] > last);
            last = ids[699];
        }
    }
}

/// NEXT in each form that a client may write: bare, with its order, and with a status that nobody looks at.
fn next_in_form(form: u64, request_id: u64) -> Vec<u8> {
    match form % 3 {
        0 => frame(|out| request_next(out, request_id, Order::Any)),
        1 => [&[1, 0, 0, 0, 0x10, 0, 0, 0][..], &request_id.to_le_bytes(), &[Order::Any.code()]].concat(),
        _ => [&[0, 0, 0, 0, 0x10, 0, 7, 0][..], &request_id.to_le_bytes()].concat(),
    }
}

/// Answers all of `input`, as a connection does that writes whenever it may.
fn converse(talk: &mut Talk, input: &[u8]) -> Vec<(u64, Said)> {
    let (mut need, mut replies) = (talk.send(input), Vec::new());
    loop {
        talk.settle();
        replies.append(&mut talk.replies());
        if need != Need::Room {
            return replies;
        }
        need = talk.session.receive(&mut talk.inbox, &mut talk.outbox, usize::MAX);
    }
}

#[test]
fn a_flood_of_nexts_is_answered_one_by_one_and_no_id_comes_twice() {
    // On ticks declared unused, where every id is at hand, and on what the clock brings, where some have to be waited
    // for.
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::builder().data_dir(folder.path()).build().unwrap();
    let (limits, places) = (Home::shared().limits, Home::shared().places);
    let by_the_clock =
        Arc::new(Server::new(engine, limits, AccessRules::new(Tokens::default(), None), places));
    for server in [Home::shared(), by_the_clock] {
        let mut talk = Talk::greeted(server);
        // Runs of one form between the others, and far more replies than the output holds.
        let input: Vec<u8> = (0..30_000).flat_map(|id| next_in_form(id / 50 * (id % 7 / 6), id)).collect();
        let mut replies = converse(&mut talk, &input);
        replies.sort_unstable_by_key(|(request_id, _)| *request_id);
        let asked = replies.iter().map(|(request_id, _)| *request_id);
        assert!(asked.eq(0..30_000), "each is answered, and once");
        let ids: std::collections::HashSet<u64> = replies
            .iter()
            .map(|(_, said)| match said {
                Said::Ids(ids) if ids.len() == 1 => ids[0],
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(ids.len(), 30_000);
        let counted = talk.session.client.server.traffic.requests().find(|(op, _)| *op == Op::Next);
        assert!(counted.is_some_and(|(_, count)| count >= 30_000), "{counted:?}");
    }
}

/// A pipeline of a hundred single ids and one request for many, once buffers and the thread's run have their size. What
/// has to wait for ids is not told of here: that takes a ticket.
#[test]
fn a_warm_session_allocates_nothing_for_a_request() {
    let mut talk = Talk::greeted(Home::shared());
    let pipeline = frame(|out| {
        for request_id in 0..100 {
            request_next(out, request_id, Order::Any);
        }
        request_array(out, 100, Bulk::new(4_096, Order::Any, PATIENCE));
        request_runs(out, 101, Bulk::new(131_072, Order::Any, PATIENCE));
    });
    let mut round = || {
        assert_eq!(talk.send(&pipeline), Need::Input);
        // Ids that are not there yet are waited for, which is not what this is about.
        let waits = talk.session.in_flight() > 0;
        if waits {
            allocation_counter::opt_out(|| talk.settle());
        }
        talk.outbox.consume(talk.outbox.len());
        waits
    };
    (0..100).for_each(|_| _ = round());
    let rounds: Vec<_> = (0..1_000)
        .map(|_| {
            let mut waits = false;
            let info = allocation_counter::measure(|| waits = round());
            (waits, info.count_total)
        })
        .collect();
    let warm: Vec<u64> = rounds.iter().filter(|(waits, _)| !waits).map(|(_, count)| *count).collect();
    assert!(warm.len() > 100, "{} rounds of 1,000 did not wait", warm.len());
    assert_eq!(warm.iter().sum::<u64>(), 0, "{warm:?}");
}

#[test]
fn a_request_that_gets_no_ids_keeps_no_room_for_runs() {
    let home = Home::new(Tokens::default());
    let mut talk = Talk::greeted(Arc::clone(&home.server));
    // From now on each request is refused, or waits for its refusal.
    home.server.engine.shutdown();
    for wait in [Duration::ZERO, PATIENCE] {
        // As the engine leaves it that gathered so many runs, and gave them back for want of the rest.
        talk.session.client.ids.reserve(64 * RUNS_KEPT);
        talk.session.client.numbers.reserve(64 * RUNS_KEPT);
        let mut input = Vec::new();
        request_array(&mut input, 2, Bulk::new(1, Order::Any, wait));
        talk.send(&input);
        let kept = talk.session.client.ids.capacity().max(talk.session.client.numbers.capacity());
        assert!(kept <= RUNS_KEPT, "room for {kept} runs, with a wait of {wait:?}");
        talk.settle();
        assert_eq!(talk.replies(), [(2, Said::Error(Status::SHUTTING_DOWN))]);
    }
}

/// Else what it has no room for grows old while it waits for room, and others go without.
#[test]
fn a_client_that_does_not_read_gets_none_of_what_it_waits_for_until_it_reads() {
    let mut talk = Talk::greeted(Home::shared());
    // An engine that starts has its past a moment later.
    talk.send(&frame(|out| request_array(out, 2, Bulk::new(131_072, Order::Any, PATIENCE))));
    talk.settle();
    assert!(matches!(&talk.replies()[..], [(2, Said::Ids(ids))] if ids.len() == 131_072));
    let mut input = Vec::new();
    // The last ten milliseconds do not have so many fresh ones; of the others one reply is more than there is room for.
    request_array(&mut input, 2, Bulk::new(131_072, Order::Fresh, PATIENCE));
    request_array(&mut input, 3, Bulk::new(131_072, Order::Any, PATIENCE));
    talk.send(&input);
    assert!(talk.session.in_flight() > 0 && talk.outbox.is_high());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let waits = |talk: &mut Talk, limit| {
        let waited = async { tokio::time::timeout(limit, talk.session.waited()).await };
        let Ok(done) = runtime.block_on(waited) else { return true };
        talk.session.finish(done, &mut talk.outbox);
        false
    };
    assert!(waits(&mut talk, Duration::from_millis(300)), "it has no room for them");
    talk.outbox.consume(talk.outbox.len());
    talk.send(b"");
    assert!(!waits(&mut talk, PATIENCE), "it has room");
    assert!(matches!(&talk.replies()[..], [(2, Said::Ids(ids))] if ids.len() == 131_072));
}

#[test]
fn opaque_ids_come_one_by_one_open_and_have_no_order() {
    let home = Home::opaque();
    let server = &home.server;
    let mut talk = Talk::greeted(Arc::clone(server));
    for order in [Order::Any, Order::Fresh] {
        talk.send(&frame(|out| request_next(out, 2, order)));
        talk.send(&frame(|out| request_array(out, 3, Bulk::new(70, order, PATIENCE))));
        talk.send(&frame(|out| request_runs(out, 4, Bulk::new(5, order, PATIENCE))));
        talk.settle();
        let said = talk.replies();
        let of = |(_, said): &(u64, Said)| match said {
            Said::Ids(ids) => ids.clone(),
            other => panic!("{other:?}"),
        };
        let ids: Vec<u64> = said.iter().flat_map(of).collect();
        assert_eq!(ids.len(), 76, "{order:?}");
        for id in ids {
            talk.send(&frame(|out| request_decode(out, 5, id)));
            let parts = server.engine.decode(Id::from_raw(id).unwrap());
            let decoded = Decoded { unix_ms: parts.unix_ms, worker: parts.worker, sequence: parts.sequence };
            assert!(server.engine.workers().contains(&parts.worker), "{id} says {parts:?}");
            assert_eq!(talk.replies(), [(5, Said::Decoded(decoded))]);
        }
    }
    let order = Order::Ordered;
    talk.send(&frame(|out| request_next(out, 6, order)));
    talk.send(&frame(|out| request_array(out, 7, Bulk::new(2, order, PATIENCE))));
    talk.send(&frame(|out| request_runs(out, 8, Bulk::new(2, order, PATIENCE))));
    assert_eq!(talk.replies(), [6, 7, 8].map(|number| (number, Said::Error(Status::NO_ORDER))));
}
