//! Each request has its answer, however the input was cut.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Barrier, Mutex};

use proptest::prelude::*;
use tokio::runtime::Builder;
use xuid_engine::Engine;
use xuid_protocol::request_provenance;

use super::*;
use crate::state::server::Origins;

/// A request of any kind, right or wrong.
fn any_request() -> impl Strategy<Value = Vec<u8>> {
    let order = prop::sample::select(&Order::ALL[..1]);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..50).prop_map(|body| frame(|out| request_ping(out, 2, &body))),
        order.prop_map(|order| frame(|out| request_next(out, 3, order))),
        (0u32..3_000).prop_map(|count| frame(|out| request_array(
            out,
            4,
            Bulk::new(count, Order::Any, PATIENCE)
        ))),
        (0u32..3_000).prop_map(|count| frame(|out| request_runs(
            out,
            5,
            Bulk::new(count, Order::Any, PATIENCE)
        ))),
        any::<u64>().prop_map(|id| frame(|out| request_decode(out, 6, id))),
        // Frames of all sorts: header and body at random, the length told truly.
        (any::<u8>(), prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(op, body)| {
            let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
            // Not HELLO and BYE: they end the talk.
            bytes.push(if op == 0x01 || op == 0x7f { 0x55 } else { op });
            bytes.extend_from_slice(&[0; 3]);
            bytes.extend_from_slice(&7_u64.to_le_bytes());
            bytes.extend_from_slice(&body);
            bytes
        }),
    ]
}

/// What must not depend on how the input was cut: everything but the ids themselves, and the order of the replies.
fn shape(said: Vec<(u64, Said)>) -> Vec<(u64, String)> {
    let blank = |said| match said {
        Said::Ids(ids) => format!("{} ids", ids.len()),
        Said::Json(_) => "JSON".to_owned(),
        other => format!("{other:?}"),
    };
    let mut shape: Vec<_> = said.into_iter().map(|(request_id, said)| (request_id, blank(said))).collect();
    shape.sort_unstable();
    shape
}

proptest! {
    #[test]
    fn the_answers_do_not_depend_on_how_the_input_was_cut(
        requests in prop::collection::vec(any_request(), 1..20),
        cuts in prop::collection::vec(1usize..200, 1..40),
    ) {
        let whole = [greeting(&Hello::new("test")), requests.concat()].concat();
        let mut at_once = Talk::of(Home::shared());
        at_once.send(&whole);
        at_once.settle();
        let mut in_pieces = Talk::of(Home::shared());
        let (mut rest, mut cuts) = (&whole[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (piece, later) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            in_pieces.send(piece);
            rest = later;
        }
        in_pieces.settle();
        let wanted = shape(at_once.replies());
        prop_assert_eq!(wanted.len(), 1 + requests.len());
        prop_assert_eq!(shape(in_pieces.replies()), wanted);
    }

    #[test]
    fn random_bytes_after_the_greeting_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
        let mut talk = Talk::greeted(Home::shared());
        talk.send(&bytes);
        prop_assert_eq!(talk.session.client.server.traffic.panics(), 0);
    }
}

#[test]
fn info_and_stats_are_json_with_the_names_of_the_metrics() {
    let mut talk = Talk::greeted(Home::shared());
    talk.send(&[frame(|out| request_info(out, 1)), frame(|out| request_stats(out, 2))].concat());
    // Figures are made beside the thread that serves: others' requests go on meanwhile.
    assert_eq!(talk.session.in_flight(), 1);
    talk.settle();
    let replies = talk.replies();
    let [(1, Said::Json(info)), (2, Said::Json(stats))] = &replies[..] else { panic!("{replies:?}") };
    let info: serde_json::Value = serde_json::from_str(info).unwrap();
    assert_eq!(info["cluster"].as_str(), Some(&*talk.session.client.server.genesis.cluster.to_string()));
    assert_eq!(info["layout"]["sequence_bits"], 12);
    let stats: serde_json::Value = serde_json::from_str(stats).unwrap();
    assert!(
        stats["xuid_issued_ids_total"].is_u64() && stats["xuid_wasted_ids_total"]["expired"].is_u64(),
        "{stats}"
    );
    let page = crate::state::metrics::Page::new(Home::shared()).render().unwrap();
    for name in stats.as_object().unwrap().keys() {
        assert!(page.contains(&format!("\n{name}")), "{name} is not on the page");
    }
}

/// Each reading takes some megabytes, and in an ensemble a session of its own.
#[test]
fn one_asker_at_a_time_has_the_files_read_although_others_ask_and_leave() {
    let home = Home::new(Tokens::default());
    let (at_work, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let end = Arc::new(Barrier::new(2));
    let (works, reached, ends) = (at_work.clone(), most.clone(), end.clone());
    let origins = Origins(Box::new(move |_: &Engine, _: &str, _| {
        let now = works.fetch_add(1, SeqCst) + 1;
        // The first one goes on until the test has seen enough.
        if reached.fetch_max(now, SeqCst) == 0 {
            ends.wait();
        }
        works.fetch_sub(1, SeqCst);
        serde_json::json!({ "issued": "maybe" })
    }));
    let server = Arc::new(Arc::into_inner(home.server).unwrap().with_origins(origins));
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        for _ in 0..5 {
            let asked = answer::provenance(Arc::clone(&server), turn(), 1);
            // The first one is not at its end, and the others should not have begun.
            let _ = tokio::time::timeout(Duration::from_millis(50), asked).await;
        }
        end.wait();
        answer::provenance(server, turn(), 1).await.unwrap();
    });
    assert_eq!(most.load(SeqCst), 1);
}

#[test]
fn a_connection_that_asks_a_lot_about_ids_holds_up_no_other_ones_question() {
    let home = Home::new(Tokens::default());
    let (looked, begin) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Barrier::new(2)));
    let (looks, begins) = (looked.clone(), begin.clone());
    let origins = Origins(Box::new(move |_: &Engine, _: &str, id| {
        if looks.lock().unwrap().is_empty() {
            begins.wait();
        }
        looks.lock().unwrap().push(id.raw());
        serde_json::json!({ "issued": "maybe" })
    }));
    let server = Arc::new(Arc::into_inner(home.server).unwrap().with_origins(origins));
    let [mut busy, mut other] = [(); 2].map(|()| Talk::greeted(Arc::clone(&server)));
    let ask = |talk: &mut Talk, id| talk.send(&frame(|out| request_provenance(out, id, id)));
    (1..=3).for_each(|id| assert_eq!(ask(&mut busy, id), Need::Input));
    assert_eq!(ask(&mut other, 9), Need::Input);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // All of them stand in line now.
        assert!(busy.session.waited().now_or_never().is_none());
        tasks_go_on().await;
        assert!(other.session.waited().now_or_never().is_none());
        tasks_go_on().await;
        begin.wait();
        while busy.session.in_flight() + other.session.in_flight() > 0 {
            tokio::select! {
                done = busy.session.waited() => busy.session.finish(done, &mut busy.outbox),
                done = other.session.waited() => other.session.finish(done, &mut other.outbox),
            }
        }
    });
    assert_eq!((busy.replies().len(), other.replies().len()), (3, 1));
    assert_eq!(*looked.lock().unwrap(), [1, 9, 2, 3]);
}

/// That of one connection.
fn turn() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(1))
}
