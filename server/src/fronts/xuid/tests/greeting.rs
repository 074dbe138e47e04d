//! Preface, HELLO and tokens, and what comes before them.

use super::*;

#[test]
fn another_protocol_is_told_where_it_is() {
    for (bytes, begin) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "HTTP/1.0 400 "),
        (b"\x89XUID\n", "This port"),
        (&[0x16, 3, 1, 2], "\x15\x03\x03\0\x02\x02\x28"),
    ] {
        let mut talk = Talk::of(Home::shared());
        assert_eq!(talk.send(bytes), Need::End);
        let line = String::from_utf8(talk.outbox.rest().to_vec()).unwrap();
        assert!(line.starts_with(begin), "{line:?}");
        assert!(
            bytes[0] == 0x16 || line.contains("XUID/1") && line.contains("http://127.0.0.1:7655"),
            "{line}"
        );
        assert_eq!(talk.send(b"more"), Need::End, "nothing else is answered");
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
        let mut talk = Talk::of(Arc::clone(&home.server));
        let need = talk.send(&greeting(&Hello { token, ..Hello::new("test") }));
        assert_eq!(talk.replies(), [(1, wanted.clone())]);
        assert_eq!(need == Need::End, wanted != Said::Hello, "HELLO's errors close");
        assert_eq!(talk.session.take_rejection(), wanted != Said::Hello);
        assert!(!talk.session.take_rejection(), "it is said once");
    }
}

/// What a request for so many ids is answered with: NEXT for one.
fn asked(talk: &mut Talk, count: u32) -> Said {
    talk.send(&frame(|out| match count {
        1 => request_next(out, 7, Order::Any),
        _ => request_runs(out, 7, Bulk::new(count, Order::Any, PATIENCE)),
    }));
    talk.settle();
    talk.replies().remove(0).1
}

/// Asks for one more id than a limit allows, which must be refused for longer than a minute. Returns what is said.
fn refused_for_a_minute(talk: &mut Talk) -> String {
    talk.send(&frame(|out| request_next(out, 8, Order::Any)));
    let ParsedReply::Frame { reply: Reply::Error(error), .. } =
        parse_reply(talk.outbox.rest(), u32::MAX).unwrap()
    else {
        panic!("no error")
    };
    assert!((60_000..=100_000).contains(&error.retry_after_ms), "{error:?}");
    error.text.to_string()
}

#[test]
fn the_clients_of_a_token_share_its_limit_and_those_of_another_do_not() {
    let file = "[token.few]\nsecrets = [\"a\"]\nids_per_second = 1000\n[token.many]\nsecrets = [\"b\"]\n";
    let home = Home::new(Tokens::parse(file).unwrap());
    let greeted = |token: &str| {
        Talk::of(Arc::clone(&home.server)).greet(&Hello { token: token.as_bytes(), ..Hello::new("test") })
    };
    let [mut first, mut second, mut other] = ["a", "a", "b"].map(greeted);
    assert!(matches!(asked(&mut first, 100_000), Said::Ids(ids) if ids.len() == 100_000), "a full bucket");
    // The bucket is empty for a hundred seconds, which no machine is busy for.
    for count in [1, 2, 1_000] {
        assert_eq!(asked(&mut first, count), Said::Error(Status::RATE));
        assert_eq!(asked(&mut second, count), Said::Error(Status::RATE));
        assert!(matches!(asked(&mut other, count), Said::Ids(ids) if ids.len() == count as usize));
    }
    refused_for_a_minute(&mut second);
}

#[test]
fn the_clients_of_an_address_share_its_limit_and_those_of_another_do_not() {
    let home = Home::new(Tokens::default());
    home.server.access.limit_addresses(1_000);
    let greeted = |address: &str| {
        let address = Some(address.parse().unwrap());
        Talk::from(Arc::clone(&home.server), address).greet(&Hello::new("test"))
    };
    let [mut first, mut second, mut other] = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(greeted);
    assert!(matches!(asked(&mut first, 100_000), Said::Ids(ids) if ids.len() == 100_000), "a full bucket");
    // The bucket is empty for a hundred seconds, which no machine is busy for.
    for count in [1, 2, 900] {
        assert_eq!(asked(&mut first, count), Said::Error(Status::RATE));
        assert_eq!(asked(&mut second, count), Said::Error(Status::RATE));
        assert!(matches!(asked(&mut other, count), Said::Ids(ids) if ids.len() == count as usize));
    }
    let limited: Vec<_> = home.server.traffic.limited().collect();
    assert_eq!(limited, [("token", 0), ("address", 6)]);
    let text = refused_for_a_minute(&mut second);
    assert!(text.contains("address") && text.contains("1000 ids a second"), "{text}");
    home.server.access.limit_addresses(0);
    assert!(matches!(asked(&mut first, 1_000), Said::Ids(_)), "it was taken away");
    home.server.access.limit_addresses(1_000);
    assert!(matches!(asked(&mut first, 100_000), Said::Ids(_)), "a full bucket");
    assert_eq!(asked(&mut second, 1), Said::Error(Status::RATE));
}

#[test]
fn what_was_not_issued_costs_a_token_nothing_if_the_engine_fails_or_the_connection_ends() {
    let home = Home::new(Tokens::parse("[token.few]\nsecrets = [\"a\"]\nids_per_second = 1000\n").unwrap());
    let greeted = || Talk::of(Arc::clone(&home.server)).greet(&Hello { token: b"a", ..Hello::new("test") });
    // As much as the bucket is empty for a hundred seconds of.
    let shape = Shape::Runs { request_id: 7, count: 100_000 };
    let charge = |talk: &mut Talk| talk.session.client.charge(100_000).map_err(|refusal| refusal.status);
    for _ in 0..3 {
        let mut talk = greeted();
        let charged = charge(&mut talk).unwrap();
        let pending = home.server.engine.request(100_000, Order::Any, PATIENCE);
        talk.session.waiting.push(Waiting::new(shape, charged, pending, None));
        drop(talk);
    }
    let mut talk = greeted();
    for _ in 0..3 {
        let charged = charge(&mut talk).unwrap();
        talk.session.finish(Done { shape, charged, came: None, result: None }, &mut talk.outbox);
        assert_eq!(talk.replies(), [(7, Said::Error(Status::INTERNAL))]);
    }
    talk.session.client.charged = charge(&mut talk).unwrap();
    assert_eq!(talk.session.client.panicked(REQUEST).status, Status::INTERNAL);
    assert!(charge(&mut talk).is_ok());
    assert_eq!(charge(&mut talk), Err(Status::RATE), "these were not given back");
}

#[test]
fn a_request_that_is_refused_at_once_or_after_its_wait_costs_a_token_nothing() {
    let home = Home::new(Tokens::parse("[token.few]\nsecrets = [\"a\"]\nids_per_second = 1000\n").unwrap());
    let mut talk = Talk::of(Arc::clone(&home.server)).greet(&Hello { token: b"a", ..Hello::new("test") });
    for wait in [0, 5].repeat(2) {
        // More than a worker mints in the 10 ms that a fresh id may be old, and in those of the wait.
        let bulk = Bulk::new(131_072, Order::Fresh, Duration::from_millis(wait));
        talk.send(&frame(|out| request_runs(out, 7, bulk)));
        assert_eq!(talk.session.in_flight(), usize::from(wait > 0));
        talk.settle();
        assert_eq!(talk.replies(), [(7, Said::Error(Status::OVERLOADED))], "a wait of {wait} ms");
    }
    assert!(matches!(asked(&mut talk, 100_000), Said::Ids(_)), "the bucket is full");
    assert_eq!(asked(&mut talk, 1), Said::Error(Status::RATE));
}

#[test]
fn a_client_is_told_to_go_only_once_it_was_greeted() {
    let mut talk = Talk::of(Home::shared());
    talk.session.go_away(&mut talk.outbox);
    assert!(talk.outbox.is_empty());
    let mut talk = Talk::greeted(Home::shared());
    talk.session.go_away(&mut talk.outbox);
    assert_eq!(talk.replies(), [(0, Said::GoAway)]);
    talk.send(&frame(|out| request_next(out, 5, Order::Any)));
    assert!(matches!(talk.replies()[..], [(5, Said::Ids(_))]), "what was on its way is still answered");
}

#[test]
fn a_few_pings_may_come_before_hello_and_no_more() {
    let mut talk = Talk::of(Home::shared());
    assert_eq!(talk.send(&PREFACE), Need::Input);
    for request_id in 0..u64::from(EARLY_PINGS) {
        assert_eq!(talk.send(&frame(|out| request_ping(out, request_id, b"here?"))), Need::Input);
        assert_eq!(talk.replies(), [(request_id, Said::Ping(b"here?".to_vec()))]);
    }
    assert_eq!(talk.send(&frame(|out| request_ping(out, 99, b"here?"))), Need::End);
    assert_eq!(talk.replies(), [(99, Said::Error(Status::BAD_REQUEST))]);
    assert!(!talk.session.was_greeted());
}

#[test]
fn a_ping_that_is_refused_before_hello_is_one_of_the_few() {
    let mut talk = Talk::of(Home::shared());
    talk.send(&PREFACE);
    let mut odd = frame(|out| request_ping(out, 7, b""));
    odd[5] = 1; // A flag, and version 1 has none.
    for _ in 0..EARLY_PINGS {
        assert_eq!(talk.send(&odd), Need::Input);
        assert_eq!(talk.replies(), [(7, Said::Error(Status::BAD_REQUEST))]);
    }
    assert_eq!(talk.send(&odd), Need::End);
    assert_eq!(talk.replies(), [(7, Said::Error(Status::BAD_REQUEST))]);
}

#[test]
fn a_client_that_comes_while_the_server_goes_is_told_so_behind_its_greeting() {
    let mut talk = Talk::of(Home::shared());
    talk.session.go_away(&mut talk.outbox);
    assert_eq!(talk.send(&greeting(&Hello::new("test"))), Need::Input);
    assert_eq!(talk.replies(), [(1, Said::Hello), (0, Said::GoAway)]);
}
