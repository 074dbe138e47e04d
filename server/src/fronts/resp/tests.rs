//! The conversation without a socket: bytes in, bytes out.

use tokio::runtime::Builder;
use xuid_engine::registry::local::sequences::LocalSequences;
use xuid_engine::sequence::store::NewSequence;
use xuid_engine::sequence::store::registry::RegistryStore;
use xuid_engine::sequence::{NamePattern, Sequences};
use xuid_engine::{Engine, Floor};
use xuid_protocol::Limits as ProtocolLimits;

use super::*;
use crate::config::Tokens;
use crate::state::access::AccessRules;
use crate::state::sequences::ServedSequences;
use crate::state::server::{Limits, Places};

/// So long may ids take that must come: the machine may be busy.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// A server in a folder of its own that keeps sequences, `orders` among them.
struct Home {
    server: Arc<Server>,
    _folder: tempfile::TempDir,
}

impl Home {
    fn new(tokens: Tokens) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let decade = std::time::Duration::from_hours(10 * 365 * 24);
        let engine =
            Engine::builder().data_dir(folder.path()).floor(Floor::Epoch).max_age(decade).backfill(decade);
        let limits = Limits { wait: PATIENCE, protocol: ProtocolLimits::default() };
        let places =
            Places { listen: "127.0.0.1:7654".parse().unwrap(), admin: None, resp: None, http: None };
        let server = Server::new(engine.build().unwrap(), limits, AccessRules::new(tokens, None), places);
        let records = || Box::new(LocalSequences::open_or_create(folder.path(), None).unwrap());
        let store = Box::new(RegistryStore::new(records()));
        let builder = Sequences::builder(store).records(records()).data_dir(folder.path());
        let all = builder.create(["auto:*"].map(NamePattern::new)).build().unwrap();
        all.create(&"orders".parse().unwrap(), NewSequence::default()).wait().unwrap();
        let sequences = ServedSequences { all, step: 1_000 };
        Self { server: Arc::new(server.with_sequences(Some(sequences))), _folder: folder }
    }

    fn talk(&self) -> Talk {
        Talk {
            session: Session::new(Arc::clone(&self.server), None),
            inbox: Inbox::default(),
            outbox: Outbox::default(),
        }
    }
}

/// A client and its session, with buffers in between.
struct Talk {
    session: Session,
    inbox: Inbox,
    outbox: Outbox,
}

impl Talk {
    fn send(&mut self, bytes: &[u8]) -> Need {
        self.inbox.room(bytes.len()).extend_from_slice(bytes);
        self.session.receive(&mut self.inbox, &mut self.outbox, usize::MAX)
    }

    /// What so many bytes are answered with, waiting included.
    fn say(&mut self, bytes: &[u8]) -> String {
        self.send(bytes);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            while self.session.in_flight() > 0 {
                let done = self.session.waited().await;
                self.session.finish(done, &mut self.outbox);
                self.session.receive(&mut self.inbox, &mut self.outbox, usize::MAX);
            }
        });
        let said = String::from_utf8(self.outbox.rest().to_vec()).unwrap();
        self.outbox.consume(self.outbox.len());
        said
    }

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
    let home = Home::new(Tokens::default());
    let mut talk = home.talk();
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
    let home = Home::new(Tokens::default());
    let (mut talk, mut input, mut expected) = (home.talk(), Vec::new(), String::new());
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
    let home = Home::new(Tokens::default());
    let mut talk = home.talk();
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
    let home = Home::new(Tokens::default());
    let mut talk = home.talk();
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
    let home = Home::new(Tokens::default());
    let mut talk = home.talk();
    assert_eq!(talk.type_in("XUID.CREATE n\nINCR n\nXUID.CREATE n"), "+OK\r\n:1\r\n+OK\r\n");
    assert!(talk.type_in("XUID.CREATE n START 1000000").starts_with("-EXISTS "));
    assert_eq!(talk.type_in("SET n 123456 NX\nINCR n"), "$-1\r\n:2\r\n");
}

#[test]
fn names_are_walked_over() {
    let home = Home::new(Tokens::default());
    let mut talk = home.talk();
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
    let home = Home::new(Tokens::default());
    let mut talk = home.talk();
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
fn a_library_shakes_hands_in_both_versions() {
    let home = Home::new(Tokens::default());
    let mut talk = home.talk();
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
    let home = Home::new(Tokens::of("s3cret"));
    let mut talk = home.talk();
    assert!(
        talk.type_in("INCR orders").starts_with("-NOAUTH ")
            && talk.type_in("HELLO 3").starts_with("-NOAUTH ")
    );
    assert!(!talk.session.was_greeted());
    assert!(talk.type_in("AUTH wrong").starts_with("-WRONGPASS ") && talk.session.take_rejection());
    assert!(!talk.session.take_rejection() && talk.session.is_leaving(), "one guess a connection");
    let mut talk = home.talk();
    assert_eq!(talk.type_in("AUTH default s3cret\nINCR orders"), "+OK\r\n:1\r\n");
    assert!(talk.session.was_greeted());
    assert!(talk.type_in("RESET\nINCR orders").contains("-NOAUTH "));
    let mut other = home.talk();
    assert!(other.type_in("HELLO 3 AUTH default s3cret").starts_with("%7"));
    assert_eq!(other.type_in("INCR orders"), ":2\r\n");
}

#[test]
fn what_is_no_command_closes_and_so_does_a_browser() {
    let home = Home::new(Tokens::default());
    for rubbish in [&b"*x\r\n"[..], b"*2147483648\r\n", b"*1\r\n$1073741824\r\n", b"*1\r\n$-5\r\n"] {
        let mut talk = home.talk();
        assert!(talk.say(rubbish).starts_with("-ERR Protocol error: "));
        assert_eq!(talk.send(b"PING\r\n"), Need::End);
    }
    let mut talk = home.talk();
    let said = talk.say(b"POST / HTTP/1.1\r\nHost: x\r\n\r\nINCR orders\r\n");
    assert!(
        said.starts_with("-ERR this port speaks the protocol of Redis") && said.lines().count() == 1,
        "{said}"
    );
    assert_eq!(home.talk().type_in("INCR orders"), ":1\r\n", "nothing was taken by it");
}

#[test]
fn one_that_reads_nothing_is_not_read_from() {
    let home = Home::new(Tokens::default());
    let mut talk = home.talk();
    let asked = framed(&["ECHO", &"x".repeat(1_000)]).repeat(400);
    assert_eq!(talk.send(&asked), Need::Room);
    assert!(talk.outbox.len() >= OUTBOX_HIGH && talk.outbox.len() < OUTBOX_HIGH + 2_000);
}
