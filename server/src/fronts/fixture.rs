//! A server in a folder of its own, and conversations with it without a socket, for the tests of the fronts.

use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio_rustls::rustls::ClientConfig;
use xuid_engine::clock::{Clock, SystemClock};
use xuid_engine::registry::local::sequences::LocalSequences;
use xuid_engine::sequence::store::database::TinyToken;
use xuid_engine::sequence::store::registry::RegistryStore;
use xuid_engine::sequence::store::{Alteration, Ask, Identity, NewSequence, Outcome, Row, Store, StoreError};
use xuid_engine::sequence::{NamePattern, SequenceName, Sequences};
use xuid_engine::{Engine, EngineBuilder, Floor};
use xuid_protocol::Limits as ProtocolLimits;

use crate::config::{ServerTls, Tokens};
use crate::fronts::buffers::{Inbox, Outbox};
use crate::fronts::conversation::{Conversation, Need};
use crate::state::access::AccessRules;
use crate::state::beside::HAS_NONE_LEFT;
use crate::state::sequences::ServedSequences;
use crate::state::server::{Limits, Places, Server};
use crate::state::tiny_tokens::{TinyTokens, Verdict};
use crate::state::unread::UnreadPart;

/// So long may ids take that must come: the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of replies that clients may leave unread.
pub(crate) const MOST_UNREAD: usize = 1 << 40;

/// A runtime in which no thread can be had, neither by `beside` nor for `spawn_blocking`, as where the system has none left.
pub(crate) struct WithoutThreads(Runtime);

pub(crate) fn without_threads() -> WithoutThreads {
    // A stack larger than all addresses that there are.
    WithoutThreads(Builder::new_current_thread().enable_all().thread_stack_size(1 << 47).build().unwrap())
}

impl WithoutThreads {
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        HAS_NONE_LEFT.set(true);
        let done = self.0.block_on(work);
        HAS_NONE_LEFT.set(false);
        done
    }
}

/// A server in a folder of its own, with ten years declared unused so that nothing is ever short of `any` ids.
pub(crate) struct Home {
    pub(crate) server: Arc<Server>,
    folder: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new(tokens: Tokens) -> Self {
        Self::of(tokens, |engine| engine)
    }

    /// One whose ids are opaque.
    pub(crate) fn opaque() -> Self {
        let veil = "1b1a1918131211100b0a090803020100".parse().unwrap();
        Self::of(Tokens::default(), |engine| engine.opaque_key(veil))
    }

    /// Until what comes back is dropped, more waits in other connections for clients that do not read than there may be.
    pub(crate) fn with_too_much_unread(&self) -> UnreadPart {
        let mut part = UnreadPart::new(Arc::clone(&self.server.unread));
        part.set(MOST_UNREAD + 1);
        part
    }

    /// One that keeps sequences, `orders` among them.
    pub(crate) fn with_sequences(tokens: Tokens) -> Self {
        Self::with_sequences_by(Arc::new(SystemClock), tokens)
    }

    /// One whose sequences go by that clock.
    pub(crate) fn with_sequences_by(clock: Arc<dyn Clock>, tokens: Tokens) -> Self {
        Self::with_store(clock, tokens, |store| Box::new(store))
    }

    /// One whose store gives an answer for each word only, with what it was asked for. Without the sender it gives all.
    pub(crate) fn with_watched_store() -> (Self, Questions, mpsc::Sender<()>) {
        let asked = Questions::default();
        let (may, leave) = mpsc::channel();
        let (notes, clock) = (Arc::clone(&asked), Arc::new(SystemClock));
        let home = Self::with_store(clock, Tokens::default(), |store| {
            Box::new(WatchedStore { store, asked: notes, leave })
        });
        (home, asked, may)
    }

    /// One whose sequences' store is another one, before the registry's.
    fn with_store(
        clock: Arc<dyn Clock>,
        tokens: Tokens,
        store: impl FnOnce(RegistryStore) -> Box<dyn Store>,
    ) -> Self {
        let Self { server, folder } = Self::new(tokens);
        let records = || Box::new(LocalSequences::open_or_create(folder.path(), None).unwrap());
        let store = store(RegistryStore::new(records()));
        let builder = Sequences::builder(store).records(records()).data_dir(folder.path()).clock(clock);
        let all = builder.create(["auto:*"].map(NamePattern::new)).build().unwrap();
        all.create(&"orders".parse().unwrap(), NewSequence::default()).wait().unwrap();
        let sequences = ServedSequences { all, step: 1_000, tiny_tokens: None };
        let server = Arc::into_inner(server).unwrap().with_sequences(Some(sequences));
        Self { server: Arc::new(server), folder }
    }

    /// The same with this row of tinyid's tokens.
    pub(crate) fn with_tiny_token(self, row: TinyToken) -> Self {
        let Self { server, folder } = self;
        let mut server = Arc::into_inner(server).unwrap();
        let tokens = TinyTokens::follow(move || Ok(Some(vec![row.clone()]))).unwrap();
        while tokens.judge(b"", b"") == Verdict::NotRead {
            std::thread::yield_now();
        }
        server.sequences.as_mut().unwrap().tiny_tokens = Some(tokens);
        Self { server: Arc::new(server), folder }
    }

    /// The same within TLS, and what a client trusts.
    pub(crate) fn within_tls(self) -> (Self, Arc<ClientConfig>) {
        let Self { server, folder } = self;
        let mut server = Arc::into_inner(server).unwrap();
        let (tls, trusted) = ServerTls::self_signed();
        server.access = AccessRules::new(Tokens::default(), Some(tls));
        (Self { server: Arc::new(server), folder }, trusted)
    }

    /// One for all tests that only ask.
    pub(crate) fn shared() -> Arc<Server> {
        static HOME: OnceLock<Home> = OnceLock::new();
        Arc::clone(&HOME.get_or_init(|| Self::new(Tokens::default())).server)
    }

    fn of(tokens: Tokens, configured: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let decade = Duration::from_hours(10 * 365 * 24);
        let engine =
            Engine::builder().data_dir(folder.path()).floor(Floor::Epoch).max_age(decade).backfill(decade);
        let protocol = ProtocolLimits::default();
        let limits = Limits { wait: PATIENCE, unread: MOST_UNREAD, connections: 1, protocol };
        let places = Places {
            listen: "127.0.0.1:7654".parse().unwrap(),
            admin: Some("127.0.0.1:7655".parse().unwrap()),
            resp: None,
            http: None,
        };
        let server =
            Server::new(configured(engine).build().unwrap(), limits, AccessRules::new(tokens, None), places);
        Self { server: Arc::new(server), folder }
    }
}

/// What a store was asked for, in its order.
pub(crate) type Questions = Arc<Mutex<Vec<String>>>;

/// A store that notes what it is asked for, and waits for leave before it answers.
struct WatchedStore {
    store: RegistryStore,
    asked: Questions,
    /// A word for each answer; without a sender all may go.
    leave: mpsc::Receiver<()>,
}

impl WatchedStore {
    fn note(&mut self, what: &str) {
        self.asked.lock().unwrap().push(what.to_owned());
        let _ = self.leave.recv();
    }
}

impl Store for WatchedStore {
    fn describe(&self) -> String {
        self.store.describe()
    }

    fn may_go_back(&self) -> bool {
        self.store.may_go_back()
    }

    fn identity(&mut self) -> Result<Identity, StoreError> {
        self.store.identity()
    }

    fn grant(&mut self, asks: &[Ask], out: &mut Vec<Outcome>) -> Option<Identity> {
        self.store.grant(asks, out)
    }

    fn read(&mut self, name: &SequenceName) -> Result<Row, StoreError> {
        self.note(name.as_str());
        self.store.read(name)
    }

    fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Row>, StoreError> {
        self.note(prefix);
        self.store.list(prefix, after, limit)
    }

    fn create(&mut self, name: &SequenceName, new: &NewSequence) -> Result<Row, StoreError> {
        self.store.create(name, new)
    }

    fn alter(&mut self, name: &SequenceName, alteration: &Alteration) -> Result<Row, StoreError> {
        self.note(name.as_str());
        self.store.alter(name, alteration)
    }

    fn raise(&mut self, name: &SequenceName, least: u64) -> Result<Row, StoreError> {
        self.store.raise(name, least)
    }

    fn record_identity(&mut self) -> Result<Identity, StoreError> {
        self.store.record_identity()
    }
}

/// Looks whether a token's limit gets back what its clients waited for in vain: one that leaves, and one that is refused.
/// `waiting` begins a conversation of the token `few` that waits for [`TWICE_FEW`] ids.
pub(crate) fn are_given_back<S: Conversation>(waiting: impl Fn(&Home) -> Talk<S>) {
    let few = format!("[token.few]\nsecrets = [\"few\"]\nids_per_second = {}\n", TWICE_FEW / 2);
    let home = Home::new(Tokens::parse(&few).unwrap());
    drop(waiting(&home));
    let mut talk = waiting(&home);
    home.server.engine.shutdown();
    talk.settle();
    assert!(talk.session.client_mut().charge(TWICE_FEW).is_ok());
    assert!(talk.session.client_mut().charge(TWICE_FEW).is_err(), "twice its limit is all there is");
}

/// More fresh ids than the last ten milliseconds have, and twice a second's limit: as many as a limit lets out at once.
pub(crate) const TWICE_FEW: u32 = 130_000;

/// A client and its session, with buffers in between.
pub(crate) struct Talk<S> {
    pub(crate) session: S,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
}

impl<S: Conversation> Talk<S> {
    pub(crate) fn new(session: S) -> Self {
        Self { session, inbox: Inbox::default(), outbox: Outbox::default() }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Need {
        self.inbox.room(bytes.len()).extend_from_slice(bytes);
        self.session.receive(&mut self.inbox, &mut self.outbox, usize::MAX)
    }

    /// Waits until nothing waits any more.
    pub(crate) fn settle(&mut self) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            while self.session.in_flight() > 0 {
                let done = self.session.waited().await;
                self.session.finish(done, &mut self.outbox);
                self.session.receive(&mut self.inbox, &mut self.outbox, usize::MAX);
            }
        });
    }

    /// What so many bytes are answered with, waiting included, where that is text.
    pub(crate) fn say(&mut self, bytes: &[u8]) -> String {
        self.send(bytes);
        self.settle();
        let said = String::from_utf8(self.outbox.rest().to_vec()).unwrap();
        self.outbox.consume(self.outbox.len());
        said
    }
}
