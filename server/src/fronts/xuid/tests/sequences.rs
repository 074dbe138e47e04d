//! Requests about named sequences.

use tokio::time::Instant;
use xuid_protocol::{
    SeqBulk, SeqList, SequenceName as Name, request_seq_alter, request_seq_array, request_seq_create,
    request_seq_info, request_seq_list, request_seq_next, request_seq_runs,
};

use super::*;

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn bulk(of: &str, count: u32, order: Order) -> SeqBulk<'_> {
    SeqBulk::new(name(of), count, order, PATIENCE)
}

impl Talk {
    /// What a request is answered with, waiting included.
    fn ask(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Said {
        self.send(&frame(write));
        self.settle();
        let mut replies = self.replies();
        assert_eq!(replies.len(), 1, "{replies:?}");
        replies.remove(0).1
    }

    fn next_of(&mut self, of: &str) -> Said {
        self.ask(|out| request_seq_next(out, 7, name(of)))
    }
}

fn field(said: &Said, field: &str) -> String {
    let Said::Json(json) = said else { panic!("{said:?}") };
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    value[field].as_str().map_or_else(|| value[field].to_string(), str::to_owned)
}

#[test]
fn numbers_come_one_by_one_in_arrays_and_in_runs_and_none_twice() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = Talk::greeted(Arc::clone(&home.server));
    assert_eq!(talk.next_of("orders"), Said::Ids(vec![1]));
    let said = talk.ask(|out| request_seq_array(out, 7, bulk("orders", 4, Order::Ordered)));
    assert_eq!(said, Said::Ids(vec![2, 3, 4, 5]));
    let said = talk.ask(|out| request_seq_runs(out, 7, bulk("orders", 3, Order::Any)));
    assert_eq!(said, Said::Ids(vec![6, 7, 8]));
    let said = talk.ask(|out| request_seq_runs(out, 7, bulk("orders", 2, Order::Ordered).contiguous()));
    assert_eq!(said, Said::Ids(vec![9, 10]));
}

#[test]
fn large_replies_are_refused_while_what_others_do_not_read_is_too_much() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = Talk::greeted(Arc::clone(&home.server));
    let ask = |talk: &mut Talk, count| {
        [
            talk.ask(|out| request_array(out, 7, Bulk::new(count, Order::Any, PATIENCE))),
            talk.ask(|out| request_seq_array(out, 7, bulk("orders", count, Order::Any))),
            talk.ask(|out| {
                let list = SeqList { limit: count / 8 + count % 8, prefix: "", after: "" };
                request_seq_list(out, 7, list);
            }),
        ]
    };
    let is_refused = |said: &Said| *said == Said::Error(Status::OVERLOADED);
    let held = home.with_too_much_unread();
    assert!(ask(&mut talk, 1_025).iter().all(is_refused));
    assert!(!ask(&mut talk, 1_024).iter().any(is_refused));
    // Runs have one entry for many, but of opaque ids.
    let runs =
        |talk: &mut Talk, count| talk.ask(|out| request_runs(out, 7, Bulk::new(count, Order::Any, PATIENCE)));
    assert!(matches!(runs(&mut talk, 1_025), Said::Ids(_)));
    let opaque = Home::opaque();
    let mut other = Talk::greeted(Arc::clone(&opaque.server));
    let much = opaque.with_too_much_unread();
    assert!(is_refused(&runs(&mut other, 1_025)) && !is_refused(&runs(&mut other, 1_024)));
    drop((held, much));
    assert!(!ask(&mut talk, 1_025).iter().any(is_refused));
}

#[test]
fn a_batch_is_answered_in_its_order_each_with_its_own_number() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = Talk::greeted(Arc::clone(&home.server));
    // The first one of a name is looked up.
    assert_eq!(talk.next_of("orders"), Said::Ids(vec![1]));
    assert_eq!(talk.next_of("orders"), Said::Ids(vec![2]));
    let bytes = frame(|out| {
        for request_id in 0..600 {
            request_seq_next(out, request_id, name("orders"));
        }
        request_ping(out, 9_999, b"");
        request_seq_next(out, 600, name("auto:1"));
        request_seq_next(out, 601, name("orders"));
    });
    for piece in bytes.chunks(1_001) {
        talk.send(piece);
    }
    talk.settle();
    let replies = talk.replies();
    assert_eq!(replies.len(), 603);
    for (at, reply) in replies[..600].iter().enumerate() {
        assert_eq!(*reply, (at as u64, Said::Ids(vec![at as u64 + 3])));
    }
    assert!(replies.contains(&(600, Said::Ids(vec![1]))), "a name that its first use creates");
    assert!(replies.contains(&(601, Said::Ids(vec![603]))));
    let info = talk.ask(|out| request_seq_info(out, 7, name("orders")));
    assert_eq!(field(&info, "issued"), "603");
}

#[test]
fn checks_come_in_their_order_right_then_existence_then_count() {
    let home = Home::with_sequences(
        Tokens::parse(
            "[token.a]\nsecrets = [\"a\"]\nnames = [\"orders\", \"nothing\"]\nrights = [\"next\"]\n\
             [token.b]\nsecrets = [\"b\"]\nids_per_second = 5\n",
        )
        .unwrap(),
    );
    let of = |secret: &str| {
        Talk::of(Arc::clone(&home.server)).greet(&Hello { token: secret.as_bytes(), ..Hello::new("test") })
    };
    let mut talk = of("a");
    for count in [0, 1, u32::MAX] {
        let mut array = |of| talk.ask(|out| request_seq_array(out, 7, bulk(of, count, Order::Ordered)));
        assert_eq!(array("others"), Said::Error(Status::FORBIDDEN));
        assert_eq!(array("nothing"), Said::Error(Status::NO_SEQUENCE), "a count of {count}");
        let known = array("orders");
        assert_eq!(known == Said::Error(Status::COUNT), count != 1, "{known:?}");
    }
    assert_eq!(talk.next_of("others"), Said::Error(Status::FORBIDDEN));
    let create = talk.ask(|out| request_seq_create(out, 7, name("orders"), ""));
    assert_eq!(create, Said::Error(Status::FORBIDDEN));
    let alter = talk.ask(|out| request_seq_alter(out, 7, name("orders"), "{}"));
    assert_eq!(alter, Said::Error(Status::FORBIDDEN));
    let all = SeqList { limit: 10, prefix: "", after: "" };
    let mut other = of("b");
    let made = other.ask(|out| request_seq_create(out, 7, name("zebras"), ""));
    assert_eq!(field(&made, "next"), "1");
    let seen = |said: &Said| {
        let Said::Json(json) = said else { panic!("{said:?}") };
        (json.contains("orders"), json.contains("zebras"))
    };
    assert_eq!(seen(&other.ask(|out| request_seq_list(out, 7, all))), (true, true));
    assert_eq!(seen(&talk.ask(|out| request_seq_list(out, 7, all))), (true, false));
    let many = other.ask(|out| request_seq_array(out, 7, bulk("zebras", 100, Order::Ordered)));
    assert!(matches!(many, Said::Ids(_)), "a full bucket lets more through: {many:?}");
    assert_eq!(other.next_of("zebras"), Said::Error(Status::RATE));
}

#[test]
fn a_sequence_is_created_once_altered_and_ended_and_never_set_back() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = Talk::greeted(Arc::clone(&home.server));
    let mut create = |json: &str| talk.ask(|out| request_seq_create(out, 7, name("odd"), json));
    for wrong in
        ["[]", "{", "{\"stop\":1}", "{\"step\":0}", "{\"increment\":2,\"remainder\":2}", "{\"strict\":1}"]
    {
        assert_eq!(create(wrong), Said::Error(Status::BAD_REQUEST), "{wrong}");
    }
    let odd = r#"{"start":"5","increment":2,"remainder":1,"last":101,"step":"10"}"#;
    assert_eq!(field(&create(odd), "increment"), "2");
    assert_eq!(field(&create(odd), "next"), "5", "the same once more");
    assert_eq!(create(r#"{"start":5}"#), Said::Error(Status::EXISTS));
    assert_eq!(talk.next_of("odd"), Said::Ids(vec![5]));
    assert_eq!(talk.next_of("odd"), Said::Ids(vec![7]));
    let mut alter = |json: &str| talk.ask(|out| request_seq_alter(out, 7, name("odd"), json));
    assert_eq!(alter(r#"{"last":9}"#), Said::Error(Status::BAD_REQUEST));
    assert_eq!(alter(r#"{"start":9}"#), Said::Error(Status::BAD_REQUEST));
    assert_eq!(alter(""), Said::Error(Status::BAD_REQUEST));
    assert_eq!(field(&alter(r#"{"last":1000,"step":20}"#), "last"), "1000");
    let ended = alter(r#"{"last":"retired"}"#);
    let (next, last) = (field(&ended, "next"), field(&ended, "last"));
    assert_eq!(next.parse::<u64>().unwrap(), last.parse::<u64>().unwrap() + 1);
    let nothing = talk.ask(|out| request_seq_alter(out, 7, name("nothing"), "{}"));
    assert_eq!(nothing, Said::Error(Status::NO_SEQUENCE));
}

#[test]
fn names_in_vain_are_bounded_and_the_others_are_served_all_the_same() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = Talk::greeted(Arc::clone(&home.server));
    let (begun, mut refused) = (Instant::now(), 0);
    for round in 0..8 {
        // Fifty at a time are looked up together: a slow disk is asked a few times only.
        let mut input = Vec::new();
        for at in 0..50 {
            request_seq_next(&mut input, 100 + at, name(&format!("none-{round}-{at}")));
        }
        talk.send(&input);
        talk.settle();
        for (_, said) in talk.replies() {
            match said {
                Said::Error(Status::NO_SEQUENCE) => {}
                Said::Error(Status::OVERLOADED) => refused += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(talk.next_of("orders"), Said::Ids(vec![round + 1]));
    }
    // A hundred at once and a hundred a second: a disk on which they take three seconds keeps to that by itself.
    let is_slow = begun.elapsed() >= Duration::from_secs(3);
    assert!(refused > 0 || is_slow, "400 names were looked up");
}

#[test]
fn a_server_without_sequences_does_not_know_their_ops() {
    let mut talk = Talk::greeted(Home::shared());
    assert_eq!(talk.next_of("orders"), Said::Error(Status::UNKNOWN_OP));
    let all = SeqList { limit: 10, prefix: "", after: "" };
    assert_eq!(talk.ask(|out| request_seq_list(out, 7, all)), Said::Error(Status::UNKNOWN_OP));
    assert_eq!(talk.ask(|out| request_ping(out, 7, b"x")), Said::Ping(b"x".to_vec()));
}

#[test]
fn a_connection_that_leaves_has_no_more_sequences_made_than_share_one_change() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = Talk::greeted(Arc::clone(&home.server));
    let many = frame(|out| {
        for request_id in 0..200 {
            request_seq_create(out, request_id, name(&format!("many:{request_id}")), "");
        }
        request_seq_next(out, 200, name("many:0"));
    });
    talk.send(&many);
    drop(talk);
    let mut talk = Talk::greeted(Arc::clone(&home.server));
    let all = SeqList { limit: 1_000, prefix: "many:", after: "" };
    let Said::Json(listed) = talk.ask(|out| request_seq_list(out, 7, all)) else { panic!() };
    assert_eq!(listed.matches("\"name\"").count(), 64);
    // One that stays has all of them made.
    talk.send(&many);
    talk.settle();
    let replies = talk.replies();
    assert_eq!(replies.len(), 201);
    assert!(replies.contains(&(200, Said::Ids(vec![1]))));
    assert!(replies.iter().all(|(_, said)| !matches!(said, Said::Error(_))), "{replies:?}");
}

/// Who does not wait, or for less than a look-up takes, is told nothing of a name, and asks for the next one: the server remembers
/// each for a while.
#[test]
fn names_of_one_connection_of_which_nothing_is_known_are_bounded_however_short_it_waits() {
    for wait in [Duration::ZERO, Duration::from_millis(1)] {
        let home = Home::with_sequences(Tokens::default());
        let mut talk = Talk::greeted(Arc::clone(&home.server));
        for round in 0..60 {
            let tries = frame(|out| {
                for at in 0..100 {
                    let none = format!("none-{round}-{at}");
                    request_seq_array(out, at, SeqBulk::new(name(&none), 1, Order::Ordered, wait));
                }
            });
            talk.send(&tries);
            talk.settle();
            assert!(talk.replies().iter().all(|(_, said)| matches!(said, Said::Error(_))));
        }
        let names = home.server.sequences.as_ref().unwrap().all.stats().names;
        assert!(names <= 4_096, "{names} names of one connection are in the table");
        let mut other = Talk::greeted(Arc::clone(&home.server));
        assert_eq!(
            other.next_of("auto:1"),
            Said::Ids(vec![1]),
            "another connection brings up names all the same"
        );
    }
}

/// Tried again, it is nothing more that the server has to remember, and no reason to refuse other names of the connection.
#[test]
fn one_name_that_is_not_there_is_one_however_often_it_is_asked_for() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = Talk::greeted(Arc::clone(&home.server));
    for round in 0..400 {
        let said = talk.ask(|out| request_seq_array(out, 7, bulk("none", 1, Order::Ordered)));
        assert_eq!(said, Said::Error(Status::NO_SEQUENCE), "try {round} of one name");
    }
    assert_eq!(talk.next_of("auto:1"), Said::Ids(vec![1]), "a name that is new to the server");
}

/// As behind a start of the server: names that are there, and whose first grants take longer than the calls wait.
#[test]
fn names_that_are_there_and_come_late_are_no_names_in_vain() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = Talk::greeted(Arc::clone(&home.server));
    let tries = frame(|out| {
        for at in 0..600 {
            let (there, wait) = (format!("auto:{at}"), Duration::from_millis(1));
            request_seq_array(out, at, SeqBulk::new(name(&there), 1, Order::Ordered, wait));
        }
    });
    talk.send(&tries);
    talk.settle();
    talk.replies();
    let said = talk.next_of("auto:one-more");
    assert_eq!(said, Said::Ids(vec![1]), "600 names were asked for, and all of them are there");
}
