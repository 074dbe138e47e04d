//! Ids and sequences for a client: at once, or as soon as there is an answer.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use xuid_engine::Run;
use xuid_engine::sequence::store::NewSequence;
use xuid_engine::sequence::{ControlError, Demand, Numbers, SequenceErrorKind, SequenceName, Sequences};
use xuid_protocol::{Op, Order, Refusal, Status, WAIT_CAP};

use super::Session;
use super::ask::{Ask, Dialect, Got};
use super::waiting::{Done, Ended};
use crate::config::Right;
use crate::crash_points;
use crate::fronts::buffers::Outbox;
use crate::fronts::conversation::{run_of_ids, run_of_numbers};
use crate::fronts::names::{alter, list_all, may, may_pass, similar};
use crate::fronts::refusals::{above_limit, forbidden, of_control, of_ids, of_numbers};
use crate::state::id_limit::Charged;
use crate::state::sequences::ServedSequences;

/// How long a request waits for ids that does not say it, whatever the server's own `wait`: its client has no word for a wait,
/// and takes an error for the end. A sequence that is created by its first use needs two commits of its store.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// Runs for which room is kept.
const SCRATCH_KEPT: usize = 256;

impl Session {
    /// Answers now, or lets the request wait.
    pub(super) fn ask(&mut self, ask: Ask<'_>, outbox: &mut Outbox) -> Result<(), Refusal> {
        let form = self.asked.form;
        let op = match &ask {
            Ask::Ids { .. } => form.op(false),
            Ask::Numbers { .. } => form.op(true),
            Ask::Segment { .. } => Op::SeqRuns,
            Ask::Info { .. } => Op::SeqInfo,
            Ask::List { .. } => Op::SeqList,
            Ask::Create { .. } => Op::SeqCreate,
            Ask::Alter { .. } => Op::SeqAlter,
            Ask::Ready(Got::Parts(_)) => Op::Decode,
            Ask::Ready(_) => Op::Info,
        };
        self.tally.request(op);
        let result = match ask {
            Ask::Ids { count, order, wait } => self.take_ids(op, order, count, wait, outbox),
            Ask::Numbers { name, demand } => self.take_numbers(op, &name, demand, outbox),
            Ask::Segment { name } => self.take_segment(op, &name, outbox),
            Ask::Ready(got) => {
                self.fulfil(&got, outbox);
                Ok(())
            }
            of_store => self.ask_store(op, of_store),
        };
        self.scratch.shrink_to(SCRATCH_KEPT);
        self.pieces.shrink_to(SCRATCH_KEPT);
        if self.waiting.is_none() {
            self.tally.answered(op, 1);
        }
        result
    }

    fn take_ids(
        &mut self,
        op: Op,
        order: Order,
        count: u32,
        wait: Option<Duration>,
        outbox: &mut Outbox,
    ) -> Result<(), Refusal> {
        self.limits.check_count(count)?;
        let charged = self.charge(count)?;
        self.charged = charged;
        let tried = self.server.engine.try_runs(count, order, &mut self.scratch);
        self.charged = Charged::default();
        let wait = wait.unwrap_or_else(|| self.wait()).min(WAIT_CAP);
        match tried {
            Ok(()) => {
                let runs = std::mem::take(&mut self.scratch);
                self.got_ids(op, &runs, outbox);
                self.scratch = runs;
                self.scratch.clear();
                Ok(())
            }
            Err(error) if error.is_retryable() && !wait.is_zero() => {
                let caller = self.share.get_or_insert_default();
                let pending = self.server.engine.request(count, order, wait).on_behalf_of(caller);
                self.wait_for(op, charged, pending.map(Ended::Ids));
                Ok(())
            }
            Err(error) => {
                self.allowance.give_back(charged);
                Err(of_ids(&self.server, error))
            }
        }
    }

    fn take_numbers(
        &mut self,
        op: Op,
        name: &[u8],
        demand: Demand,
        outbox: &mut Outbox,
    ) -> Result<(), Refusal> {
        let server = Arc::clone(&self.server);
        let sequences = served(server.sequences.as_ref())?;
        let known = self.names.find(name).cloned();
        let legal = if known.is_some() { None } else { Some(legal(name)?) };
        if !may(&mut self.rights, &server.access, Right::Next, name) {
            return Err(forbidden(op, &String::from_utf8_lossy(name)));
        }
        let sequence = match (known, legal) {
            (None, Some(name)) => self.names.sequence(sequences, &name)?,
            (Some(known), _) => known,
            (None, None) => unreachable!("a name is known, or was looked at"),
        };
        let count = demand.count();
        self.limits.check_count(count)?;
        let charged = self.charge(count)?;
        self.charged = charged;
        let tried = sequence.try_runs(demand, &mut self.numbers);
        self.charged = Charged::default();
        match tried {
            Ok(()) => {
                let numbers = std::mem::take(&mut self.numbers);
                self.got_numbers(&numbers, outbox);
                self.numbers = numbers;
                self.numbers.clear();
                Ok(())
            }
            Err(error) if may_pass(error) => {
                let (pending, name) = (sequence.request(demand, self.wait()), sequence.name().clone());
                self.wait_for(op, charged, pending.map(move |result| Ended::Numbers(name, result)));
                Ok(())
            }
            Err(error) => {
                self.allowance.give_back(charged);
                Err(of_numbers(error, sequence.name()))
            }
        }
    }

    /// A piece as long as the sequence's step, which has to be asked for if this process has not used it yet.
    fn take_segment(&mut self, op: Op, name: &[u8], outbox: &mut Outbox) -> Result<(), Refusal> {
        let server = Arc::clone(&self.server);
        let sequences = served(server.sequences.as_ref())?;
        let name = legal(name)?;
        let known = sequences.all.figures(&name).and_then(|figures| figures.settings);
        if let Some(settings) = known {
            return self.take_piece(op, &name, settings.step, outbox);
        }
        if !may(&mut self.rights, &server.access, Right::Next, name.as_str().as_bytes()) {
            return Err(forbidden(op, name.as_str()));
        }
        let (info, step) = (sequences.all.info(&name), sequences.step);
        let step = async move {
            match info.await {
                Ok(info) => Ok(info.row.settings.step),
                // Its first use may create it.
                Err(ControlError::NoSequence { .. }) => Ok(step),
                Err(error) => Err(of_control(&error)),
            }
        };
        self.wait_for(op, Charged::default(), step.map(move |step| Ended::Step(name, step)));
        Ok(())
    }

    fn take_piece(
        &mut self,
        op: Op,
        name: &SequenceName,
        step: u64,
        outbox: &mut Outbox,
    ) -> Result<(), Refusal> {
        let count = u32::try_from(step).unwrap_or(u32::MAX).clamp(1, self.limits.max_count);
        self.take_numbers(op, name.as_str().as_bytes(), Demand::ordered(count).contiguous(), outbox)
    }

    /// Begins to answer a question that the store has its part in.
    fn ask_store(&mut self, op: Op, ask: Ask<'_>) -> Result<(), Refusal> {
        let server = Arc::clone(&self.server);
        let sequences = served(server.sequences.as_ref())?;
        let all = sequences.all.clone();
        let is_created_in_words = self.asked.dialect == Dialect::V1;
        let bad = |text| Refusal::new(Status::BAD_REQUEST, text);
        match ask {
            Ask::Info { name } => {
                let name = legal(&name)?;
                if !self.rights.now(&server.access).may_see(name.as_str()) {
                    return Err(forbidden(op, name.as_str()));
                }
                let info = all.info(&name);
                self.wait_for_answer(op, async move { found(info.await, false) });
            }
            Ask::List { after, limit } => {
                let rights = self.rights.now(&server.access).clone();
                let list = list_all(all, rights, limit, String::new(), after);
                self.wait_for_answer(op, list.map(|list| list.map(Got::Sequences)));
            }
            Ask::Create { name, settings } => {
                let name = self.allowed(Right::Create, op, &name)?;
                let new = sequences.parse_new(&settings).map_err(bad)?;
                self.wait_for_answer(op, create(all, name, new, is_created_in_words));
            }
            Ask::Alter { name, changes } => {
                let name = self.allowed(Right::Alter, op, &name)?;
                let changes = ServedSequences::parse_changes(&changes).map_err(bad)?;
                let altered = alter(all, name, changes);
                self.wait_for_answer(op, async move {
                    Ok(Got::Sequence { info: Box::new(altered.await?), is_new: false })
                });
            }
            _ => unreachable!("no question for the store"),
        }
        Ok(())
    }

    fn allowed(&mut self, right: Right, op: Op, name: &[u8]) -> Result<SequenceName, Refusal> {
        let name = legal(name)?;
        if may(&mut self.rights, &self.server.access, right, name.as_str().as_bytes()) {
            return Ok(name);
        }
        Err(forbidden(op, name.as_str()))
    }

    fn wait(&self) -> Duration {
        self.server.limits.wait.max(LEAST_WAIT)
    }

    /// Counts ids against the limits of the client's token and address, as far as there are any.
    fn charge(&mut self, count: u32) -> Result<Charged, Refusal> {
        self.allowance.take(count).map_err(|above| {
            self.tally.limited(above.by);
            above_limit(above, count)
        })
    }

    fn wait_for_answer(
        &mut self,
        op: Op,
        answer: impl Future<Output = Result<Got, Refusal>> + Send + 'static,
    ) {
        self.wait_for(op, Charged::default(), answer.map(Ended::Answer));
    }

    /// The next reply is this one's, as soon as it is there.
    fn wait_for(&mut self, op: Op, charged: Charged, ended: impl Future<Output = Ended> + Send + 'static) {
        let came = self.came;
        let waiting = async move {
            let ended = AssertUnwindSafe(ended).catch_unwind().await.ok();
            Done { op, charged, came, ended }
        };
        self.waiting_charged = charged;
        self.waiting = Some(Mutex::new(Box::pin(waiting)));
    }

    /// Writes the reply of a request that waited, or lets it wait for what comes next.
    pub(super) fn write(&mut self, done: Done, outbox: &mut Outbox) {
        let Done { op, charged, came, ended } = done;
        let ended = match ended {
            Some(Ended::Numbers(name, Err(error))) if error.kind() == SequenceErrorKind::NoSequence => {
                if let Some(sequences) = &self.server.sequences {
                    let similar = similar(sequences.all.clone(), name);
                    self.names.was_unknown();
                    return self.wait_for(op, charged, similar.map(|refusal| Ended::Answer(Err(refusal))));
                }
                Some(Ended::Numbers(name, Err(error)))
            }
            Some(Ended::Step(name, Ok(step))) => {
                let taken = self.take_piece(op, &name, step, outbox);
                if self.waiting.is_some() {
                    return;
                }
                if let Some(came) = came {
                    self.tally.waited(op, came);
                }
                return taken.unwrap_or_else(|refusal| self.deny(&refusal.into(), outbox));
            }
            other => other,
        };
        if let Some(came) = came {
            self.tally.waited(op, came);
        }
        let refusal = match ended {
            Some(Ended::Ids(Ok(runs))) => return self.got_ids(op, &runs, outbox),
            Some(Ended::Numbers(_, Ok(numbers))) => return self.got_numbers(&numbers, outbox),
            Some(Ended::Answer(Ok(got))) => return self.fulfil(&got, outbox),
            Some(Ended::Ids(Err(error))) => of_ids(&self.server, error),
            Some(Ended::Numbers(name, Err(error))) => of_numbers(error, &name),
            Some(Ended::Answer(Err(refusal)) | Ended::Step(_, Err(refusal))) => refusal,
            Some(Ended::Step(_, Ok(_))) => unreachable!("taken above"),
            None => self.panicked(),
        };
        self.allowance.give_back(charged);
        self.deny(&refusal.into(), outbox);
    }

    /// From here on they are spent.
    fn got_ids(&mut self, op: Op, runs: &[Run], outbox: &mut Outbox) {
        for run in runs {
            crash_points::issued(run.first().raw(), run.len());
            self.pieces.push(run_of_ids(run));
        }
        self.tally.ids(op, runs.iter().map(|run| u64::from(run.len())).sum());
        self.fulfil(&Got::Pieces, outbox);
    }

    /// The same of numbers.
    fn got_numbers(&mut self, numbers: &[Numbers], outbox: &mut Outbox) {
        self.pieces.extend(numbers.iter().map(run_of_numbers));
        self.fulfil(&Got::Pieces, outbox);
    }
}

/// Creates a sequence. Whether there was none before has to be asked for, where the client is told.
async fn create(all: Sequences, name: SequenceName, new: NewSequence, is_told: bool) -> Result<Got, Refusal> {
    let is_new = is_told && matches!(all.info(&name).await, Err(ControlError::NoSequence { .. }));
    found(all.create(&name, new).await, is_new)
}

fn found(
    info: Result<xuid_engine::sequence::SequenceInfo, ControlError>,
    is_new: bool,
) -> Result<Got, Refusal> {
    info.map(|info| Got::Sequence { info: Box::new(info), is_new }).map_err(|error| of_control(&error))
}

fn legal(name: &[u8]) -> Result<SequenceName, Refusal> {
    SequenceName::from_bytes(name)
        .map_err(|error| Refusal::new(Status::BAD_REQUEST, format!("the name: {error}")))
}

/// The sequences, if this server has any.
fn served(sequences: Option<&ServedSequences>) -> Result<&ServedSequences, Refusal> {
    sequences.ok_or_else(|| {
        let text = "this server has no named sequences (sequences is off): ask for ids, or another server";
        Refusal::new(Status::UNKNOWN_OP, text)
    })
}
