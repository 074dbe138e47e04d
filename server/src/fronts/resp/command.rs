//! What a command asks for.

use xuid_engine::sequence::SequenceName;
use xuid_protocol::{Op, Refusal, Status};

use super::argument::{Key, bad, key, key_or_any, many, name, number, pattern, shown, text, value};

/// The form in which ids are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The last one, as an integer. All of them are neighbours.
    Last,
    /// One, as a text.
    One,
    /// A list of texts.
    List,
    /// A list of runs.
    Runs,
    /// One run.
    Piece,
}

impl Shape {
    /// The op of XUID/1 that brings the same, under which it is counted.
    pub(super) fn op(self, key: &Key) -> Op {
        match (self, key) {
            (Self::Last | Self::One, Key::Ids(_)) => Op::Next,
            (Self::List, Key::Ids(_)) => Op::Array,
            (Self::Runs | Self::Piece, Key::Ids(_)) => Op::Runs,
            (Self::Last | Self::One, Key::Name(_)) => Op::SeqNext,
            (Self::List, Key::Name(_)) => Op::SeqArray,
            (Self::Runs | Self::Piece, Key::Name(_)) => Op::SeqRuns,
        }
    }
}

/// How a client says who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Credentials<'a> {
    /// The user's name is not looked at: a token is enough.
    pub(super) token: &'a [u8],
}

/// What a client says with HELLO.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Hello<'a> {
    pub(super) version: Option<u8>,
    pub(super) auth: Option<Credentials<'a>>,
    pub(super) name: Option<&'a [u8]>,
}

/// A question about CLIENT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OfClient<'a> {
    SetName(&'a [u8]),
    GetName,
    Id,
    /// What the server takes note of without a consequence.
    Noted,
}

/// A walk over the names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scan<'a> {
    pub(super) cursor: u64,
    pub(super) pattern: Option<&'a str>,
    pub(super) count: usize,
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command<'a> {
    Take {
        key: Key,
        count: u32,
        shape: Shape,
    },
    Decode {
        id: u64,
    },
    Create {
        name: SequenceName,
        settings: String,
    },
    SequenceInfo {
        name: SequenceName,
    },
    ServerInfo,
    Get {
        name: SequenceName,
    },
    /// A counter that is moved over: its next number is `value + 1`. Answered with OK or nil, or with 1 or 0.
    SetIfAbsent {
        name: SequenceName,
        value: u64,
        is_answered_by_number: bool,
    },
    Exists {
        names: Vec<SequenceName>,
    },
    Type {
        name: SequenceName,
    },
    TimeToLive {
        name: SequenceName,
    },
    Scan(Scan<'a>),
    Keys {
        pattern: &'a str,
    },
    Size,
    Multi,
    Exec,
    Discard,
    Unwatch,
    Hello(Hello<'a>),
    Auth(Credentials<'a>),
    Ping {
        message: Option<&'a [u8]>,
    },
    Echo {
        message: &'a [u8],
    },
    Quit,
    Reset,
    Select,
    Client(OfClient<'a>),
    Commands {
        counts: bool,
    },
    Config {
        pattern: &'a str,
    },
    Info,
}

impl Command<'_> {
    /// Whether a client may say it that has not shown a token, where one is asked for.
    pub(super) fn is_for_strangers(&self) -> bool {
        matches!(self, Self::Auth(_) | Self::Hello(_) | Self::Quit | Self::Reset)
    }

    /// Whether it is carried out at once between MULTI and EXEC.
    pub(super) fn is_never_queued(&self) -> bool {
        matches!(self, Self::Multi | Self::Exec | Self::Discard | Self::Quit | Self::Reset)
    }
}

/// The longest name of a command, and some more.
const LONGEST: usize = 24;

/// Reads a command. There is at least one argument.
pub(super) fn parse<'a>(arguments: &[&'a [u8]]) -> Result<Command<'a>, Refusal> {
    let (name, rest) = arguments.split_first().ok_or_else(|| bad("there is no command"))?;
    let mut upper = [0; LONGEST];
    let word: &[u8] = match upper.get_mut(..name.len()) {
        Some(upper) => {
            upper.copy_from_slice(name);
            upper.make_ascii_uppercase();
            upper
        }
        None => b"",
    };
    let count_of = |expected: bool| {
        let named = name.escape_ascii();
        if expected { Ok(()) } else { Err(bad(format!("wrong number of arguments for '{named}' command"))) }
    };
    if let Some(found) = of_ids(word, rest, &count_of)? {
        return Ok(found);
    }
    if let Some(found) = of_keys(word, rest, &count_of)? {
        return Ok(found);
    }
    if let Some(found) = of_connection(word, rest, &count_of)? {
        return Ok(found);
    }
    Err(unknown(word, name, rest))
}

type Counted<'f> = &'f dyn Fn(bool) -> Result<(), Refusal>;

/// Commands that bring ids.
fn of_ids<'a>(word: &[u8], rest: &[&'a [u8]], count_of: Counted<'_>) -> Result<Option<Command<'a>>, Refusal> {
    let take = |key, count, shape| Ok(Some(Command::Take { key, count, shape }));
    match word {
        b"INCR" => {
            count_of(rest.len() == 1)?;
            take(key(rest[0])?, 1, Shape::Last)
        }
        b"INCRBY" => {
            count_of(rest.len() == 2)?;
            let (key, by) = (key(rest[0])?, many(rest[1])?);
            if by > 1 && matches!(key, Key::Ids(_)) {
                return Err(bad(
                    "ids of @any, @fresh and @ordered are no neighbours: INCRBY takes 1 there; use XUID.BATCH or XUID.RUNS",
                ));
            }
            take(key, by, Shape::Last)
        }
        b"XUID.NEXT" => {
            count_of(rest.len() <= 1)?;
            take(key_or_any(rest.first())?, 1, Shape::One)
        }
        b"XUID.BATCH" | b"XUID.RUNS" => {
            count_of((1..=2).contains(&rest.len()))?;
            let shape = if word == b"XUID.BATCH" { Shape::List } else { Shape::Runs };
            take(key_or_any(rest.get(1))?, many(rest[0])?, shape)
        }
        b"XUID.TAKE" => {
            count_of(rest.len() == 2)?;
            match key(rest[0])? {
                Key::Ids(_) => {
                    Err(bad("XUID.TAKE takes neighbours of a sequence; use XUID.BATCH or XUID.RUNS for ids"))
                }
                name @ Key::Name(_) => take(name, many(rest[1])?, Shape::Piece),
            }
        }
        b"XUID.DECODE" => {
            count_of(rest.len() == 1)?;
            let id = number(rest[0]).filter(|id| *id < 1 << 63);
            let id = id.ok_or_else(|| {
                bad("what is to be decoded is no id: allowed is a number from 0 to 9223372036854775807")
            })?;
            Ok(Some(Command::Decode { id }))
        }
        b"XUID.CREATE" => {
            count_of(!rest.is_empty())?;
            Ok(Some(Command::Create { name: name(rest[0])?, settings: settings(&rest[1..])? }))
        }
        b"XUID.INFO" => {
            count_of(rest.len() <= 1)?;
            Ok(Some(match rest.first() {
                Some(text) => Command::SequenceInfo { name: name(text)? },
                None => Command::ServerInfo,
            }))
        }
        _ => Ok(None),
    }
}

/// Commands that ask for names, or move a counter over.
fn of_keys<'a>(
    word: &[u8],
    rest: &[&'a [u8]],
    count_of: Counted<'_>,
) -> Result<Option<Command<'a>>, Refusal> {
    Ok(Some(match word {
        b"GET" | b"TYPE" | b"TTL" | b"PTTL" => {
            count_of(rest.len() == 1)?;
            let name = name(rest[0])?;
            match word {
                b"GET" => Command::Get { name },
                b"TYPE" => Command::Type { name },
                _ => Command::TimeToLive { name },
            }
        }
        b"EXISTS" => {
            count_of(!rest.is_empty())?;
            if rest.len() > MOST_NAMES {
                return Err(bad(format!("EXISTS takes at most {MOST_NAMES} names")));
            }
            Command::Exists { names: rest.iter().map(|text| name(text)).collect::<Result<_, _>>()? }
        }
        b"SETNX" => {
            count_of(rest.len() == 2)?;
            Command::SetIfAbsent { name: name(rest[0])?, value: value(rest[1])?, is_answered_by_number: true }
        }
        b"SET" => {
            count_of(rest.len() >= 2)?;
            if rest.len() != 3 || !rest[2].eq_ignore_ascii_case(b"NX") {
                return Err(only_rises("SET"));
            }
            Command::SetIfAbsent {
                name: name(rest[0])?,
                value: value(rest[1])?,
                is_answered_by_number: false,
            }
        }
        b"SCAN" => {
            count_of(!rest.is_empty())?;
            Command::Scan(scan(rest)?)
        }
        b"KEYS" => {
            count_of(rest.len() == 1)?;
            Command::Keys { pattern: pattern(rest[0])? }
        }
        b"DBSIZE" => {
            count_of(rest.is_empty())?;
            Command::Size
        }
        _ => return Ok(None),
    }))
}

/// Commands about the connection and the server, which libraries say before anything else.
fn of_connection<'a>(
    word: &[u8],
    rest: &[&'a [u8]],
    count_of: Counted<'_>,
) -> Result<Option<Command<'a>>, Refusal> {
    let alone = |command| count_of(rest.is_empty()).map(|()| Some(command));
    match word {
        b"MULTI" => alone(Command::Multi),
        b"EXEC" => alone(Command::Exec),
        b"DISCARD" => alone(Command::Discard),
        b"UNWATCH" => alone(Command::Unwatch),
        b"QUIT" => Ok(Some(Command::Quit)),
        b"RESET" => alone(Command::Reset),
        b"INFO" => Ok(Some(Command::Info)),
        b"PING" => {
            count_of(rest.len() <= 1)?;
            Ok(Some(Command::Ping { message: rest.first().copied() }))
        }
        b"ECHO" => {
            count_of(rest.len() == 1)?;
            Ok(Some(Command::Echo { message: rest[0] }))
        }
        b"SELECT" => {
            count_of(rest.len() == 1)?;
            if rest[0] == b"0" {
                Ok(Some(Command::Select))
            } else {
                Err(bad("DB index is out of range: there is only 0"))
            }
        }
        b"AUTH" => {
            count_of((1..=2).contains(&rest.len()))?;
            Ok(Some(Command::Auth(Credentials { token: rest[rest.len() - 1] })))
        }
        b"HELLO" => Ok(Some(Command::Hello(hello(rest)?))),
        b"CLIENT" => {
            count_of(!rest.is_empty())?;
            client(rest).map(|found| Some(Command::Client(found)))
        }
        b"COMMAND" => Ok(Some(Command::Commands {
            counts: rest.first().is_some_and(|what| what.eq_ignore_ascii_case(b"COUNT")),
        })),
        b"CONFIG" => {
            let is_get = rest.first().is_some_and(|what| what.eq_ignore_ascii_case(b"GET"));
            if !is_get || rest.len() != 2 {
                return Err(bad(
                    "CONFIG has only GET and one pattern here: settings are the server's own (xuid config print)",
                ));
            }
            Ok(Some(Command::Config { pattern: pattern(rest[1])? }))
        }
        _ => Ok(None),
    }
}

fn hello<'a>(rest: &[&'a [u8]]) -> Result<Hello<'a>, Refusal> {
    let mut hello = Hello::default();
    let Some((version, mut options)) = rest.split_first() else { return Ok(hello) };
    hello.version = match *version {
        b"2" => Some(2),
        b"3" => Some(3),
        _ => return Err(Refusal::new(Status::VERSION, "unsupported protocol version: there are 2 and 3")),
    };
    while let Some((option, values)) = options.split_first() {
        options = match (option.to_ascii_uppercase().as_slice(), values) {
            (b"AUTH", [_, token, more @ ..]) => {
                hello.auth = Some(Credentials { token });
                more
            }
            (b"SETNAME", [name, more @ ..]) => {
                hello.name = Some(name);
                more
            }
            _ => return Err(bad(format!("syntax error in HELLO option '{}'", shown(option)))),
        };
    }
    Ok(hello)
}

fn client<'a>(rest: &[&'a [u8]]) -> Result<OfClient<'a>, Refusal> {
    match (rest[0].to_ascii_uppercase().as_slice(), &rest[1..]) {
        (b"SETNAME", [name]) => Ok(OfClient::SetName(name)),
        (b"GETNAME", []) => Ok(OfClient::GetName),
        (b"ID", []) => Ok(OfClient::Id),
        (b"SETINFO" | b"NO-EVICT" | b"NO-TOUCH" | b"MAINT_NOTIFICATIONS", [_, ..]) => Ok(OfClient::Noted),
        _ => Err(bad(format!(
            "unknown subcommand or wrong number of arguments for 'CLIENT {}': there are SETNAME, GETNAME, ID, SETINFO, \
             NO-EVICT, NO-TOUCH and MAINT_NOTIFICATIONS",
            shown(rest[0])
        ))),
    }
}

fn scan<'a>(rest: &[&'a [u8]]) -> Result<Scan<'a>, Refusal> {
    let cursor = number(rest[0]).ok_or_else(|| bad("invalid cursor"))?;
    let mut scan = Scan { cursor, pattern: None, count: 10 };
    let mut options = &rest[1..];
    while let Some((option, values)) = options.split_first() {
        options = match (option.to_ascii_uppercase().as_slice(), values) {
            (b"MATCH", [pattern, more @ ..]) => {
                scan.pattern = Some(self::pattern(pattern)?);
                more
            }
            (b"COUNT", [count, more @ ..]) => {
                let count = number(count).filter(|count| *count > 0);
                scan.count = count.ok_or_else(|| bad("COUNT is a number from 1 on"))?.min(1_000) as usize;
                more
            }
            // All keys are counters, which are strings in Redis.
            (b"TYPE", [kind, more @ ..]) if kind.eq_ignore_ascii_case(b"string") => more,
            _ => return Err(bad("syntax error: SCAN cursor [MATCH pattern] [COUNT count] [TYPE string]")),
        };
    }
    Ok(scan)
}

/// The most names that EXISTS looks up.
const MOST_NAMES: usize = 64;

/// What XUID.CREATE says of a sequence, as the settings of `SEQ_CREATE`.
fn settings(mut words: &[&[u8]]) -> Result<String, Refusal> {
    let mut found = serde_json::Map::new();
    while let Some((word, values)) = words.split_first() {
        let key = word.to_ascii_lowercase();
        words = match (key.as_slice(), values) {
            (b"strict", more) => {
                found.insert("strict".into(), true.into());
                more
            }
            (b"start" | b"step" | b"increment" | b"remainder" | b"last", [value, more @ ..]) => {
                found.insert(text(&key)?.to_owned(), text(value)?.into());
                more
            }
            _ => {
                return Err(bad(
                    "syntax error: XUID.CREATE key [START n] [STEP n] [INCREMENT i] [REMAINDER r] [LAST n] [STRICT]",
                ));
            }
        };
    }
    Ok(serde_json::Value::Object(found).to_string())
}

fn only_rises(word: &str) -> Refusal {
    bad(format!(
        "a sequence only rises, and is never taken away: there is no {word} here. SET key value NX or XUID.CREATE begins one, \
         INCR and INCRBY go on with it"
    ))
}

#[cold]
fn unknown(word: &[u8], name: &[u8], rest: &[&[u8]]) -> Refusal {
    match word {
        b"DECR" | b"DECRBY" | b"DEL" | b"UNLINK" | b"EXPIRE" | b"EXPIREAT" | b"PEXPIRE" | b"PEXPIREAT"
        | b"PERSIST" | b"GETSET" | b"GETDEL" | b"GETEX" | b"APPEND" | b"INCRBYFLOAT" | b"SETEX"
        | b"PSETEX" | b"SETRANGE" | b"MSET" | b"MSETNX" | b"RENAME" | b"RENAMENX" | b"RESTORE" | b"COPY"
        | b"MOVE" | b"FLUSHDB" | b"FLUSHALL" => only_rises(&String::from_utf8_lossy(word)),
        b"WATCH" => bad("there is no WATCH here: each command that takes numbers is one step of its own"),
        _ => {
            let first: Vec<String> = rest
                .iter()
                .take(3)
                .map(|word| format!("'{}'", word[..word.len().min(64)].escape_ascii()))
                .collect();
            let name = name[..name.len().min(64)].escape_ascii().to_string();
            Refusal::new(
                Status::UNKNOWN_OP,
                format!("unknown command '{name}', with args beginning with: {}", first.join(" ")),
            )
        }
    }
}

/// All commands, for COMMAND COUNT.
pub(super) const COMMANDS: [&str; 34] = [
    "AUTH",
    "CLIENT",
    "COMMAND",
    "CONFIG",
    "DBSIZE",
    "DISCARD",
    "ECHO",
    "EXEC",
    "EXISTS",
    "GET",
    "HELLO",
    "INCR",
    "INCRBY",
    "INFO",
    "KEYS",
    "MULTI",
    "PING",
    "PTTL",
    "QUIT",
    "RESET",
    "SCAN",
    "SELECT",
    "SET",
    "SETNX",
    "TTL",
    "TYPE",
    "UNWATCH",
    "XUID.BATCH",
    "XUID.CREATE",
    "XUID.DECODE",
    "XUID.INFO",
    "XUID.NEXT",
    "XUID.RUNS",
    "XUID.TAKE",
];

#[cfg(test)]
mod tests {
    use xuid_protocol::Order;

    use super::*;

    fn parsed(line: &str) -> Result<Command<'_>, String> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        parse(&words).map_err(|refusal| refusal.text.into_owned())
    }

    fn named(text: &str) -> SequenceName {
        SequenceName::new(text).unwrap()
    }

    #[test]
    fn ids_are_asked_for_by_key_and_count() {
        let take = |key, count, shape| Ok(Command::Take { key, count, shape });
        let orders = || Key::Name(named("orders"));
        assert_eq!(parsed("incr orders"), take(orders(), 1, Shape::Last));
        assert_eq!(parsed("IncrBy orders 131072"), take(orders(), 131_072, Shape::Last));
        assert_eq!(parsed("INCR @fresh"), take(Key::Ids(Order::Fresh), 1, Shape::Last));
        assert_eq!(parsed("XUID.NEXT"), take(Key::Ids(Order::Any), 1, Shape::One));
        assert_eq!(parsed("XUID.BATCH 7 @ordered"), take(Key::Ids(Order::Ordered), 7, Shape::List));
        assert_eq!(parsed("XUID.RUNS 7 orders"), take(orders(), 7, Shape::Runs));
        assert_eq!(parsed("XUID.TAKE orders 7"), take(orders(), 7, Shape::Piece));
        for bad in [
            "INCR",
            "INCR a b",
            "INCR @other",
            "INCRBY orders 0",
            "INCRBY orders -1",
            "INCRBY orders x",
            "INCRBY @any 2",
        ] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_would_let_a_sequence_go_back_is_refused_with_the_reason() {
        for line in [
            "SET a 1",
            "SET a 1 XX",
            "SET a 1 NX EX",
            "DECR a",
            "DEL a",
            "EXPIRE a 1",
            "FLUSHALL",
            "GETSET a 1",
        ] {
            assert!(parsed(line).unwrap_err().contains("a sequence only rises"), "{line}");
        }
        assert!(parsed("WATCH a").unwrap_err().contains("no WATCH"));
        assert!(
            parsed("LPUSH a b")
                .unwrap_err()
                .starts_with("unknown command 'LPUSH', with args beginning with: 'a' 'b'")
        );
        let moved = Command::SetIfAbsent { name: named("a"), value: 41, is_answered_by_number: false };
        assert_eq!(parsed("SET a 41 nx"), Ok(moved));
    }

    #[test]
    fn every_command_of_the_list_is_known() {
        for word in COMMANDS {
            let known = parsed(word).err().is_none_or(|text| !text.starts_with("unknown command"));
            assert!(known, "{word}");
        }
    }

    #[test]
    fn hello_and_scan_take_their_options() {
        let hello = Hello { version: Some(3), auth: Some(Credentials { token: b"p" }), name: Some(b"me") };
        assert_eq!(parsed("HELLO 3 AUTH default p SETNAME me"), Ok(Command::Hello(hello)));
        assert_eq!(parsed("HELLO"), Ok(Command::Hello(Hello::default())));
        assert!(parsed("HELLO 4").is_err() && parsed("HELLO 3 AUTH u").is_err());
        let scan = Scan { cursor: 5, pattern: Some("a*"), count: 1_000 };
        assert_eq!(parsed("SCAN 5 MATCH a* COUNT 5000"), Ok(Command::Scan(scan)));
        assert!(parsed("SCAN x").is_err() && parsed("SCAN 0 COUNT 0").is_err());
    }

    #[test]
    fn a_sequence_is_created_with_the_settings_that_are_said() {
        let Ok(Command::Create { settings, .. }) =
            parsed("XUID.CREATE a START 5 INCREMENT 3 REMAINDER 2 STRICT")
        else {
            panic!("no creation")
        };
        assert_eq!(settings, r#"{"increment":"3","remainder":"2","start":"5","strict":true}"#);
        assert!(parsed("XUID.CREATE a START").is_err() && parsed("XUID.CREATE a BEGIN 1").is_err());
    }
}
