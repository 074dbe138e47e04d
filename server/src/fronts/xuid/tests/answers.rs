//! Each request has its answer, however the input was cut.

use proptest::prelude::*;

use super::*;

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
        let mut at_once = Talk::new(Home::shared());
        at_once.say(&whole);
        at_once.settle();
        let mut in_pieces = Talk::new(Home::shared());
        let (mut rest, mut cuts) = (&whole[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (piece, later) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            in_pieces.say(piece);
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
        talk.say(&bytes);
        prop_assert_eq!(talk.session.server.traffic.panics(), 0);
    }
}

#[test]
fn info_and_stats_are_json_with_the_names_of_the_metrics() {
    let mut talk = Talk::greeted(Home::shared());
    talk.say(&[frame(|out| request_info(out, 1)), frame(|out| request_stats(out, 2))].concat());
    let replies = talk.replies();
    let [(1, Said::Json(info)), (2, Said::Json(stats))] = &replies[..] else { panic!("{replies:?}") };
    let info: serde_json::Value = serde_json::from_str(info).unwrap();
    assert_eq!(info["cluster"].as_str(), Some(&*talk.session.server.genesis.cluster.to_string()));
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
