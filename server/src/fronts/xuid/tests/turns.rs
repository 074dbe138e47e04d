//! Of the questions of one connection one is asked at a time, so that a thousand of them hold up nobody else's. Figures, too,
//! are made one at a time.

use tokio::runtime::Builder;
use tokio::time::timeout;
use xuid_protocol::{
    SeqBulk, SeqList, SequenceName as Name, request_seq_alter, request_seq_array, request_seq_info,
    request_seq_list, request_seq_next, request_seq_runs,
};

use super::*;
use crate::fronts::fixture::without_threads;
use crate::state::beside::ASKED_FOR;

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn bulk(of: &str, count: u32) -> SeqBulk<'_> {
    SeqBulk::new(name(of), count, Order::Ordered, PATIENCE)
}

/// Writes a question about a name.
type Question = fn(&mut Vec<u8>, u64, &str);

const INFO: Question = |out, id, of| request_seq_info(out, id, name(of));
const LIST: Question = |out, id, of| request_seq_list(out, id, SeqList { limit: 9, prefix: of, after: "" });
const ALTER: Question = |out, id, of| request_seq_alter(out, id, name(of), "{}");
const NONE: Question = |out, id, of| request_seq_array(out, id, bulk(of, 0));
const TOO_MANY: Question = |out, id, of| request_seq_runs(out, id, bulk(of, u32::MAX));
/// Is looked up, and then asked for as what it may have meant.
const NEXT: Question = |out, id, of| request_seq_next(out, id, name(of));

/// What the store is asked for, in its order, when a connection has five questions about names that it does not have, and
/// then another connection has one. Some are asked when the names were `looked_up` in vain.
fn asked_for(question: Question, looked_up: bool) -> Vec<String> {
    let (home, asked, may) = Home::with_watched_store();
    let [mut first, mut busy, mut other] = [(); 3].map(|()| Talk::greeted(Arc::clone(&home.server)));
    let are = |questions| {
        while asked.lock().unwrap().len() < questions {
            std::thread::yield_now();
        }
    };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        first.send(&frame(|out| INFO(out, 1, "first")));
        assert!(first.session.waited().now_or_never().is_none());
        are(1);
        // The store is held up: all names are looked up together, behind this answer.
        busy.send(&frame(|out| (0..5).for_each(|n| question(out, n, &format!("busy:{n}")))));
        assert!(busy.session.waited().now_or_never().is_none());
        if looked_up {
            may.send(()).unwrap();
            let done = busy.session.waited().await;
            busy.session.finish(done, &mut busy.outbox);
            are(2);
            // By now all were looked up.
            while let Some(done) = busy.session.waited().now_or_never() {
                busy.session.finish(done, &mut busy.outbox);
            }
        }
        other.send(&frame(|out| INFO(out, 2, "other")));
        assert!(other.session.waited().now_or_never().is_none());
        drop(may);
    });
    let replies = [&mut first, &mut busy, &mut other].map(|talk| {
        talk.settle();
        talk.replies().len()
    });
    assert_eq!(replies, [1, 5, 1]);
    std::mem::take(&mut *asked.lock().unwrap())
}

#[test]
fn a_connection_that_asks_the_store_a_lot_holds_up_no_other_ones_question() {
    for (what, question, looked_up) in [
        ("SEQ_INFO", INFO, false),
        ("SEQ_LIST", LIST, false),
        ("SEQ_ALTER", ALTER, false),
        ("SEQ_ARRAY of none", NONE, false),
        ("SEQ_RUNS of too many", TOO_MANY, false),
        ("SEQ_NEXT", NEXT, true),
    ] {
        let asked = asked_for(question, looked_up);
        assert_eq!(asked.len(), 7, "{what}: {asked:?}");
        assert_eq!((&*asked[0], &*asked[2]), ("first", "other"), "{what}: {asked:?}");
    }
}

#[test]
fn a_count_out_of_range_does_not_wait_for_the_lists_of_its_connection() {
    let (home, asked, may) = Home::with_watched_store();
    let mut talk = Talk::greeted(Arc::clone(&home.server));
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        talk.send(&frame(|out| {
            (0..5).for_each(|n| LIST(out, n, &format!("list:{n}")));
            NONE(out, 5, "none");
        }));
        assert!(talk.session.waited().now_or_never().is_none());
        drop(may);
    });
    talk.settle();
    let asked = std::mem::take(&mut *asked.lock().unwrap());
    assert_eq!(asked.len(), 6, "{asked:?}");
    assert!(asked[..2].contains(&"none".to_owned()), "{asked:?}");
}

#[test]
fn a_look_for_the_name_that_was_meant_does_not_wait_for_the_lists_of_its_connection() {
    let (home, asked, may) = Home::with_watched_store();
    let mut talk = Talk::greeted(Arc::clone(&home.server));
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        talk.send(&frame(|out| NEXT(out, 9, "next")));
        let absent = talk.session.waited().await;
        talk.send(&frame(|out| (0..5).for_each(|n| LIST(out, n, &format!("list:{n}")))));
        assert!(talk.session.waited().now_or_never().is_none());
        talk.session.finish(absent, &mut talk.outbox);
        drop(may);
    });
    talk.settle();
    let asked = std::mem::take(&mut *asked.lock().unwrap());
    assert_eq!(asked.len(), 6, "{asked:?}");
    assert!(asked[..2].contains(&"next".to_owned()), "{asked:?}");
}

#[test]
fn counts_out_of_range_of_names_in_vain_are_bounded_as_names_in_vain_are() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = Talk::greeted(Arc::clone(&home.server));
    let input = frame(|out| (0..400).for_each(|n| NONE(out, n, &format!("none:{n}"))));
    // No time passes, however long it takes.
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async { talk.send(&input) });
    let refused = talk.replies();
    assert_eq!(refused.len(), 299, "a hundred are let through, and the one that is too many");
    assert!(refused.iter().all(|(_, said)| *said == Said::Error(Status::OVERLOADED)), "{refused:?}");
    talk.settle();
    let others = talk.replies();
    assert_eq!(others.len() + refused.len(), 400);
    assert!(others.iter().all(|(_, said)| *said == Said::Error(Status::NO_SEQUENCE)), "{others:?}");
}

#[test]
fn a_connection_that_is_not_looked_at_keeps_the_turn_from_no_other_one() {
    let home = Home::new(Tokens::default());
    let [mut silent, mut other] = [(); 2].map(|()| Talk::greeted(Arc::clone(&home.server)));
    let turn = Arc::clone(&home.server.stats_turn);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let held = turn.acquire_owned().await.unwrap();
        for talk in [&mut silent, &mut other] {
            talk.send(&frame(|out| request_stats(out, 1)));
            assert!(talk.session.waited().now_or_never().is_none());
            tasks_go_on().await;
        }
        drop(held);
        // The first one's client reads nothing.
        let done = timeout(Duration::from_secs(30), other.session.waited()).await;
        assert!(done.is_ok(), "it waits for the first one's turn");
    });
}

#[test]
fn figures_are_made_one_at_a_time_of_a_connection_and_of_a_server() {
    let home = Home::new(Tokens::default());
    let mut talk = Talk::greeted(Arc::clone(&home.server));
    let turn = Arc::clone(&home.server.stats_turn);
    let asked_before = ASKED_FOR.get();
    // Each is made on a thread of its own.
    let begun = || ASKED_FOR.get() - asked_before;
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let others = Arc::clone(&turn).acquire_owned().await.unwrap();
        talk.send(&frame(|out| (0..3).for_each(|n| request_stats(out, n))));
        assert!(talk.session.waited().now_or_never().is_none());
        tasks_go_on().await;
        assert_eq!(begun(), 0, "made in another connection's turn");
        // Now the server would make all three.
        turn.add_permits(2);
        drop(others);
        for made in 1..=3 {
            tasks_go_on().await;
            assert_eq!(begun(), made, "two at once");
            let one = talk.session.waited().await;
            talk.session.finish(one, &mut talk.outbox);
            // The next one is looked at.
            assert!(talk.session.waited().now_or_never().is_none());
        }
        assert_eq!(talk.replies().len(), 3);
    });
}

/// Threads are had again a moment later; in this runtime there is nobody who would ask for one.
#[test]
fn figures_that_no_thread_could_be_had_for_keep_the_turn_from_nobody() {
    let home = Home::new(Tokens::default());
    let [mut unlucky, mut other] = [(); 2].map(|()| Talk::greeted(Arc::clone(&home.server)));
    let without = without_threads();
    without.block_on(async {
        unlucky.send(&frame(|out| request_stats(out, 1)));
        let done = timeout(PATIENCE, unlucky.session.waited()).await.unwrap();
        unlucky.session.finish(done, &mut unlucky.outbox);
    });
    assert_eq!(unlucky.replies(), [(1, Said::Error(Status::OVERLOADED))]);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        other.send(&frame(|out| request_stats(out, 2)));
        let done = timeout(PATIENCE, other.session.waited()).await;
        assert!(done.is_ok(), "the turn is kept for good");
    });
    drop(without);
}
