//! The conversation without a socket: bytes in, bytes out.

use std::future::poll_fn;

use tokio::runtime::Builder;
use xuid_engine::sequence::store::NewSequence;

use super::parse::MOST_ARGUMENTS;
use super::*;
use crate::config::Tokens;
use crate::fronts::buffers::OUTBOX_HIGH;
use crate::fronts::fixture::{self, Home, MOST_UNREAD, TWICE_FEW};
use crate::state::unread::UnreadPart;

type Talk = fixture::Talk<Session>;

fn client(home: &Home) -> Talk {
    Talk::new(Session::new(Arc::clone(&home.server), None))
}

impl Talk {
    /// The same of lines as a person types them.
    fn type_in(&mut self, lines: &str) -> String {
        self.say(format!("{}\r\n", lines.replace('\n', "\r\n")).as_bytes())
    }
}

fn framed(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

#[test]
fn numbers_come_one_by_one_and_in_one_piece() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    assert_eq!(talk.type_in("INCR orders"), ":1\r\n");
    assert_eq!(talk.type_in("GET orders"), "$1\r\n1\r\n");
    assert_eq!(talk.say(&framed(&["INCR", "orders"]).repeat(3)), ":2\r\n:3\r\n:4\r\n");
    assert_eq!(talk.type_in("INCRBY orders 10\nINCR orders"), ":14\r\n:15\r\n");
    assert_eq!(talk.type_in("XUID.TAKE orders 5"), "*3\r\n$2\r\n16\r\n:5\r\n:1\r\n");
    assert_eq!(talk.type_in("XUID.BATCH 2 orders"), "*2\r\n$2\r\n21\r\n$2\r\n22\r\n");
    assert_eq!(talk.type_in("XUID.NEXT orders"), "$2\r\n23\r\n");
    assert_eq!(talk.type_in("INCR auto:new"), ":1\r\n", "created by its first use");
    assert!(talk.type_in("INCRBY orders 131073").starts_with("-ERR "));
}

#[test]
fn commands_in_one_piece_are_answered_in_their_order_however_they_are_cut() {
    let home = Home::with_sequences(Tokens::default());
    let (mut talk, mut input, mut expected) = (client(&home), Vec::new(), String::new());
    for n in 1..=600 {
        input.extend(framed(&["INCR", "orders"]));
        expected.extend([":", &n.to_string(), "\r\n"]);
        if n % 7 == 0 {
            input.extend(framed(&["ECHO", "between"]));
            expected.push_str("$7\r\nbetween\r\n");
        }
    }
    let mut said = String::new();
    for piece in input.chunks(37) {
        said.push_str(&talk.say(piece));
    }
    assert_eq!(said, expected);
}

#[test]
fn ids_are_integers_and_texts_and_their_parts_are_told() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    let integer = |said: String| said.trim_start_matches(':').trim_end().parse::<u64>().unwrap();
    let first = integer(talk.type_in("INCR @ordered"));
    let second = integer(talk.type_in("incr @ordered"));
    assert!(second > first && first > 1 << 32);
    let decoded = talk.type_in(&format!("XUID.DECODE {first}"));
    assert!(decoded.starts_with("*6\r\n$7\r\nunix_ms\r\n:"), "{decoded}");
    let batch = talk.type_in("XUID.BATCH 3");
    assert!(batch.starts_with("*3\r\n$") && batch.lines().count() == 7, "{batch}");
    let runs = talk.type_in("XUID.RUNS 100 @any");
    let count: u64 = runs.lines().skip(4).step_by(5).map(|line| line[1..].parse::<u64>().unwrap()).sum();
    assert_eq!(count, 100, "{runs}");
    assert!(talk.type_in("XUID.INFO").contains("\"cluster\""));
}

#[test]
fn a_counter_is_moved_over_and_goes_on_above_its_value() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    assert_eq!(
        talk.type_in("SET users 41 NX\nINCR users\nSET users 7 NX\nINCR users"),
        "+OK\r\n:42\r\n$-1\r\n:43\r\n"
    );
    assert_eq!(talk.type_in("SETNX users 7\nSETNX others 0\nINCR others"), ":0\r\n:1\r\n:1\r\n");
    assert_eq!(
        talk.type_in(
            "GET none\nGET users\nEXISTS users none users\nTYPE users\nTYPE none\nTTL users\nPTTL none"
        ),
        "$-1\r\n$2\r\n43\r\n:2\r\n+string\r\n+none\r\n:-1\r\n:-2\r\n"
    );
    for bad in ["SET users 1", "DECR users", "DEL users", "EXPIRE users 1", "INCRBY users -1"] {
        assert!(talk.type_in(bad).contains("a sequence only rises"), "{bad}");
    }
    assert_eq!(talk.type_in("INCR users"), ":44\r\n");
    assert_eq!(
        talk.type_in("XUID.CREATE odd START 1 INCREMENT 2 REMAINDER 1\nINCRBY odd 3\nINCR odd"),
        "+OK\r\n:5\r\n:7\r\n"
    );
    assert!(talk.type_in("INCR typo").starts_with("-NOSEQ "));
}

#[test]
fn a_sequence_that_grants_numbers_below_a_start_is_not_taken_for_one_that_begins_there() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    assert_eq!(talk.type_in("XUID.CREATE n\nINCR n\nXUID.CREATE n"), "+OK\r\n:1\r\n+OK\r\n");
    assert!(talk.type_in("XUID.CREATE n START 1000000").starts_with("-EXISTS "));
    assert_eq!(talk.type_in("SET n 123456 NX\nINCR n"), "$-1\r\n:2\r\n");
}

#[test]
fn names_are_walked_over() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    for n in 0..25 {
        assert_eq!(talk.type_in(&format!("XUID.CREATE walk:{n:02}")), "+OK\r\n");
    }
    assert_eq!(talk.type_in("DBSIZE"), ":26\r\n");
    let (mut cursor, mut found) = ("0".to_owned(), 0);
    for _ in 0..10 {
        let said = talk.type_in(&format!("SCAN {cursor} MATCH walk:* COUNT 10"));
        let lines: Vec<&str> = said.lines().collect();
        cursor = lines[2].to_owned();
        found += lines.iter().filter(|line| line.starts_with("walk:")).count();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!((found, cursor.as_str()), (25, "0"));
    assert_eq!(talk.type_in("KEYS walk:0?").lines().next(), Some("*10"));
    assert!(talk.type_in("SCAN 77").contains("invalid cursor"));
}

#[test]
fn a_transaction_is_carried_out_as_a_whole_or_not_at_all() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    let said = talk.type_in("MULTI\nINCR orders\nGET none\nINCRBY orders 2\nEXEC\nINCR orders");
    assert_eq!(said, "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n:1\r\n$-1\r\n:3\r\n:4\r\n");
    let said = talk.type_in("MULTI\nINCR orders\nNONSENSE\nEXEC\nINCR orders");
    assert!(said.contains("-EXECABORT ") && said.ends_with(":5\r\n"), "{said}");
    assert_eq!(talk.type_in("MULTI\nINCR orders\nDISCARD\nINCR orders"), "+OK\r\n+QUEUED\r\n+OK\r\n:6\r\n");
    assert!(talk.type_in("EXEC").contains("EXEC without MULTI"));
    let many = "INCR orders\n".repeat(MOST_ARGUMENTS + 1);
    let said = talk.type_in(&format!("MULTI\n{many}EXEC"));
    assert!(said.contains("MULTI takes") && said.contains("-EXECABORT"));
}

#[test]
fn a_long_transaction_leaves_no_room_for_another_one_behind() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    let said = talk.type_in(&format!("MULTI\n{}EXEC", "PING\n".repeat(1_000)));
    assert!(said.ends_with(&format!("*1000\r\n{}", "+PONG\r\n".repeat(1_000))));
    assert!(talk.session.script.is_empty());
}

#[test]
fn a_transaction_is_bounded_by_its_bytes_too() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    let long = framed(&["ECHO", &"x".repeat(MOST_COMMAND / 2 - 100)]);
    let said = talk.say(&[&framed(&["MULTI"]), &*long, &long, &long, &framed(&["EXEC"])].concat());
    assert!(said.starts_with("+OK\r\n+QUEUED\r\n+QUEUED\r\n-ERR ") && said.contains("-EXECABORT"), "{said}");
}

#[test]
fn limits_and_rights_hold_for_commands_that_are_answered_together() {
    let tokens = "[token.all]\nsecrets = [\"all\"]\n[token.few]\nsecrets = [\"few\"]\nids_per_second = 5\n\
                  [token.other]\nsecrets = [\"other\"]\nnames = [\"auto:*\"]\nrights = [\"next\"]\n";
    let home = Home::with_sequences(Tokens::parse(tokens).unwrap());
    let mut talk = client(&home);
    let many = framed(&["INCR", "orders"]).repeat(40);
    assert_eq!(talk.type_in("AUTH all\nINCR orders"), "+OK\r\n:1\r\n");
    assert_eq!(talk.say(&many).matches(':').count(), 40);
    // The connection knows the name, and numbers are at hand.
    assert_eq!(talk.type_in("AUTH other"), "+OK\r\n");
    assert_eq!(talk.say(&many).matches("-NOPERM ").count(), 40);
    assert_eq!(talk.type_in("AUTH few"), "+OK\r\n");
    assert!(talk.say(&many).matches("-RATE ").count() >= 20);
}

#[test]
fn ids_that_a_client_waited_for_in_vain_are_given_back_to_its_limit() {
    fixture::are_given_back(|home| {
        let mut talk = client(home);
        talk.send(format!("AUTH few\r\nXUID.BATCH {TWICE_FEW} @fresh\r\n").as_bytes());
        assert_eq!(talk.session.in_flight(), 1);
        talk
    });
}

#[test]
fn a_library_shakes_hands_in_both_versions() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    assert!(talk.type_in("HELLO 3").starts_with("%7\r\n$6\r\nserver\r\n$4\r\nxuid\r\n"));
    assert_eq!(talk.type_in("GET none"), "_\r\n");
    assert!(talk.type_in("HELLO 2 SETNAME me").starts_with("*14\r\n"));
    let said = talk.type_in(
        "CLIENT SETINFO LIB-NAME redis-py\nCLIENT GETNAME\nSELECT 0\nPING\nPING x\nCONFIG GET save\nCOMMAND COUNT",
    );
    assert_eq!(said, "+OK\r\n$2\r\nme\r\n+OK\r\n+PONG\r\n$1\r\nx\r\n*2\r\n$4\r\nsave\r\n$0\r\n\r\n:34\r\n");
    assert!(talk.type_in("COMMAND DOCS").starts_with("*0") && talk.type_in("INFO").contains("loading:0"));
    assert!(talk.type_in("CLIENT KILL x").starts_with("-ERR unknown subcommand"));
    assert!(talk.type_in("SELECT 1").starts_with("-ERR ") && talk.type_in("AUTH x") == "+OK\r\n");
    assert_eq!((talk.type_in("QUIT"), talk.send(b"PING\r\n")), ("+OK\r\n".into(), Need::End));
}

#[test]
fn a_token_is_asked_for_before_anything_else() {
    let home = Home::with_sequences(Tokens::of("s3cret"));
    let mut talk = client(&home);
    assert!(
        talk.type_in("INCR orders").starts_with("-NOAUTH ")
            && talk.type_in("HELLO 3").starts_with("-NOAUTH ")
    );
    assert!(!talk.session.was_greeted());
    assert!(talk.type_in("AUTH wrong").starts_with("-WRONGPASS ") && talk.session.take_rejection());
    assert!(!talk.session.take_rejection() && talk.session.is_leaving(), "one guess a connection");
    let mut talk = client(&home);
    assert_eq!(talk.type_in("AUTH default s3cret\nINCR orders"), "+OK\r\n:1\r\n");
    assert!(talk.session.was_greeted());
    assert!(talk.type_in("RESET\nINCR orders").contains("-NOAUTH "));
    let mut other = client(&home);
    assert!(other.type_in("HELLO 3 AUTH default s3cret").starts_with("%7"));
    assert_eq!(other.type_in("INCR orders"), ":2\r\n");
}

/// Else it would have as much of its thread's time as a client.
#[test]
fn a_stranger_that_asks_and_asks_is_sent_away() {
    let home = Home::with_sequences(Tokens::of("s3cret"));
    let mut talk = client(&home);
    for _ in 0..63 {
        assert!(talk.type_in("rubbish").starts_with("-ERR unknown command"));
    }
    assert!(talk.type_in("INCR orders").starts_with("-NOAUTH ") && !talk.session.is_leaving());
    let said = talk.type_in("PING\nPING");
    assert!(
        said.starts_with("-NOAUTH ") && said.contains("64 commands") && said.lines().count() == 1,
        "{said}"
    );
    assert!(talk.session.is_leaving());
    // Also one whose commands are none.
    let mut silent = client(&home);
    for empty in [&b"\n"[..], b" \r\n", b"*0\r\n", b"*-1\r\n"] {
        assert_eq!(silent.say(&empty.repeat(16)), "", "{empty:?}");
    }
    assert!(!silent.session.is_leaving());
    let said = silent.say(b"\n\n\n");
    assert!(said.contains("64 commands") && said.lines().count() == 1, "{said}");
    assert!(silent.session.is_leaving());
    let mut admitted = client(&home);
    assert_eq!(admitted.type_in("AUTH s3cret"), "+OK\r\n");
    admitted.say(&b"\n".repeat(100));
    for _ in 0..100 {
        assert_eq!(admitted.type_in("PING"), "+PONG\r\n");
    }
}

#[test]
fn large_replies_are_refused_while_what_others_do_not_read_is_too_much() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    let large = ["XUID.BATCH 2049", "XUID.BATCH 2049 orders", "KEYS *"];
    let held = home.with_too_much_unread();
    for command in large {
        assert!(talk.type_in(command).starts_with("-OVERLOADED "), "{command}");
    }
    for command in ["XUID.BATCH 1024", "XUID.BATCH 1024 orders"] {
        assert!(talk.type_in(command).starts_with("*1024\r\n"), "{command}");
    }
    drop(held);
    for command in large {
        assert!(talk.type_in(command).starts_with('*'), "{command}");
    }
}

/// Many ask at once, and each gathers all names before it has its reply.
#[test]
fn names_that_are_gathered_for_keys_count_as_memory_and_few_gather_many_at_once() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    for n in 0..500 {
        assert_eq!(talk.type_in(&format!("XUID.CREATE {n:0>120}")), "+OK\r\n");
    }
    let mut others = UnreadPart::new(Arc::clone(&home.server.gathered));
    others.set(MOST_UNREAD);
    let held = home.server.gathered.held();
    assert!(talk.type_in("KEYS *").starts_with("-OVERLOADED "));
    assert_eq!(talk.type_in("KEYS ord*").lines().next(), Some("*1"), "of few names nothing counts");
    assert_eq!(home.server.gathered.held(), held);
    drop(others);
    assert_eq!(talk.type_in("KEYS *").lines().next(), Some("*501"));
    assert_eq!(home.server.gathered.held(), 0);
}

/// They are in no outbox, and bytes all the same.
#[test]
fn what_multi_and_exec_keep_counts_as_memory() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    assert_eq!(talk.session.kept(), 0);
    talk.type_in("MULTI");
    let echo = format!("ECHO {}", "x".repeat(30_000));
    talk.type_in(&echo);
    assert!(talk.session.kept() > 30_000);
    talk.type_in("EXEC");
    assert_eq!(talk.session.kept(), 0);
}

#[test]
fn what_is_no_command_closes_and_so_does_a_browser() {
    let home = Home::with_sequences(Tokens::default());
    for rubbish in [&b"*x\r\n"[..], b"*2147483648\r\n", b"*1\r\n$1073741824\r\n", b"*1\r\n$-5\r\n"] {
        let mut talk = client(&home);
        assert!(talk.say(rubbish).starts_with("-ERR Protocol error: "));
        assert_eq!(talk.send(b"PING\r\n"), Need::End);
    }
    let mut talk = client(&home);
    let said = talk.say(b"POST / HTTP/1.1\r\nHost: x\r\n\r\nINCR orders\r\n");
    assert!(
        said.starts_with("-ERR this port speaks the protocol of Redis") && said.lines().count() == 1,
        "{said}"
    );
    assert_eq!(client(&home).type_in("INCR orders"), ":1\r\n", "nothing was taken by it");
}

#[test]
fn one_that_reads_nothing_is_not_read_from() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    let asked = framed(&["ECHO", &"x".repeat(1_000)]).repeat(400);
    assert_eq!(talk.send(&asked), Need::Room);
    assert!(talk.outbox.len() >= OUTBOX_HIGH && talk.outbox.len() < OUTBOX_HIGH + 2_000);
}

#[test]
fn opaque_ids_come_one_by_one_open_and_have_no_order() {
    let home = Home::opaque();
    let mut talk = client(&home);
    let runs = talk.type_in("XUID.RUNS 3 @fresh");
    assert!(runs.starts_with("*3\r\n*3\r\n$"), "{runs}");
    let said = talk.type_in("INCR @any");
    let id = said.trim_start_matches(':').trim_end();
    let parts = talk.type_in(&format!("XUID.DECODE {id}"));
    let worker = home.server.engine.workers()[0];
    assert!(parts.contains(&format!("worker\r\n:{worker}\r\n")), "{said} {parts}");
    for command in ["INCR @ordered", "XUID.NEXT @ordered", "XUID.BATCH 2 @ordered", "XUID.RUNS 2 @ordered"] {
        let said = talk.type_in(command);
        assert!(said.starts_with("-NOORDER ") && said.contains("opaque"), "{command}: {said}");
    }
}

#[test]
fn a_scan_that_came_to_its_end_leaves_its_places_to_others() {
    let home = Home::with_sequences(Tokens::default());
    let (mut talk, cursors) = (client(&home), &home.server.cursors);
    let waits = cursors.keep(0, "another walk".to_owned());
    talk.type_in("XUID.CREATE a\nXUID.CREATE b");
    let (mut cursor, mut steps) = ("0".to_owned(), 0);
    while steps == 0 || cursor != "0" {
        let said = talk.type_in(&format!("SCAN {cursor} COUNT 1"));
        cursor = said.lines().nth(2).unwrap().to_owned();
        steps += 1;
    }
    assert_eq!(steps, 4, "a, b, orders, and nothing");
    // As many as there is room for besides the one that waits.
    (1..1_024).for_each(|n| _ = cursors.keep(0, n.to_string()));
    assert_eq!(cursors.find(waits).as_deref(), Some("another walk"));
}

#[test]
fn a_pattern_is_bounded_and_others_have_their_turn_between_the_names_that_it_is_compared_with() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    for command in ["KEYS", "SCAN 0 MATCH", "CONFIG GET"] {
        let said = talk.type_in(&format!("{command} {}", "x".repeat(256)));
        assert!(said.starts_with(['*', '%']), "{command}: {said}");
        let said = talk.type_in(&format!("{command} {}", "x".repeat(257)));
        assert!(said.starts_with("-ERR a pattern has at most 256 bytes"), "{command}: {said}");
    }
    let all = &home.server.sequences.as_ref().unwrap().all;
    let made: Vec<_> =
        (0..199).map(|n| all.create(&format!("many:{n}").parse().unwrap(), NewSequence::default())).collect();
    for made in made {
        made.wait().unwrap();
    }
    let rights = talk.session.client.rights.now(&home.server.access).clone();
    let mut asked =
        Box::pin(keys::keys(all.clone(), rights, "*".to_owned(), Arc::clone(&home.server.gathered)));
    let mut turns = 0;
    let counted = poll_fn(|context| {
        turns += 1;
        asked.as_mut().poll(context)
    });
    let runtime = Builder::new_current_thread().build().unwrap();
    let Ok(Reply::List(names)) = runtime.block_on(counted) else { panic!("no list") };
    assert_eq!(names.len(), 200);
    assert!(turns >= 200 / 16, "{turns} turns");
}

#[test]
fn a_transaction_that_is_never_ended_takes_as_much_memory_as_it_may_have_bytes() {
    let home = Home::with_sequences(Tokens::default());
    let mut talk = client(&home);
    let many = format!("EXISTS{}", " x".repeat(64));
    let taken = allocation_counter::measure(|| {
        talk.type_in("MULTI");
        // As bytes of the wire: 140 times 64 names.
        (0..140).for_each(|_| assert_eq!(talk.type_in(&many), "+QUEUED\r\n"));
    });
    let bytes = usize::try_from(taken.bytes_current).unwrap();
    assert!(bytes < MOST_COMMAND * 5 / 4, "{bytes} bytes");
}
