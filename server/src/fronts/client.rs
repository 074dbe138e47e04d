//! What every front keeps of a client: what it may take, what it has taken, and what is to be counted of that.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use xuid_engine::sequence::{Demand, Numbers, PendingNumbers, Sequence, SequenceName};
use xuid_engine::{Caller, Face, Pending, Run};
use xuid_protocol::{Limits, Op, Order, Refusal, Status};

use crate::crash_points;
use crate::fronts::buffers::Outbox;
use crate::fronts::names::{Names, may_pass, similar};
use crate::fronts::refusals::{above_limit, of_ids, of_numbers};
use crate::state::access::{Admitted, ClientRights};
use crate::state::id_limit::{Allowance, Charged};
use crate::state::server::Server;
use crate::state::traffic::Tally;
use crate::state::unread::IDS_A_ROW;

/// How long a request waits at least where its protocol has no word for a wait, whatever the server's own `wait`: its client takes
/// an error for the end. A sequence that is created by its first use needs two commits of its store.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// Runs for which room is kept. Ids are mostly whole ticks: a reply that needs more of them is rare.
pub(crate) const RUNS_KEPT: usize = 256;

/// One client of one front.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) server: Arc<Server>,
    pub(crate) limits: Limits,
    /// It has shown that it speaks the front's protocol, and may.
    pub(crate) was_greeted: bool,
    /// Its token is none of ours, which [`take_rejection`](Self::take_rejection) has not said yet.
    was_rejected: bool,
    /// Where it comes from, if that is known.
    address: Option<IpAddr>,
    /// What its token and its address may take.
    pub(crate) allowance: Allowance,
    /// What its token may do with sequences.
    pub(crate) rights: ClientRights,
    /// What the request in hand was charged, which is given back if that panics.
    pub(crate) charged: Charged,
    /// Its share in the ids there are, once a request had to wait.
    share: Option<Caller>,
    /// Ids for the request in hand.
    pub(crate) ids: Vec<Run>,
    /// The same of sequences, and what it knows of their names.
    pub(crate) numbers: Vec<Numbers>,
    pub(crate) names: Names,
    pub(crate) tally: Tally,
    /// When the input was read, as far as it was told: for how long requests take.
    pub(crate) came: Option<Instant>,
}

impl Client {
    /// One that has not said anything yet, from this address.
    pub(crate) fn new(server: Arc<Server>, address: Option<IpAddr>) -> Self {
        Self {
            limits: server.limits.protocol,
            server,
            was_greeted: false,
            was_rejected: false,
            address,
            allowance: Allowance::default(),
            rights: ClientRights::default(),
            charged: Charged::default(),
            share: None,
            ids: Vec::new(),
            numbers: Vec::new(),
            names: Names::default(),
            tally: Tally::default(),
            came: None,
        }
    }

    /// From now on it may what this says.
    pub(crate) fn let_in(&mut self, admitted: Admitted) {
        let Admitted { token, rights } = admitted;
        self.allowance = self.server.access.allowance(token.map(|(_, limit)| limit), self.address);
        self.rights = rights;
    }

    /// Takes ids for the request in hand. They are in [`ids`](Self::ids) now or, if it may wait for so long, come later; then
    /// it says what was charged for them.
    pub(crate) fn take_ids(
        &mut self,
        count: u32,
        order: Order,
        wait: Duration,
    ) -> Result<Option<(Charged, Pending)>, Refusal> {
        let charged = self.charge(count)?;
        self.charged = charged;
        let tried = self.server.engine.try_runs(count, order, &mut self.ids);
        self.charged = Charged::default();
        match tried {
            Ok(()) => Ok(None),
            Err(error) if error.is_retryable() && !wait.is_zero() => {
                let share = self.share.get_or_insert_default();
                Ok(Some((charged, self.server.engine.request(count, order, wait).on_behalf_of(share))))
            }
            Err(error) => {
                self.allowance.give_back(charged);
                Err(of_ids(&self.server, error))
            }
        }
    }

    /// The same of numbers of a sequence, into [`numbers`](Self::numbers).
    pub(crate) fn take_numbers(
        &mut self,
        sequence: &Sequence,
        demand: Demand,
        wait: Duration,
    ) -> Result<Option<(Charged, PendingNumbers)>, Refusal> {
        let charged = self.charge(demand.count())?;
        self.charged = charged;
        let tried = sequence.try_runs(demand, &mut self.numbers);
        self.charged = Charged::default();
        match tried {
            Ok(()) => Ok(None),
            Err(error) if may_pass(error) && !wait.is_zero() => {
                Ok(Some((charged, sequence.request(demand, wait))))
            }
            Err(error) => {
                self.allowance.give_back(charged);
                Err(of_numbers(error, sequence.name()))
            }
        }
    }

    /// How long a request waits whose protocol has no word for it.
    pub(crate) fn default_wait(&self) -> Duration {
        self.server.limits.wait.max(LEAST_WAIT)
    }

    /// Counts ids against the limits of its token and its address, as far as there are any.
    pub(crate) fn charge(&mut self, count: u32) -> Result<Charged, Refusal> {
        self.allowance.take(count).map_err(|above| {
            self.tally.limited(above.by);
            above_limit(above, count)
        })
    }

    /// Whether so many may be answered, whatever others have not read: one by one they take room.
    pub(crate) fn check_unread(&self, op: Op, count: u32) -> Result<(), Refusal> {
        match op {
            Op::Array | Op::SeqArray => self.server.unread.check(count),
            // Of opaque ids each is a run.
            Op::Runs if self.server.genesis.layout.face() == Face::Opaque => self.server.unread.check(count),
            Op::SeqList => self.server.unread.check(count.saturating_mul(IDS_A_ROW)),
            _ => Ok(()),
        }
    }

    /// The store has no sequence of that name: it is asked which one was meant.
    pub(crate) fn look_for_similar(
        &mut self,
        name: &SequenceName,
    ) -> Option<impl Future<Output = Refusal> + Send + use<>> {
        self.names.was_unknown();
        let sequences = self.server.sequences.as_ref()?;
        Some(similar(sequences.all.clone(), name.clone()))
    }

    /// It is told why it does not get what it asked for.
    pub(crate) fn refused(&mut self, status: Status) {
        self.tally.error(status);
        self.was_rejected |= status == Status::UNAUTHENTICATED;
    }

    /// Whether its token was refused, said once.
    pub(crate) fn take_rejection(&mut self) -> bool {
        std::mem::take(&mut self.was_rejected)
    }

    /// What it is told whose request made us panic. A front calls its requests by `what`.
    #[cold]
    pub(crate) fn panicked(&mut self, what: &str) -> Refusal {
        self.ids.clear();
        self.numbers.clear();
        let charged = std::mem::take(&mut self.charged);
        self.allowance.give_back(charged);
        self.server.traffic.panicked();
        let text = format!(
            "the server failed on this {what}, and said why in its log: try again, and report it if it stays"
        );
        Refusal::new(Status::INTERNAL, text)
    }

    /// Adds up what was counted, behind requests that were read.
    pub(crate) fn received(&mut self, outbox: &Outbox) {
        self.add_up();
        // Also where no ids came: the engine may have gathered many runs before it gave them back.
        self.ids.shrink_to(RUNS_KEPT);
        self.numbers.shrink_to(RUNS_KEPT);
        if let Some(share) = &self.share {
            // What it has no room for is others' meanwhile, and not older when it comes than it was asked for.
            share.set_pause(outbox.is_high());
        }
    }

    /// The same behind requests that waited.
    pub(crate) fn add_up(&mut self) {
        self.server.traffic.add(&mut self.tally);
        crash_points::settle();
    }

    /// The replies so far were written at this time.
    pub(crate) fn written_at(&mut self, now: Instant) {
        self.server.traffic.time(&mut self.tally, self.came.unwrap_or(now), now);
    }
}

/// What was counted last is not lost with the connection.
impl Drop for Client {
    fn drop(&mut self) {
        self.server.traffic.add(&mut self.tally);
    }
}

/// Takes one number for each of `count` requests, with one take, else one by one as far as there are some. Returns for how many
/// there are; none after a panic: the request that is tried by itself answers for it, and what was taken until then is spent.
pub(crate) fn take_at_hand(sequence: &Sequence, count: usize, numbers: &mut Vec<Numbers>) -> usize {
    let taken = catch_unwind(AssertUnwindSafe(|| {
        if sequence.try_runs(Demand::ordered(count as u32), numbers).is_ok() {
            return count;
        }
        let one = || sequence.try_runs(Demand::ordered(1), numbers).is_ok();
        std::iter::repeat_with(one).take(count).take_while(|is_taken| *is_taken).count()
    }));
    taken.unwrap_or(0)
}
