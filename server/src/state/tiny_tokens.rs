//! The tokens of a tinyid deployment: rows of its table `tiny_id_token`, each good for one name, at its paths alone.
//!
//! They are read once a minute by a thread of their own. While the database is away, or has the table no more, those that were
//! read last count.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::thread;
use std::time::Duration;

use subtle::ConstantTimeEq;
use tracing::{info, warn};
use xuid_engine::sequence::store::StoreError;
use xuid_engine::sequence::store::database::TinyToken;

/// How often the rows are read, and how soon again after a failure.
const PAUSES: Pauses = Pauses { read: Duration::from_mins(1), failed: Duration::from_secs(2) };

#[derive(Debug, Clone, Copy)]
struct Pauses {
    read: Duration,
    failed: Duration,
}

/// What a reading brought: `None` where there is no such table.
type Reading = Result<Option<Vec<TinyToken>>, StoreError>;

/// The tokens as they were read last.
#[derive(Default)]
pub(crate) struct TinyTokens {
    rows: RwLock<Rows>,
}

#[derive(Default)]
enum Rows {
    #[default]
    NotRead,
    NoTable,
    /// Secrets by name.
    Read(HashMap<String, Vec<String>>),
}

/// They are secrets: none is shown.
impl fmt::Debug for TinyTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TinyTokens").finish_non_exhaustive()
    }
}

/// What the rows say of a token and a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is such a row.
    Known,
    /// There is none.
    Unknown,
    /// They were not read yet.
    NotRead,
    /// There is no table of tokens.
    NoTable,
}

impl TinyTokens {
    /// Begins to read rows, by a thread that ends with the last of its owners.
    pub(crate) fn follow(read: impl FnMut() -> Reading + Send + 'static) -> io::Result<Arc<Self>> {
        Self::follow_at(PAUSES, read)
    }

    fn follow_at(
        pauses: Pauses,
        mut read: impl FnMut() -> Reading + Send + 'static,
    ) -> io::Result<Arc<Self>> {
        let tokens = Arc::new(Self::default());
        let owned = Arc::downgrade(&tokens);
        let name = "xuid-tiny-token".to_owned();
        thread::Builder::new().name(name).spawn(move || keep_reading(&owned, pauses, &mut read))?;
        Ok(tokens)
    }

    /// Whether `secret` may have numbers of a name.
    pub(crate) fn judge(&self, secret: &[u8], name: &[u8]) -> Verdict {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        let secrets = match &*rows {
            Rows::NotRead => return Verdict::NotRead,
            Rows::NoTable => return Verdict::NoTable,
            Rows::Read(by_name) => str::from_utf8(name).ok().and_then(|name| by_name.get(name)),
        };
        // All of them are compared, each in constant time.
        let is_one = |found, known: &String| found | bool::from(known.as_bytes().ct_eq(secret));
        if secrets.is_some_and(|secrets| secrets.iter().fold(false, is_one)) {
            Verdict::Known
        } else {
            Verdict::Unknown
        }
    }

    fn replace(&self, found: Option<Vec<TinyToken>>) {
        let rows = found.map_or(Rows::NoTable, |found| {
            let mut by_name: HashMap<String, Vec<String>> = HashMap::new();
            for TinyToken { token, name } in found {
                // An empty column is no secret.
                if !token.is_empty() {
                    by_name.entry(name).or_default().push(token);
                }
            }
            Rows::Read(by_name)
        });
        let before = std::mem::replace(&mut *self.rows.write().unwrap_or_else(PoisonError::into_inner), rows);
        // Behind the lock, which each request takes.
        drop(before);
    }

    fn has_rows(&self) -> bool {
        matches!(*self.rows.read().unwrap_or_else(PoisonError::into_inner), Rows::Read(_))
    }

    fn is_without_table(&self) -> bool {
        matches!(*self.rows.read().unwrap_or_else(PoisonError::into_inner), Rows::NoTable)
    }
}

fn keep_reading(tokens: &Weak<TinyTokens>, pauses: Pauses, read: &mut dyn FnMut() -> Reading) {
    let mut is_failing = false;
    loop {
        // Tokio panics where the system has no thread left for the database's client. The next reading may have one.
        let reading = catch_unwind(AssertUnwindSafe(&mut *read)).unwrap_or_else(|_| {
            Err(StoreError::Away { why: "the reading panicked, and said why in the log".to_owned() })
        });
        let Some(tokens) = tokens.upgrade() else { return };
        let pause = match reading {
            // Renamed, or this host of the database has none: whom it kept out must not come in by that.
            Ok(None) if tokens.has_rows() => {
                if !is_failing {
                    warn!(
                        "the table tiny_id_token is gone: the rows that were read last count, until it is back or this server is \
                         started again"
                    );
                }
                is_failing = true;
                pauses.read
            }
            Ok(found) => {
                if is_failing {
                    info!("the rows of tiny_id_token are read again");
                }
                if found.is_none() && !tokens.is_without_table() {
                    info!("there is no table tiny_id_token: at tinyid's paths the server's own tokens count");
                }
                tokens.replace(found);
                is_failing = false;
                pauses.read
            }
            Err(error) => {
                if !is_failing {
                    warn!(%error, "the rows of tiny_id_token can't be read: those that were read last count");
                }
                is_failing = true;
                pauses.failed
            }
        };
        drop(tokens);
        thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(token: &str, name: &str) -> TinyToken {
        TinyToken { token: token.into(), name: name.into() }
    }

    #[test]
    fn a_token_is_good_for_its_name_alone_and_an_empty_one_for_none() {
        let tokens = TinyTokens::default();
        assert_eq!(tokens.judge(b"t", b"orders"), Verdict::NotRead);
        tokens.replace(None);
        assert_eq!(tokens.judge(b"t", b"orders"), Verdict::NoTable);
        tokens.replace(Some(vec![
            row("t", "orders"),
            row("u", "orders"),
            row("", "orders"),
            row("v", "users"),
        ]));
        for (secret, name, verdict) in [
            ("t", "orders", Verdict::Known),
            ("u", "orders", Verdict::Known),
            ("v", "users", Verdict::Known),
            ("v", "orders", Verdict::Unknown),
            ("", "orders", Verdict::Unknown),
            ("t", "", Verdict::Unknown),
            ("t", "others", Verdict::Unknown),
            ("T", "orders", Verdict::Unknown),
        ] {
            assert_eq!(tokens.judge(secret.as_bytes(), name.as_bytes()), verdict, "{secret} {name}");
        }
    }

    #[test]
    fn rows_are_read_again_and_a_failure_keeps_what_was_read() {
        // A reading is handed over once the one before it has been dealt with.
        let (hand, handed) = std::sync::mpsc::sync_channel::<Reading>(0);
        let away = || Err(StoreError::Away { why: "it is away".into() });
        let pauses = Pauses { read: Duration::ZERO, failed: Duration::ZERO };
        let tokens = TinyTokens::follow_at(pauses, move || handed.recv().unwrap_or_else(|_| away())).unwrap();
        let judge = |secret: &str| tokens.judge(secret.as_bytes(), b"orders");
        for _ in 0..2 {
            hand.send(away()).unwrap();
            assert_eq!(judge("old"), Verdict::NotRead);
        }
        hand.send(Ok(Some(vec![row("old", "orders")]))).unwrap();
        for failure in [away(), Ok(None), away(), Ok(None)] {
            hand.send(failure).unwrap();
            hand.send(away()).unwrap();
            assert_eq!((judge("old"), judge("new")), (Verdict::Known, Verdict::Unknown));
        }
        hand.send(Ok(Some(vec![row("new", "orders")]))).unwrap();
        hand.send(away()).unwrap();
        assert_eq!((judge("old"), judge("new")), (Verdict::Unknown, Verdict::Known));
    }

    #[test]
    fn a_reading_that_panics_is_one_that_failed_and_the_next_one_comes_all_the_same() {
        // As where the system has no thread left: `Some` is what is read, `None` panics.
        let (hand, handed) = std::sync::mpsc::sync_channel::<Option<&str>>(0);
        let pauses = Pauses { read: Duration::ZERO, failed: Duration::ZERO };
        let read = move || match handed.recv() {
            Ok(Some(token)) => Ok(Some(vec![row(token, "orders")])),
            Ok(None) => panic!("OS can't spawn worker thread"),
            Err(_) => Err(StoreError::Away { why: "the test is over".into() }),
        };
        let tokens = TinyTokens::follow_at(pauses, read).unwrap();
        for said in [Some("old"), None, Some("new"), None] {
            hand.send(said).expect("nothing is read any more");
        }
        let judge = |secret: &str| tokens.judge(secret.as_bytes(), b"orders");
        assert_eq!((judge("old"), judge("new")), (Verdict::Unknown, Verdict::Known));
    }
}
