//! Requests that wait, what goes on meanwhile, and how the conversation ends around them.

use tokio::time::Instant;

use super::*;
use crate::fronts::buffers::OUTBOX_HIGH;

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
    assert_eq!(talk.send(&input), Need::Input);
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
    assert_eq!(talk.send(&ping.repeat(500)), Need::Room);
    let answered = talk.outbox.len();
    assert!((OUTBOX_HIGH..OUTBOX_HIGH + ping.len()).contains(&answered), "{answered} bytes");
    let mut replies = talk.replies().len();
    assert_eq!(talk.session.receive(&mut talk.inbox, &mut talk.outbox, usize::MAX), Need::Input);
    replies += talk.replies().len();
    assert_eq!(replies, 500);
}

#[test]
fn more_than_max_in_flight_wait_in_the_input_and_none_is_refused_for_that() {
    let home = Home::new(Tokens::default());
    let mut talk = Talk::greeted(Arc::clone(&home.server));
    talk.session.client.limits.max_in_flight = 3;
    let bulk = Bulk::new(131_072, Order::Fresh, PATIENCE);
    let input: Vec<u8> = (0..8).flat_map(|id| frame(|out| request_runs(out, id, bulk))).collect();
    let mut need = talk.send(&input);
    while need == Need::Room {
        assert!(talk.session.in_flight() <= 3);
        talk.settle();
        need = talk.session.receive(&mut talk.inbox, &mut talk.outbox, usize::MAX);
    }
    talk.settle();
    let replies = talk.replies();
    assert!(
        replies.len() == 8 && replies.iter().all(|(_, said)| matches!(said, Said::Ids(_))),
        "{replies:?}"
    );
}

/// Each that waits is memory, and more come than their client reads.
#[test]
fn few_wait_where_there_is_much_of_them() {
    let mut talk = Talk::greeted(Home::shared());
    talk.outbox.let_few_wait(true);
    let bulk = Bulk::new(131_072, Order::Fresh, PATIENCE);
    let input: Vec<u8> = (0..100).flat_map(|id| frame(|out| request_runs(out, id, bulk))).collect();
    assert_eq!(talk.send(&input), Need::Room);
    assert_eq!(talk.session.in_flight(), 16);
    talk.outbox.let_few_wait(false);
    talk.session.receive(&mut talk.inbox, &mut talk.outbox, usize::MAX);
    assert!(talk.session.in_flight() > 16);
}

#[test]
fn a_turn_answers_so_many_bytes_and_the_next_one_goes_on_behind_them() {
    let mut talk = Talk::greeted(Home::shared());
    let mut input = Vec::new();
    for request_id in 0..10 {
        request_next(&mut input, request_id, Order::Any);
        request_ping(&mut input, 100 + request_id, b"twenty bytes of ping");
    }
    talk.inbox.room(input.len()).extend_from_slice(&input);
    let mut answered = Vec::new();
    // A pair has 52 bytes: a turn of 80 ends within the second one, whose PING begins before its end.
    for turn in 0..5 {
        let wanted = if turn < 4 { Need::Turn } else { Need::Input };
        assert_eq!(talk.session.receive(&mut talk.inbox, &mut talk.outbox, 80), wanted, "turn {turn}");
        let replies = talk.replies();
        assert_eq!(replies.len(), 4, "turn {turn}");
        answered.extend(replies.into_iter().map(|(request_id, _)| request_id));
    }
    assert_eq!(answered, (0..10).flat_map(|request_id| [request_id, 100 + request_id]).collect::<Vec<_>>());
    // Bare NEXT frames are answered in one loop, which keeps to it, too.
    let mut nexts = Vec::new();
    (0..10).for_each(|request_id| request_next(&mut nexts, request_id, Order::Any));
    talk.inbox.room(nexts.len()).extend_from_slice(&nexts);
    for (wanted, count) in [(Need::Turn, 4), (Need::Turn, 4), (Need::Input, 2)] {
        assert_eq!(talk.session.receive(&mut talk.inbox, &mut talk.outbox, 64), wanted);
        assert_eq!(talk.replies().len(), count);
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
    assert_eq!(talk.send(&input), Need::Room, "something waits");
    talk.settle();
    assert_eq!(talk.session.receive(&mut talk.inbox, &mut talk.outbox, usize::MAX), Need::End);
    let replies = talk.replies();
    assert_eq!(replies.len(), 81);
    assert_eq!(replies.last(), Some(&(99, Said::Bye)));
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
        assert_eq!(talk.send(&input), Need::Room, "something waits");
        let mut replies = talk.replies();
        assert!(
            matches!(replies.last(), Some((1, Said::Error(_)))),
            "the error is told at once: {replies:?}"
        );
        talk.settle();
        assert_eq!(talk.session.receive(&mut talk.inbox, &mut talk.outbox, usize::MAX), Need::End);
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
fn a_request_is_timed_from_its_read_to_its_write_and_a_wait_to_its_end() {
    let home = Home::new(Tokens::default());
    let mut talk = Talk::greeted(Arc::clone(&home.server));
    let ms = Duration::from_millis;
    talk.session.read_at(Instant::now());
    talk.send(&frame(|out| request_next(out, 1, Order::Any)).repeat(3));
    assert_eq!(talk.timed(ms(2)), [(Op::Next, 3, ms(6))]);
    assert!(!talk.session.has_replied());
    let mut input = frame(|out| request_ping(out, 2, b""));
    // Far more than a worker mints until the last one is read: some have to wait.
    for request_id in 10..90 {
        request_runs(&mut input, request_id, Bulk::new(131_072, Order::Fresh, ms(100)));
    }
    assert_eq!(talk.send(&input), Need::Input);
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
