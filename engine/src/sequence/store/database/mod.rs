//! Stores in a database: a table of ours, or the one of a running Leaf or tinyid deployment.
//!
//! ```text
//!   DatabaseStore<D>    the port: one connection, its deadlines, what a failure means
//!     |        \
//!   Dialect    ClientThread      PostgreSQL's or MySQL's statements | the thread of the client
//!     |
//!   Shape      xuid, leaf, tinyid: which columns, and whether the mark is inclusive
//! ```
//!
//! The store connects when it is first asked, to the first host that can be written to, and looks there at what makes
//! commits durable ([`Check`]) and at the table. It does so again after each loss of the connection. Settings, rights and
//! traps are described in `docs/sequence-stores.md`.
//!
//! Everything here blocks, on a thread of an asynchronous runtime, too; the client has a thread of its own.
//!
//! # Invariants
//! - I1 one grant is one transaction: the identity, the marks before and after and the settings are read in it;
//! - I2 a connection on which an answer is missing is given up: what was asked on it may yet be done, and no later
//!   answer is mistaken for the missing one;
//! - I3 every call ends within the deadlines of [`DatabaseOptions`], whatever the network does;
//! - I4 nothing but the columns of the shape is written, and no row is deleted;
//! - I5 a name that is made while a fence says where new ones begin begins there, or is in the fence's next list.

mod beside;
mod check;
mod control;
mod dialect;
mod failure;
mod options;
mod table;
mod tiny_token;
mod url;

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

pub use beside::Beside;
pub use check::{Check, Report};
pub use control::{Initialised, check, init, tables_beside, tiny_tokens};
pub use options::DatabaseOptions;
pub use table::{ParseTableError, Shape, Table};
pub use tiny_token::TinyToken;
pub use url::{DatabaseUrl, Kind, ParseDatabaseUrlError};

use self::dialect::{Created, Dialect, Granted, Writes};
use self::failure::{Denied, Failure};
use self::table::FoundRow;
use crate::clock::boot_ns;
use crate::registry::sequences::NewNames;
use crate::sequence::name::SequenceName;
use crate::sequence::store::{
    Alteration, Ask, HIGHEST, Identity, MOST_ASKS, NewSequence, Outcome, Row, Store, StoreError, check_last,
};
use crate::sys::client_thread::ClientThread;
use crate::sys::deferred_log;

/// Rows that are looked through at once.
const PAGE: usize = 2_000;

/// How often a name is made anew since a fence said meanwhile where new ones begin.
const CREATE_TRIES: u32 = 3;

/// A connection that was not used for so long is tried before it is needed, so that its loss is no unknown outcome.
const IDLE_NS: u64 = 30_000_000_000;

/// A store in the database of a URL. Nothing is connected yet.
///
/// # Errors
/// [`StoreError::Refused`] for a URL that the database's client does not understand, for a kind of database that this
/// build has no client of, and if the client's thread cannot be started.
pub fn open(url: &DatabaseUrl, options: &DatabaseOptions) -> Result<Box<dyn Store>, StoreError> {
    open_database(url, options).map(|store| -> Box<dyn Store> { store })
}

/// What the commands need of a store beside the port.
trait Database: Store {
    /// Connects, and tells what was found; what is unfit is told, too.
    fn report(&mut self) -> Result<Report, StoreError>;

    /// Makes the tables that are missing; which ones.
    fn make_tables(&mut self) -> Result<Vec<String>, StoreError>;

    /// Writes the store's present identity, which is no fence.
    fn note_identity(&mut self) -> Result<Identity, StoreError>;

    /// Which tables share `xuid_store` with the one of the options.
    fn beside(&mut self) -> Result<Beside, StoreError>;

    /// Tinyid's tokens, whatever the database's settings are.
    fn tiny_tokens(&mut self) -> Result<Option<Vec<TinyToken>>, StoreError>;
}

fn open_database(
    url: &DatabaseUrl,
    options: &DatabaseOptions,
) -> Result<Box<dyn Database + Send>, StoreError> {
    match url.kind() {
        #[cfg(feature = "postgres")]
        Kind::Postgres => Ok(Box::new(DatabaseStore::<postgres::Postgres>::new(url, options)?)),
        #[cfg(feature = "mysql")]
        Kind::MySql => Ok(Box::new(DatabaseStore::<mysql::MySql>::new(url, options)?)),
        #[allow(unreachable_patterns, reason = "reached where a feature is off")]
        _ => Err(StoreError::Refused { why: format!("this build has no client for {url}") }),
    }
}

/// The port on one database.
struct DatabaseStore<D: Dialect> {
    // Before the client's thread, which it needs to end.
    session: Option<Session<D>>,
    client: ClientThread,
    url: DatabaseUrl,
    options: DatabaseOptions,
    /// Names whose rows could not be had when they were asked for last, since another program has them locked; the one that was
    /// tried last behind the others.
    locked: VecDeque<SequenceName>,
}

/// A connection that was checked.
struct Session<D: Dialect> {
    connection: D::Connection,
    report: Report,
    /// Boot time of the last answer.
    used_at: u64,
}

impl<D: Dialect> DatabaseStore<D> {
    fn new(url: &DatabaseUrl, options: &DatabaseOptions) -> Result<Self, StoreError> {
        for host in url.hosts() {
            D::check_url(&url.of_host(host)).map_err(|why| StoreError::Refused { why })?;
        }
        let client = ClientThread::start(D::THREAD)
            .map_err(|error| StoreError::Refused { why: format!("failed to start a thread: {error}") })?;
        let (url, options) = (url.clone(), options.clone());
        Ok(Self { session: None, client, url, options, locked: VecDeque::new() })
    }

    /// The connection: the one there is, or a new one to the first host that will do.
    fn session(&mut self) -> Result<&mut Session<D>, StoreError> {
        if self.session.is_none() {
            let session = self.connect()?;
            if let Some(problem) = session.report.problem() {
                if !self.options.allow_unsafe {
                    return Err(StoreError::Refused { why: problem });
                }
                deferred_log::log(move || {
                    tracing::warn!(problem, "ids are taken from a database that can lose commits");
                });
            }
            self.session = Some(session);
        }
        self.session.as_mut().ok_or(StoreError::Away { why: String::new() })
    }

    /// Walks the hosts.
    fn connect(&self) -> Result<Session<D>, StoreError> {
        let mut reasons = Vec::new();
        for host in self.url.hosts() {
            let url = self.url.of_host(host);
            let connected = self.client.wait(self.options.connect, D::connect(&url, host, &self.options));
            match connected {
                Some(Ok((connection, report))) => {
                    return Ok(Session { connection, report, used_at: boot_ns() });
                }
                Some(Err(Denied::Refused { why })) => return Err(StoreError::Refused { why }),
                Some(Err(Denied::Next { why })) => reasons.push(format!("{host}: {why}")),
                None => reasons.push(format!("{host}: no answer within {:?}", self.options.connect)),
            }
        }
        Err(StoreError::Away { why: reasons.join("; ") })
    }

    /// Does something on the connection. A failure after which it is of no use ends it.
    fn run<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut D::Connection) -> Result<T, Failure>,
    ) -> Result<T, CallError> {
        let limit = self.options.statement;
        let Session { .. } = self.session().map_err(CallError::NotConnected)?;
        let Some(session) = self.session.as_mut() else {
            return Err(CallError::NotConnected(StoreError::Away { why: String::new() }));
        };
        let failure = match self.client.wait(limit, work(&mut session.connection)) {
            Some(Ok(value)) => {
                session.used_at = boot_ns();
                return Ok(value);
            }
            Some(Err(failure)) => failure,
            None => Failure::Lost { why: format!("no answer within {limit:?}") },
        };
        if failure.ends_connection() {
            self.session = None;
        }
        Err(CallError::Failed(failure))
    }

    /// One transaction for all asks.
    fn grant_together(&mut self, asks: &[Ask]) -> Result<Granted, CallError> {
        let granted = self.run(async |connection| D::grant(connection, asks).await)?;
        let checked = self.session.as_ref().map(|session| &session.report.identity.current);
        if checked == Some(&granted.identity.current) {
            return Ok(granted);
        }
        // A proxy moved the connection to a host that was not checked. What was granted there is waste.
        self.session = None;
        let why = format!("{} answered, and that host was not checked", granted.identity.current);
        Err(CallError::Failed(Failure::Lost { why }))
    }

    /// One transaction for each ask, so that a row that cannot be had holds up no other. Those whose turn does not come
    /// in time were not reached.
    fn grant_singly(&mut self, asks: &[Ask], out: &mut Vec<Outcome>) -> Option<Identity> {
        let (begun, limit) = (boot_ns(), self.options.statement);
        let mut identity = None;
        for ask in asks {
            if Duration::from_nanos(boot_ns().saturating_sub(begun)) > limit {
                out.push(Outcome::Away { why: "others took too long".into() });
                continue;
            }
            let granted = self.grant_together(std::slice::from_ref(ask));
            let is_locked = matches!(&granted, Err(CallError::Failed(failure)) if !failure.ends_connection());
            self.note_locked(&ask.name, is_locked);
            match granted {
                // Of another identity than those before it: one call tells of one store.
                Ok(granted) if identity.as_ref().is_some_and(|known| *known != granted.identity) => {
                    out.push(Outcome::Unknown { why: "the store's identity changed meanwhile".into() });
                }
                Ok(granted) => {
                    out.extend(granted.outcomes);
                    identity = Some(granted.identity);
                }
                Err(error) => out.push(error.outcome()),
            }
        }
        identity
    }

    /// Asks for names whose rows were not locked a moment ago.
    fn grant_free(&mut self, asks: &[Ask], out: &mut Vec<Outcome>) -> Option<Identity> {
        match self.grant_together(asks) {
            Ok(granted) => {
                out.extend(granted.outcomes);
                Some(granted.identity)
            }
            Err(error) => {
                if let CallError::Failed(failure) = &error
                    && !failure.ends_connection()
                {
                    if asks.len() > 1 {
                        // One name may have spoilt it for the others.
                        return self.grant_singly(asks, out);
                    }
                    for ask in asks {
                        self.note_locked(&ask.name, true);
                    }
                }
                let outcome = error.outcome();
                out.extend(asks.iter().map(|_| outcome.clone()));
                None
            }
        }
    }

    fn note_locked(&mut self, name: &SequenceName, is_locked: bool) {
        self.locked.retain(|known| known != name);
        if is_locked {
            if self.locked.len() >= MOST_ASKS {
                self.locked.pop_front();
            }
            self.locked.push_back(name.clone());
        }
    }

    /// A call that reads or changes one row.
    fn on_row(
        &mut self,
        name: &SequenceName,
        work: impl AsyncFnOnce(&mut D::Connection) -> Result<Option<Row>, Failure>,
    ) -> Result<Row, StoreError> {
        match self.run(work) {
            Ok(Some(row)) => Ok(row),
            Ok(None) => Err(StoreError::Absent { similar: self.similar(name) }),
            Err(error) => Err(error.into()),
        }
    }

    /// The row in which a fence said where new names begin.
    fn said_of_new_names(&mut self) -> Result<Option<Row>, StoreError> {
        let found = self.run(async |connection| D::read(connection, &SequenceName::of_new_names()).await);
        found.map_err(|error| {
            refused_with(error, |why| {
                format!("the row '@new' of the table, in which a fence said where new names begin: {why}")
            })
        })
    }

    /// Another spelling of a name that the table has; a failure to look is none.
    fn similar(&mut self, name: &SequenceName) -> Option<String> {
        self.run(async |connection| D::similar(connection, name).await).ok().flatten()
    }
}

/// Why a call failed.
enum CallError {
    NotConnected(StoreError),
    Failed(Failure),
}

impl CallError {
    fn outcome(self) -> Outcome {
        match self.into() {
            StoreError::Unknown { why } => Outcome::Unknown { why },
            StoreError::Refused { why } | StoreError::Away { why } => Outcome::Away { why },
            StoreError::Absent { .. } => Outcome::Absent,
            StoreError::Closed { why } => Outcome::Refused { why },
            StoreError::Exists(row) => Outcome::Refused { why: format!("there is {}", row.name) },
        }
    }
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NotConnected(error) => error,
            CallError::Failed(failure) => failure.into(),
        }
    }
}

/// The error of a call; a refusal in other words.
fn refused_with(error: CallError, words: impl FnOnce(String) -> String) -> StoreError {
    match error.into() {
        StoreError::Refused { why } => StoreError::Refused { why: words(why) },
        other => other,
    }
}

impl<D: Dialect> Store for DatabaseStore<D> {
    fn describe(&self) -> String {
        format!("{} ({})", self.url, self.options.table)
    }

    fn place(&self) -> String {
        self.url.place(&self.options.table)
    }

    fn may_go_back(&self) -> bool {
        true
    }

    fn identity(&mut self) -> Result<Identity, StoreError> {
        Ok(self.run(async |connection| D::identity(connection).await)?)
    }

    fn grant(&mut self, asks: &[Ask], out: &mut Vec<Outcome>) -> Option<Identity> {
        debug_assert!(asks.len() <= MOST_ASKS, "{} asks in one call", asks.len());
        let is_free = |ask: &Ask| !self.locked.contains(&ask.name);
        let free: Vec<Ask> = asks.iter().filter(|ask| is_free(ask)).cloned().collect();
        if free.len() == asks.len() {
            return self.grant_free(asks, out);
        }
        let mut found = Vec::with_capacity(asks.len());
        let mut identity = if free.is_empty() { None } else { self.grant_free(&free, &mut found) };
        let mut outcomes: HashMap<_, _> = free.into_iter().map(|ask| ask.name).zip(found).collect();
        // A try waits for as long as another program has the row: for one of them in a call.
        let first = self.locked.iter().find_map(|name| asks.iter().find(|ask| ask.name == *name));
        // Not where the connection has just been lost, for the others: connecting may take as long once more.
        let is_there = outcomes.is_empty() || self.session.is_some();
        if let Some(ask) = first.filter(|ask| is_there && !outcomes.contains_key(&ask.name)) {
            let mut found = Vec::new();
            let granted = self.grant_singly(std::slice::from_ref(ask), &mut found);
            if identity.is_some() && granted.is_some() && identity != granted {
                found = vec![Outcome::Unknown { why: "the store's identity changed meanwhile".into() }];
            }
            identity = identity.or(granted);
            outcomes.extend(found.pop().map(|outcome| (ask.name.clone(), outcome)));
        }
        let not_tried = || Outcome::Away { why: "its row was locked, and so is another one's".into() };
        out.extend(asks.iter().map(|ask| outcomes.remove(&ask.name).unwrap_or_else(not_tried)));
        identity
    }

    fn read(&mut self, name: &SequenceName) -> Result<Row, StoreError> {
        self.on_row(name, async |connection| D::read(connection, name).await)
    }

    fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Row>, StoreError> {
        let shape = self.options.table.shape;
        let rows = self.run(async |connection| {
            let (mut rows, mut after) = (Vec::new(), after.to_owned());
            while rows.len() < limit {
                let wanted = limit - rows.len();
                let found = D::list(connection, prefix, &after, wanted).await?;
                // A row that cannot be used is not listed; its name says why when it is asked for. Nor is what is no sequence.
                let is_one = |row: &&FoundRow| SequenceName::new(&row.name).is_ok();
                rows.extend(found.iter().filter(is_one).filter_map(|row| row.row(shape).ok()));
                match found.into_iter().nth(wanted - 1) {
                    Some(last) => after = last.name,
                    None => break,
                }
            }
            Ok(rows)
        });
        Ok(rows?)
    }

    fn unusable(&mut self) -> Result<Option<(SequenceName, String)>, StoreError> {
        let shape = self.options.table.shape;
        // A name that none can have is nobody's here.
        let reason = |row: &FoundRow| Some((SequenceName::new(&row.name).ok()?, row.row(shape).err()?));
        let mut after = String::new();
        loop {
            let found = self.run(async |connection| D::list(connection, "", &after, PAGE).await)?;
            if let Some(unusable) = found.iter().find_map(reason) {
                return Ok(Some(unusable));
            }
            match found.into_iter().nth(PAGE - 1) {
                Some(last) => after = last.name,
                None => return Ok(None),
            }
        }
    }

    fn create(&mut self, name: &SequenceName, new: &NewSequence) -> Result<Row, StoreError> {
        self.options.table.shape.check_new(new)?;
        for _ in 0..CREATE_TRIES {
            let least = self.said_of_new_names()?.map_or(0, |row| row.next.min(HIGHEST));
            if let Err(refusal) = check_last(&new.settings, least) {
                // One that is there begins where it does.
                return match self.read(name) {
                    Ok(row) => Err(StoreError::Exists(Box::new(row))),
                    Err(StoreError::Absent { .. }) => Err(refusal),
                    Err(error) => Err(error),
                };
            }
            let new = NewSequence { start: new.start.max(least), ..new.clone() };
            match self.run(async |connection| D::create(connection, name, &new).await)? {
                Created::New(row) => return Ok(row),
                Created::There(row) => return Err(StoreError::Exists(Box::new(row))),
                // It says where this one begins, too.
                Created::BelowAFence => {}
            }
        }
        Err(StoreError::Away { why: format!("{CREATE_TRIES} fences in a row said where new names begin") })
    }

    fn alter(&mut self, name: &SequenceName, alteration: &Alteration) -> Result<Row, StoreError> {
        self.options.table.shape.check_alteration(alteration)?;
        self.on_row(name, async |connection| D::alter(connection, name, alteration).await)
    }

    fn raise(&mut self, name: &SequenceName, least: u64) -> Result<Row, StoreError> {
        self.on_row(name, async |connection| D::raise(connection, name, least).await)
    }

    /// A fence of a database that did not go back, and of one that did, look alike.
    fn new_names(&mut self) -> Result<NewNames, StoreError> {
        let found = self.said_of_new_names()?;
        Ok(NewNames { are_closed: false, least: found.map_or(1, |row| row.next) })
    }

    /// In a row of its own, which rises as each mark does.
    fn allow_new(&mut self, _: NewNames, least: u64) -> Result<(), StoreError> {
        if least <= 1 {
            return Ok(());
        }
        let (name, least) = (SequenceName::of_new_names(), least.min(HIGHEST));
        let new = NewSequence { start: least, ..NewSequence::default() };
        let told = self.run(async |connection| {
            if D::raise(connection, &name, least).await?.is_none()
                && !matches!(D::create(connection, &name, &new).await?, Created::New(_))
            {
                // Another fence made it meanwhile.
                D::raise(connection, &name, least).await?;
            }
            D::wait_for_new(connection).await
        });
        told.map_err(|error| {
            refused_with(error, |why| {
                format!(
                    "that new names begin at {least} could not be noted in the row '@new' of the table: {why}; needed are INSERT \
                     and UPDATE on the table as a whole, and that it takes that name. If no sequence is missing, --new-start 1 needs no row"
                )
            })
        })
    }

    fn record_identity(&mut self) -> Result<Identity, StoreError> {
        let writes = Writes::Fence { after: None };
        Ok(self.run(async |connection| D::record_identity(connection, writes).await)?)
    }

    fn record_identity_after(&mut self, fenced: &str) -> Result<Identity, StoreError> {
        let writes = Writes::Fence { after: fenced.parse().ok().filter(|after: &f64| after.is_finite()) };
        Ok(self.run(async |connection| D::record_identity(connection, writes).await)?)
    }

    fn was_silent(&self) -> bool {
        // Each other failure ends it.
        self.session.is_none()
    }

    fn maintain(&mut self) {
        let is_idle = |session: &Session<D>| boot_ns().saturating_sub(session.used_at) > IDLE_NS;
        if self.session.as_ref().is_some_and(is_idle) {
            // A failure ends the connection, which is all that is wanted of it.
            let _ = self.run(async |connection| D::identity(connection).await);
        }
    }
}

impl<D: Dialect> Database for DatabaseStore<D> {
    fn report(&mut self) -> Result<Report, StoreError> {
        Ok(self.connect()?.report)
    }

    fn note_identity(&mut self) -> Result<Identity, StoreError> {
        Ok(self.run(async |connection| D::record_identity(connection, Writes::Identity).await)?)
    }

    fn make_tables(&mut self) -> Result<Vec<String>, StoreError> {
        let mut reasons = Vec::new();
        for host in self.url.hosts() {
            let (url, options) = (self.url.of_host(host), &self.options);
            match self.client.wait(2 * options.connect, D::make_tables(&url, options)) {
                Some(Ok(made)) => return Ok(made),
                Some(Err(Denied::Refused { why })) => return Err(StoreError::Refused { why }),
                Some(Err(Denied::Next { why })) => reasons.push(format!("{host}: {why}")),
                None => reasons.push(format!("{host}: no answer")),
            }
        }
        Err(StoreError::Away { why: reasons.join("; ") })
    }

    fn beside(&mut self) -> Result<Beside, StoreError> {
        Ok(self.run(async |connection| D::beside(connection).await)?)
    }

    fn tiny_tokens(&mut self) -> Result<Option<Vec<TinyToken>>, StoreError> {
        let Session { mut connection, .. } = self.connect()?;
        let limit = self.options.statement;
        let read = self.client.wait(limit, D::tiny_tokens(&mut connection));
        let why = || format!("no answer within {limit:?}");
        read.ok_or_else(|| StoreError::Away { why: why() })?.map_err(StoreError::from)
    }
}

#[cfg(test)]
mod tests;
