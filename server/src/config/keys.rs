//! The table of settings.

use super::{DEFAULT_DATA_DIR, DEFAULT_LISTEN};

/// One setting.
#[derive(Debug)]
pub(crate) struct Key {
    /// Its name in the file; upper case and with `XUID_` before it, the name of its variable.
    pub(crate) name: &'static str,
    /// Its flag without the dashes; a secret has none, since flags are seen in the list of processes.
    pub(crate) flag: Option<&'static str>,
    /// What stands for the value in the help.
    pub(crate) shape: &'static str,
    /// Its value when nobody gives one, as it would be written.
    pub(crate) default: Option<&'static str>,
    /// What is allowed, for errors.
    pub(crate) allowed: &'static str,
    /// What it does.
    pub(crate) help: &'static str,
}

/// The shape of a setting that is on or off: its flag may stand alone, which is on.
pub(crate) const SWITCH: &str = "BOOL";

/// The shape of a setting that is a list of texts: in a file it may be an array.
pub(crate) const LIST: &str = "LIST";

/// All of them, in the order of the help.
pub(crate) const KEYS: &[Key] = &[
    Key {
        name: "listen",
        flag: Some("listen"),
        shape: "ADDR",
        default: Some(DEFAULT_LISTEN),
        allowed: "an address and a port, as in 127.0.0.1:7654 (port 0: any that is free)",
        help: "Where clients connect (XUID/1 over TCP)",
    },
    Key {
        name: "admin",
        flag: Some("admin"),
        shape: "ADDR",
        default: Some("127.0.0.1:7655"),
        allowed: "an address and a port, as in 127.0.0.1:7655, or off",
        help: "Where HTTP is served: /livez, /readyz, /metrics and a page for people; or off",
    },
    Key {
        name: "resp",
        flag: Some("resp"),
        shape: "ADDR",
        default: Some("off"),
        allowed: "an address and a port, as in 127.0.0.1:7656, or off",
        help: "Where clients of Redis connect (RESP2 and RESP3); or off",
    },
    Key {
        name: "http",
        flag: Some("http"),
        shape: "ADDR",
        default: Some("off"),
        allowed: "an address and a port, as in 127.0.0.1:8080, or off",
        help: "Where clients of HTTP connect (/v1, and the paths of Leaf and tinyid); or off",
    },
    Key {
        name: "data_dir",
        flag: Some("data-dir"),
        shape: "DIR",
        default: Some(DEFAULT_DATA_DIR),
        allowed: "a folder; it is created when absent",
        help: "The folder of the local registry, the spill files and node.json",
    },
    Key {
        name: "registry",
        flag: Some("registry"),
        shape: "URL",
        default: Some("local"),
        allowed: "local, or zookeeper://host:port,host:port/path, as in zookeeper://zk1:2181,zk2:2181/xuid",
        help: "Who grants the time windows: the data folder, or a ZooKeeper ensemble that many hosts share",
    },
    Key {
        name: "registry_auth",
        flag: None,
        shape: "TEXT",
        default: None,
        allowed: "user:password",
        help: "As whom the ensemble is used",
    },
    Key {
        name: "registry_auth_file",
        flag: Some("registry-auth-file"),
        shape: "FILE",
        default: None,
        allowed: "a file with one line, user:password",
        help: "A file with user:password for the ensemble, in place of the variable XUID_REGISTRY_AUTH",
    },
    Key {
        name: "registry_auth_scheme",
        flag: Some("registry-auth-scheme"),
        shape: "SCHEME",
        default: Some("digest"),
        allowed: "digest, or sasl with registry_auth or registry_auth_file in ASCII",
        help: "How the ensemble learns user and password: by ZooKeeper's scheme digest, or by a login by SASL (DIGEST-MD5)",
    },
    Key {
        name: "worker",
        flag: Some("worker"),
        shape: "N",
        default: None,
        allowed: "a number from 0 to the layout's last worker, as in 7",
        help: "Take this worker or end with 1 [default: one that is free]",
    },
    Key {
        name: "workers",
        flag: Some("workers"),
        shape: "N",
        default: Some("1"),
        allowed: "a number from 1 to 64, and 1 where --worker names one",
        help: "How many workers to hold at once; each mints 4,096 ids a millisecond with the default layout",
    },
    Key {
        name: "max_age",
        flag: Some("max-age"),
        shape: "TIME",
        default: Some("1h"),
        allowed: "a time from 2s to 36600d, as in 1h or 7d",
        help: "No id is handed out with a timestamp older than this",
    },
    Key {
        name: "wait",
        flag: Some("wait"),
        shape: "TIME",
        default: Some("50ms"),
        allowed: "a time from 0 to 60s, as in 50ms",
        help: "How long a request for one id may wait when none is left",
    },
    Key {
        name: "backfill",
        flag: Some("backfill"),
        shape: "TIME",
        default: Some("0"),
        allowed: "a time from 0 to max_age, as in 10m",
        help: "How much of a worker's unused past to take as well",
    },
    Key {
        name: "floor",
        flag: Some("floor"),
        shape: "TIME",
        default: Some("now"),
        allowed: "now, epoch, or a time ago, as in -3h or -400d",
        help: "Only where it creates the local registry: asserts that this namespace issued nothing since",
    },
    Key {
        name: "layout",
        flag: Some("layout"),
        shape: "LAYOUT",
        default: None,
        allowed: "xuid, twitter, bwmarrin, discord, instagram, sonyflake, sonyflake2, js, or bits of time (16 to 60), \
                  worker (0 to 22) and sequence (1 to 24) that add up to 40 to 63, as in 41/10/12, and behind that \
                  tick=10ms, epoch=MS and face=worker-lowest, each after a comma",
        help: "Split of an id's bits, by name or by widths; used where it creates the registry, refused if the registry has another \
               [default: the registry's, or 41/10/12]",
    },
    Key {
        name: "epoch",
        flag: Some("epoch"),
        shape: "MS",
        default: None,
        allowed: "Unix milliseconds of tick 0, as in 1524153600000",
        help: "The instant of tick 0; goes with the layout [default: the registry's, or 1524153600000]",
    },
    Key {
        name: "opaque_key_file",
        flag: Some("opaque-key-file"),
        shape: "FILE",
        default: None,
        allowed: "a file with one line, 32 hexadecimal digits, as `openssl rand -hex 16` prints them",
        help: "The key of opaque ids, without which this registry is not served; where it creates the local registry, that \
               has opaque ids for ever",
    },
    Key {
        name: "window_max",
        flag: Some("window-max"),
        shape: "TIME",
        default: Some("60s"),
        allowed: "a time from 1s to 100s, as in 60s",
        help: "How far ahead a window may be reserved: longer survives a longer outage of the registry, \
               shorter wastes less after a crash",
    },
    Key {
        name: "rollback_wait",
        flag: Some("rollback-wait"),
        shape: "TIME",
        default: Some("15ms"),
        allowed: "a time from 0 to drift, as in 15ms",
        help: "A wall clock that goes back by no more than this is waited for",
    },
    Key {
        name: "drift",
        flag: Some("drift"),
        shape: "TIME",
        default: Some("1s"),
        allowed: "a time from 0 to 60s, as in 1s",
        help: "A wall clock that goes back by no more than this is caught up with at nine tenths of the pace; \
               beyond, another worker is taken",
    },
    Key {
        name: "max_forward",
        flag: Some("max-forward"),
        shape: "TIME",
        default: Some("5s"),
        allowed: "a time from 100ms to 100s, as in 5s",
        help: "A wall clock that leaps forward by more than this is not followed before the registry's clock agrees \
               or, without one, for a minute",
    },
    Key {
        name: "session",
        flag: Some("session"),
        shape: "TIME",
        default: Some("6s"),
        allowed: "a time from 1s to 60s, as in 6s",
        help: "The session timeout asked of an ensemble: how long a server that was killed still looks alive there; \
               the local registry has none",
    },
    Key {
        name: "idle",
        flag: Some("idle"),
        shape: "TIME",
        default: Some("5m"),
        allowed: "a time from 1s to 24h, as in 5m",
        help: "A connection that asks for nothing is closed after this time",
    },
    Key {
        name: "drain",
        flag: Some("drain"),
        shape: "TIME",
        default: Some("5s"),
        allowed: "a time from 0 to 1h, as in 5s",
        help: "How long requests in flight may take at a stop",
    },
    Key {
        name: "lame_duck",
        flag: Some("lame-duck"),
        shape: "TIME",
        default: Some("0"),
        allowed: "a time from 0 to 1h, as in 5s",
        help: "How long the server serves on after the signal to stop, with /readyz 503, so that a balancer sees it before \
               the port closes",
    },
    Key {
        name: "max_connections",
        flag: Some("max-connections"),
        shape: "N",
        default: None,
        allowed: "a number from 1 to 1000000",
        help: "Connections served at once; one more takes the place of one that has not said HELLO for a second, or is \
               told so and closed [default: as many as memory and open files allow, 65536 at most]",
    },
    Key {
        name: "threads",
        flag: Some("threads"),
        shape: "N",
        default: None,
        allowed: "a number from 1 to 256",
        help: "Threads that serve connections [default: one a core]",
    },
    Key {
        name: "token",
        flag: None,
        shape: "TEXT",
        default: None,
        allowed: "a text of 1 to 255 bytes",
        help: "What clients must say in HELLO: a token that is called default",
    },
    Key {
        name: "tokens",
        flag: Some("tokens"),
        shape: "FILE",
        default: None,
        allowed: "a file of tables [token.NAME] with secrets = [\"..\"] and, where there are bounds, ids_per_second, names \
                  and rights",
        help: "A TOML file of named tokens, of which clients must say one in HELLO: [token.NAME] with secrets = \
               [\"..\", \"..\"] and, where there are bounds, ids_per_second = N, names = [\"order:*\"] and rights = \
               [\"next\", \"create\", \"alter\"]",
    },
    Key {
        name: "address_ids_per_second",
        flag: Some("address-ids-per-second"),
        shape: "N",
        default: Some("0"),
        allowed: "a number from 0 to 1000000000; 0 is no limit",
        help: "Ids a second that all clients of one address (of IPv6: a /64) may take together, a proxy's or a NAT's too; \
               more are refused with RATE",
    },
    Key {
        name: "tls_cert",
        flag: Some("tls-cert"),
        shape: "FILE",
        default: None,
        allowed: "a file with the server's certificate, and those between it and its CA, in PEM",
        help: "The server's certificate (PEM), with those between it and its CA: both ports then speak TLS",
    },
    Key {
        name: "tls_key",
        flag: Some("tls-key"),
        shape: "FILE",
        default: None,
        allowed: "a file with the private key of tls_cert in PEM",
        help: "The private key (PEM) of --tls-cert",
    },
    Key {
        name: "tls_client_ca",
        flag: Some("tls-client-ca"),
        shape: "FILE",
        default: None,
        allowed: "a file with the certificates, in PEM, that vouch for clients",
        help: "Certificates (PEM) that vouch for clients: each must then show one of its own",
    },
    Key {
        name: "sequences",
        flag: Some("sequences"),
        shape: "URL",
        default: Some("registry"),
        allowed: "registry, off, or postgres://user@host,host/database or mysql://.. (a flag without a password)",
        help: "Who grants the numbers of named sequences: the registry, a database, or nobody",
    },
    Key {
        name: "sequences_url_file",
        flag: Some("sequences-url-file"),
        shape: "FILE",
        default: None,
        allowed: "a file with one line, the URL of a database",
        help: "A file with the URL for --sequences, which may hold a password",
    },
    Key {
        name: "sequence_table",
        flag: Some("sequence-table"),
        shape: "SHAPE",
        default: Some("xuid"),
        allowed: "xuid, leaf or tinyid, or one of these with a table, as in leaf:my_alloc",
        help: "Whose table it is: one of our own, or that of a running Leaf or tinyid deployment",
    },
    Key {
        name: "sequence_witness",
        flag: Some("sequence-witness"),
        shape: "WHO",
        default: None,
        allowed: "registry, folder or none",
        help: "Who remembers what a database granted to all its servers, in case it goes back [default: the registry if that \
               is an ensemble, else the data folder, beside which the database itself is watched]",
    },
    Key {
        name: "sequence_failover",
        flag: Some("sequence-failover"),
        shape: "HOW",
        default: Some("fence"),
        allowed: "fence or lossless",
        help: "Without a witness that all servers share, what to do when another database answers: wait for \
               `xuid sequence fence`, or go on because it never loses a commit",
    },
    Key {
        name: "sequence_create",
        flag: Some("sequence-create"),
        shape: LIST,
        default: None,
        allowed: "patterns of names with commas between them, as in order:*,user:*, or a list of them in a file",
        help: "Names that are created by their first use [default: none]",
    },
    Key {
        name: "sequence_strict",
        flag: Some("sequence-strict"),
        shape: LIST,
        default: None,
        allowed: "patterns of names with commas between them, as in order:*,user:*, or a list of them in a file",
        help: "Names that are strict whatever their rows say, for tables without a column for it [default: none]",
    },
    Key {
        name: "sequence_step",
        flag: Some("sequence-step"),
        shape: "N",
        default: Some("1000"),
        allowed: "a number from 1 to 4294967296",
        help: "The step of sequences that are created without one: the least that is granted at once",
    },
    Key {
        name: "sequence_step_max",
        flag: Some("sequence-step-max"),
        shape: "N",
        default: Some("4294967296"),
        allowed: "a number from 1 to 4294967296",
        help: "The most numbers that one grant is asked for",
    },
    Key {
        name: "sequence_hold",
        flag: Some("sequence-hold"),
        shape: "TIME",
        default: Some("10m"),
        allowed: "a time from 1s to 24h, as in 10m",
        help: "How long what is held of a sequence shall last: so long its store may be away, and so much a crash loses",
    },
    Key {
        name: "sequence_idle",
        flag: Some("sequence-idle"),
        shape: "TIME",
        default: Some("15m"),
        allowed: "a time from 1s to 24h, as in 15m",
        help: "A sequence that nobody asks for is kept in its compact form after this time",
    },
    Key {
        name: "sequence_limit",
        flag: Some("sequence-limit"),
        shape: "N",
        default: Some("1000000"),
        allowed: "a number from 1 to 100000000",
        help: "Unused names whose numbers are kept in memory; one more loses what it held",
    },
    Key {
        name: "sequences_unsafe",
        flag: Some("sequences-unsafe"),
        shape: SWITCH,
        default: Some("false"),
        allowed: "true or false",
        help: "Takes numbers also from a database that can lose commits: numbers may then come twice",
    },
    Key {
        name: "insecure_listen",
        flag: Some("insecure-listen"),
        shape: SWITCH,
        default: Some("false"),
        allowed: "true or false",
        help: "Listen also where other machines reach it without TLS and a token: everybody who gets there gets ids",
    },
    Key {
        name: "log",
        flag: Some("log"),
        shape: "FILTER",
        default: None,
        allowed: "off, error, warn, info, debug, trace, or module=level pairs, as in info,xuid_engine=debug",
        help: "What is logged to stderr [default: RUST_LOG, or info,zookeeper_client=warn]",
    },
    Key {
        name: "log_format",
        flag: Some("log-format"),
        shape: "FORM",
        default: Some("text"),
        allowed: "text or json",
        help: "How the log is written: lines for people, or one JSON object a line",
    },
];

impl Key {
    /// The name of its environment variable.
    pub(crate) fn variable(&self) -> String {
        format!("XUID_{}", self.name.to_ascii_uppercase())
    }

    /// Whether its value is shown to nobody.
    pub(crate) fn is_secret(&self) -> bool {
        self.flag.is_none()
    }

    /// The key of that name.
    pub(crate) fn find(name: &str) -> Option<&'static Key> {
        KEYS.iter().find(|key| key.name == name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const DOCS: &str = include_str!("../../../docs/settings.md");

    /// Rows `| flag | variable | key | default | allowed | effect |`, by their keys.
    fn documented() -> BTreeMap<&'static str, Vec<&'static str>> {
        let table = DOCS.lines().filter(|line| line.starts_with("| ") && line.contains("`XUID_"));
        let cells = |row: &'static str| -> Vec<_> {
            row.split('|').skip(1).map(|cell| cell.trim().trim_matches('`')).collect()
        };
        let mut rows = BTreeMap::new();
        for cells in table.map(cells) {
            let before = rows.insert(cells[2], cells.clone());
            assert!(before.is_none(), "{} has two rows", cells[2]);
        }
        rows
    }

    #[test]
    fn every_setting_is_documented_as_it_is_and_nothing_else_is() {
        let mut documented = documented();
        for key in KEYS {
            let row = documented.remove(key.name);
            let row = row.unwrap_or_else(|| panic!("docs/settings.md has no row for {}", key.name));
            let flag = key.flag.map(|flag| format!("--{flag}")).unwrap_or_default();
            let wanted = [&flag, &key.variable(), key.name, key.default.unwrap_or_default(), key.allowed];
            assert_eq!(row[..5], wanted, "flag, variable, key, default, allowed in docs/settings.md");
            assert!(!row[5].is_empty(), "docs/settings.md does not say what {} does", key.name);
        }
        let unknown: Vec<_> = documented.keys().collect();
        assert!(unknown.is_empty(), "docs/settings.md has rows for what is no setting: {unknown:?}");
    }
}
