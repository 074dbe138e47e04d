//! The conversation without a socket: bytes in, bytes out.

use std::sync::{Arc, OnceLock};

use proptest::prelude::*;
use tokio::runtime::Builder;
use xuid_engine::{Engine, Floor};
use xuid_protocol::{
    Bulk, Decoded, EARLY_PINGS, Hello, Limits as ProtocolLimits, Order, PREFACE, ParsedReply, Reply, Status,
    parse_reply, request_array, request_bye, request_decode, request_hello, request_info, request_next,
    request_ping, request_runs, request_stats,
};

use super::*;
use crate::config::Tokens;
use crate::state::access::AccessRules;
use crate::state::server::{Limits, Places};

/// So long may ids take that must come: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server in a folder of its own, with ten years declared unused so that nothing is ever short of `any` ids.
struct Home {
    server: Arc<Server>,
    _folder: tempfile::TempDir,
}

impl Home {
    fn new(tokens: Tokens) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let decade = Duration::from_hours(10 * 365 * 24);
        let engine =
            Engine::builder().data_dir(folder.path()).floor(Floor::Epoch).max_age(decade).backfill(decade);
        let limits = Limits { wait: PATIENCE, protocol: ProtocolLimits::default() };
        let address = "127.0.0.1:7654".parse().unwrap();
        let places = Places { listen: address, admin: Some("127.0.0.1:7655".parse().unwrap()) };
        let server = Server::new(engine.build().unwrap(), limits, AccessRules::new(tokens, None), places);
        Self { server: Arc::new(server), _folder: folder }
    }

    /// One for all tests that only ask.
    fn shared() -> Arc<Server> {
        static HOME: OnceLock<Home> = OnceLock::new();
        Arc::clone(&HOME.get_or_init(|| Self::new(Tokens::default())).server)
    }
}

/// A client and its session, with buffers in between.
struct Talk {
    session: Session,
    inbox: Inbox,
    outbox: Outbox,
}

/// A reply without its borrow.
#[derive(Debug, Clone, PartialEq)]
enum Said {
    Hello,
    Ping(Vec<u8>),
    Ids(Vec<u64>),
    Decoded(Decoded),
    Json(String),
    Bye,
    GoAway,
    Error(Status),
}

impl Talk {
    fn new(server: Arc<Server>) -> Self {
        Self { session: Session::new(server), inbox: Inbox::default(), outbox: Outbox::default() }
    }

    fn greeted(server: Arc<Server>) -> Self {
        let mut talk = Self::new(server);
        assert_eq!(talk.say(&greeting(&Hello::new("test"))), Need::Input);
        assert_eq!(talk.replies(), [(1, Said::Hello)]);
        talk
    }

    /// How long requests of each op took that were written `took` after they were read, and those that waited.
    fn timed(&mut self, took: Duration) -> Vec<(Op, u64, Duration)> {
        let now = self.session.came.unwrap() + took;
        self.session.written_at(now);
        let times = self.session.server.traffic.times();
        times.map(|(op, times)| (op, times.count(), times.sum())).filter(|(_, count, _)| *count > 0).collect()
    }

    fn say(&mut self, bytes: &[u8]) -> Need {
        self.inbox.room(bytes.len()).extend_from_slice(bytes);
        self.session.receive(&mut self.inbox, &mut self.outbox)
    }

    /// What was answered since the last look.
    fn replies(&mut self) -> Vec<(u64, Said)> {
        let mut said = Vec::new();
        while let Ok(ParsedReply::Frame { consumed, request_id, reply, .. }) =
            parse_reply(self.outbox.rest(), u32::MAX)
        {
            said.push((request_id, owned(&reply)));
            self.outbox.consume(consumed);
        }
        assert!(self.outbox.is_empty(), "half a frame was answered: {:?}", self.outbox.rest());
        said
    }

    /// Waits until nothing waits any more.
    fn settle(&mut self) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            while self.session.in_flight() > 0 {
                let done = self.session.waited().await;
                self.session.finish(done, &mut self.outbox);
            }
        });
    }
}

fn owned(reply: &Reply<'_>) -> Said {
    match reply {
        Reply::Hello(_) => Said::Hello,
        Reply::Ping(bytes) => Said::Ping(bytes.to_vec()),
        Reply::Next(id) => Said::Ids(vec![*id]),
        Reply::Array(ids) => Said::Ids(ids.iter().collect()),
        Reply::Runs(runs) => Said::Ids(runs.iter().flatten().collect()),
        Reply::Decode(decoded) => Said::Decoded(*decoded),
        Reply::Info(json) | Reply::Stats(json) => Said::Json((*json).to_owned()),
        Reply::Bye => Said::Bye,
        Reply::GoAway => Said::GoAway,
        Reply::Error(error) => Said::Error(error.status),
    }
}

fn greeting(hello: &Hello<'_>) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    request_hello(&mut bytes, 1, hello).unwrap();
    bytes
}

fn frame(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

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
fn ids_of_one_conversation_are_all_different_and_ordered_ones_ascend() {
    let mut talk = Talk::greeted(Home::shared());
    let mut seen = std::collections::HashSet::new();
    let mut last = 0;
    for request_id in 0..30 {
        let order = Order::ALL[request_id as usize % 3];
        let bulk = Bulk::new(700, order, PATIENCE);
        talk.say(&frame(|out| match request_id % 2 {
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
    let (mut need, mut replies) = (talk.say(input), Vec::new());
    loop {
        talk.settle();
        replies.append(&mut talk.replies());
        if need != Need::Room {
            return replies;
        }
        need = talk.session.receive(&mut talk.inbox, &mut talk.outbox);
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
        let counted = talk.session.server.traffic.requests().find(|(op, _)| *op == Op::Next);
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
        assert_eq!(talk.say(&pipeline), Need::Input);
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
        talk.session.scratch.reserve(64 * SCRATCH_KEPT);
        let mut input = Vec::new();
        request_array(&mut input, 2, Bulk::new(1, Order::Any, wait));
        talk.say(&input);
        let kept = talk.session.scratch.capacity();
        assert!(kept <= SCRATCH_KEPT, "room for {kept} runs, with a wait of {wait:?}");
        talk.settle();
        assert_eq!(talk.replies(), [(2, Said::Error(Status::SHUTTING_DOWN))]);
    }
}

#[test]
fn a_ping_is_answered_while_requests_wait_and_they_are_answered_later() {
    let mut talk = Talk::greeted(Home::shared());
    // Ten times what a worker mints in the quarter of a second that they may take: some have to wait for the clock.
    let mut input = Vec::new();
    for request_id in 0..80 {
        let bulk = Bulk::new(131_072, Order::Fresh, Duration::from_millis(250));
        request_runs(&mut input, request_id, bulk);
    }
    request_ping(&mut input, 1_000, b"now");
    assert_eq!(talk.say(&input), Need::Input);
    let waiting = talk.session.in_flight();
    assert!(waiting > 0, "nothing had to wait, so the test shows nothing");
    let at_once = talk.replies();
    assert!(at_once.contains(&(1_000, Said::Ping(b"now".to_vec()))));
    talk.settle();
    let later = talk.replies();
    assert_eq!((at_once.len() + later.len(), later.len()), (81, waiting));
    let fine = |said: &Said| matches!(said, Said::Ids(ids) if ids.len() == 131_072);
    let refused = |said: &Said| *said == Said::Error(Status::OVERLOADED);
    assert!(later.iter().all(|(_, said)| fine(said) || refused(said)), "all, or nothing and why");
}

#[test]
fn a_full_output_stops_the_answers_until_it_is_written() {
    let mut talk = Talk::greeted(Home::shared());
    let ping = frame(|out| request_ping(out, 9, &[7; 1_000]));
    assert_eq!(talk.say(&ping.repeat(500)), Need::Room);
    let answered = talk.outbox.len();
    assert!((OUTBOX_HIGH..OUTBOX_HIGH + ping.len()).contains(&answered), "{answered} bytes");
    let mut replies = talk.replies().len();
    assert_eq!(talk.session.receive(&mut talk.inbox, &mut talk.outbox), Need::Input);
    replies += talk.replies().len();
    assert_eq!(replies, 500);
}

#[test]
fn more_than_max_in_flight_wait_in_the_input_and_none_is_refused_for_that() {
    let home = Home::new(Tokens::default());
    let mut talk = Talk::greeted(Arc::clone(&home.server));
    talk.session.limits.max_in_flight = 3;
    let bulk = Bulk::new(131_072, Order::Fresh, PATIENCE);
    let input: Vec<u8> = (0..8).flat_map(|id| frame(|out| request_runs(out, id, bulk))).collect();
    let mut need = talk.say(&input);
    while need == Need::Room {
        assert!(talk.session.in_flight() <= 3);
        talk.settle();
        need = talk.session.receive(&mut talk.inbox, &mut talk.outbox);
    }
    talk.settle();
    let replies = talk.replies();
    assert!(
        replies.len() == 8 && replies.iter().all(|(_, said)| matches!(said, Said::Ids(_))),
        "{replies:?}"
    );
}

#[test]
fn another_protocol_is_told_where_it_is() {
    for (bytes, begin) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "HTTP/1.0 400 "),
        (b"\x89XUID\n", "This port"),
        (&[0x16, 3, 1, 2], "\x15\x03\x03\0\x02\x02\x28"),
    ] {
        let mut talk = Talk::new(Home::shared());
        assert_eq!(talk.say(bytes), Need::End);
        let line = String::from_utf8(talk.outbox.rest().to_vec()).unwrap();
        assert!(line.starts_with(begin), "{line:?}");
        assert!(
            bytes[0] == 0x16 || line.contains("XUID/1") && line.contains("http://127.0.0.1:7655"),
            "{line}"
        );
        assert_eq!(talk.say(b"more"), Need::End, "nothing else is answered");
        assert_eq!(talk.outbox.rest(), line.as_bytes());
    }
}

#[test]
fn a_token_is_asked_for_and_compared_whole() {
    let home = Home::new(Tokens::of("open sesame"));
    for (token, wanted) in [
        (&b""[..], Said::Error(Status::UNAUTHENTICATED)),
        (b"open", Said::Error(Status::UNAUTHENTICATED)),
        (b"open sesamf", Said::Error(Status::UNAUTHENTICATED)),
        (b"open sesame", Said::Hello),
    ] {
        let mut talk = Talk::new(Arc::clone(&home.server));
        let need = talk.say(&greeting(&Hello { token, ..Hello::new("test") }));
        assert_eq!(talk.replies(), [(1, wanted.clone())]);
        assert_eq!(need == Need::End, wanted != Said::Hello, "HELLO's errors close");
        assert_eq!(talk.session.take_rejection(), wanted != Said::Hello);
        assert!(!talk.session.take_rejection(), "it is said once");
    }
}

#[test]
fn the_clients_of_a_token_share_its_limit_and_those_of_another_do_not() {
    let file = "[token.few]\nsecrets = [\"a\"]\nids_per_second = 1000\n[token.many]\nsecrets = [\"b\"]\n";
    let home = Home::new(Tokens::parse(file).unwrap());
    let greeted = |token: &str| {
        let mut talk = Talk::new(Arc::clone(&home.server));
        talk.say(&greeting(&Hello { token: token.as_bytes(), ..Hello::new("test") }));
        assert_eq!(talk.replies(), [(1, Said::Hello)]);
        talk
    };
    let asked = |talk: &mut Talk, count: u32| {
        talk.say(&frame(|out| match count {
            1 => request_next(out, 7, Order::Any),
            _ => request_runs(out, 7, Bulk::new(count, Order::Any, PATIENCE)),
        }));
        talk.settle();
        talk.replies().remove(0).1
    };
    let [mut first, mut second, mut other] = ["a", "a", "b"].map(greeted);
    assert!(matches!(asked(&mut first, 100_000), Said::Ids(ids) if ids.len() == 100_000), "a full bucket");
    // The bucket is empty for a hundred seconds, which no machine is busy for.
    for count in [1, 2, 1_000] {
        assert_eq!(asked(&mut first, count), Said::Error(Status::RATE));
        assert_eq!(asked(&mut second, count), Said::Error(Status::RATE));
        assert!(matches!(asked(&mut other, count), Said::Ids(ids) if ids.len() == count as usize));
    }
    second.say(&frame(|out| request_next(out, 8, Order::Any)));
    let ParsedReply::Frame { reply: Reply::Error(error), .. } =
        parse_reply(second.outbox.rest(), u32::MAX).unwrap()
    else {
        panic!("no error")
    };
    assert!((60_000..=100_000).contains(&error.retry_after_ms), "{error:?}");
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

#[test]
fn bye_is_answered_after_everything_else_and_ends_the_talk() {
    let mut talk = Talk::greeted(Home::shared());
    let mut input = Vec::new();
    for request_id in 0..80 {
        request_runs(&mut input, request_id, Bulk::new(131_072, Order::Fresh, Duration::from_millis(100)));
    }
    request_bye(&mut input, 99);
    request_ping(&mut input, 100, b"too late");
    assert_eq!(talk.say(&input), Need::Room, "something waits");
    talk.settle();
    assert_eq!(talk.session.receive(&mut talk.inbox, &mut talk.outbox), Need::End);
    let replies = talk.replies();
    assert_eq!(replies.len(), 81);
    assert_eq!(replies.last(), Some(&(99, Said::Bye)));
}

#[test]
fn a_client_is_told_to_go_only_once_it_was_greeted() {
    let mut talk = Talk::new(Home::shared());
    talk.session.go_away(&mut talk.outbox);
    assert!(talk.outbox.is_empty());
    let mut talk = Talk::greeted(Home::shared());
    talk.session.go_away(&mut talk.outbox);
    assert_eq!(talk.replies(), [(0, Said::GoAway)]);
    talk.say(&frame(|out| request_next(out, 5, Order::Any)));
    assert!(matches!(talk.replies()[..], [(5, Said::Ids(_))]), "what was on its way is still answered");
}

#[test]
fn a_frame_that_closes_takes_no_answer_from_the_requests_before_it() {
    let second_hello = greeting(&Hello::new("again")).split_off(PREFACE.len());
    let too_large = [&[0xff; 4][..], &[0x10, 0, 0, 0], &1_u64.to_le_bytes()].concat();
    for closing in [second_hello, too_large] {
        let mut talk = Talk::greeted(Home::shared());
        let mut input = Vec::new();
        // Far more than a worker mints until the frame behind them is read: some have to wait.
        for request_id in 10..90 {
            request_runs(
                &mut input,
                request_id,
                Bulk::new(131_072, Order::Fresh, Duration::from_millis(100)),
            );
        }
        input.extend_from_slice(&closing);
        request_ping(&mut input, 100, b"too late");
        assert_eq!(talk.say(&input), Need::Room, "something waits");
        let mut replies = talk.replies();
        assert!(
            matches!(replies.last(), Some((1, Said::Error(_)))),
            "the error is told at once: {replies:?}"
        );
        talk.settle();
        assert_eq!(talk.session.receive(&mut talk.inbox, &mut talk.outbox), Need::End);
        replies.extend(talk.replies());
        let mut answered: Vec<u64> = replies.iter().map(|(request_id, _)| *request_id).collect();
        answered.sort_unstable();
        assert!(
            answered.into_iter().eq([1].into_iter().chain(10..90)),
            "each is answered, and nothing behind"
        );
    }
}

#[test]
fn a_few_pings_may_come_before_hello_and_no_more() {
    let mut talk = Talk::new(Home::shared());
    assert_eq!(talk.say(&PREFACE), Need::Input);
    for request_id in 0..u64::from(EARLY_PINGS) {
        assert_eq!(talk.say(&frame(|out| request_ping(out, request_id, b"here?"))), Need::Input);
        assert_eq!(talk.replies(), [(request_id, Said::Ping(b"here?".to_vec()))]);
    }
    assert_eq!(talk.say(&frame(|out| request_ping(out, 99, b"here?"))), Need::End);
    assert_eq!(talk.replies(), [(99, Said::Error(Status::BAD_REQUEST))]);
    assert!(!talk.session.was_greeted());
}

#[test]
fn a_ping_that_is_refused_before_hello_is_one_of_the_few() {
    let mut talk = Talk::new(Home::shared());
    talk.say(&PREFACE);
    let mut odd = frame(|out| request_ping(out, 7, b""));
    odd[5] = 1; // A flag, and version 1 has none.
    for _ in 0..EARLY_PINGS {
        assert_eq!(talk.say(&odd), Need::Input);
        assert_eq!(talk.replies(), [(7, Said::Error(Status::BAD_REQUEST))]);
    }
    assert_eq!(talk.say(&odd), Need::End);
    assert_eq!(talk.replies(), [(7, Said::Error(Status::BAD_REQUEST))]);
}

#[test]
fn a_client_that_comes_while_the_server_goes_is_told_so_behind_its_greeting() {
    let mut talk = Talk::new(Home::shared());
    talk.session.go_away(&mut talk.outbox);
    assert_eq!(talk.say(&greeting(&Hello::new("test"))), Need::Input);
    assert_eq!(talk.replies(), [(1, Said::Hello), (0, Said::GoAway)]);
}

#[test]
fn a_request_is_timed_from_its_read_to_its_write_and_a_wait_to_its_end() {
    let home = Home::new(Tokens::default());
    let mut talk = Talk::greeted(Arc::clone(&home.server));
    let ms = Duration::from_millis;
    talk.session.read_at(Instant::now());
    talk.say(&frame(|out| request_next(out, 1, Order::Any)).repeat(3));
    assert_eq!(talk.timed(ms(2)), [(Op::Next, 3, ms(6))]);
    assert!(!talk.session.has_replied());
    let mut input = frame(|out| request_ping(out, 2, b""));
    // Far more than a worker mints until the last one is read: some have to wait.
    for request_id in 10..90 {
        request_runs(&mut input, request_id, Bulk::new(131_072, Order::Fresh, ms(100)));
    }
    assert_eq!(talk.say(&input), Need::Input);
    let waiting = talk.session.in_flight() as u64;
    let at_once = 80 - waiting;
    assert!(waiting > 0);
    let mut wanted = vec![(Op::Next, 3, ms(6)), (Op::Ping, 1, ms(1))];
    if at_once > 0 {
        wanted.insert(1, (Op::Runs, at_once, ms(at_once)));
    }
    assert_eq!(talk.timed(ms(1)), wanted);
    talk.settle();
    let runs = (Op::Runs, 80, ms(at_once + 50 * waiting));
    assert_eq!(talk.timed(ms(50)), [(Op::Next, 3, ms(6)), runs, (Op::Ping, 1, ms(1))]);
}
