//! Ids and sequences for a client: at once, or as soon as there is an answer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
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
use crate::fronts::names::{alter, list_all, may};
use crate::fronts::refusals::{forbidden, of_control, of_ids, of_numbers};
use crate::state::id_limit::Charged;
use crate::state::sequences::ServedSequences;

/// Pieces for which room is kept.
pub(super) const PIECES_KEPT: usize = 256;

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
        self.client.tally.request(op);
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
        if !self.waiting.is_some() {
            self.client.tally.answered(op, 1);
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
        self.client.limits.check_count(count)?;
        self.client.check_unread(op, count)?;
        let wait = wait.unwrap_or_else(|| self.client.default_wait()).min(WAIT_CAP);
        match self.client.take_ids(count, order, wait)? {
            None => {
                let ids = std::mem::take(&mut self.client.ids);
                self.got_ids(op, &ids, outbox);
                self.client.ids = ids;
                self.client.ids.clear();
            }
            Some((charged, pending)) => self.wait_for(op, charged, pending.map(Ended::Ids)),
        }
        Ok(())
    }

    fn take_numbers(
        &mut self,
        op: Op,
        name: &[u8],
        demand: Demand,
        outbox: &mut Outbox,
    ) -> Result<(), Refusal> {
        let server = Arc::clone(&self.client.server);
        let sequences = served(server.sequences.as_ref())?;
        let known = self.client.names.find(name).cloned();
        let legal = if known.is_some() { None } else { Some(legal(name)?) };
        if !may(&mut self.client.rights, &server.access, Right::Next, name) {
            return Err(forbidden(op, &String::from_utf8_lossy(name)));
        }
        let sequence = match (known, legal) {
            (None, Some(name)) => self.client.names.sequence(sequences, &name)?,
            (Some(known), _) => known,
            (None, None) => unreachable!("a name is known, or was looked at"),
        };
        self.client.limits.check_count(demand.count())?;
        self.client.check_unread(op, demand.count())?;
        match self.client.take_numbers(&sequence, demand, self.client.default_wait())? {
            None => {
                let numbers = std::mem::take(&mut self.client.numbers);
                self.got_numbers(&numbers, outbox);
                self.client.numbers = numbers;
                self.client.numbers.clear();
            }
            Some((charged, pending)) => {
                let name = sequence.name().clone();
                self.wait_for(op, charged, pending.map(move |result| Ended::Numbers(name, result)));
            }
        }
        Ok(())
    }

    /// A piece as long as the sequence's step, which has to be asked for if this process has not used it yet.
    fn take_segment(&mut self, op: Op, name: &[u8], outbox: &mut Outbox) -> Result<(), Refusal> {
        let server = Arc::clone(&self.client.server);
        let sequences = served(server.sequences.as_ref())?;
        let name = legal(name)?;
        let known = sequences.all.figures(&name).and_then(|figures| figures.settings);
        if let Some(settings) = known {
            return self.take_piece(op, &name, settings.step, outbox);
        }
        if !may(&mut self.client.rights, &server.access, Right::Next, name.as_str().as_bytes()) {
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
        let count = u32::try_from(step).unwrap_or(u32::MAX).clamp(1, self.client.limits.max_count);
        self.take_numbers(op, name.as_str().as_bytes(), Demand::ordered(count).contiguous(), outbox)
    }

    /// Begins to answer a question that the store has its part in.
    fn ask_store(&mut self, op: Op, ask: Ask<'_>) -> Result<(), Refusal> {
        let server = Arc::clone(&self.client.server);
        let sequences = served(server.sequences.as_ref())?;
        let all = sequences.all.clone();
        let is_created_in_words = self.asked.dialect == Dialect::V1;
        let bad = |text| Refusal::new(Status::BAD_REQUEST, text);
        match ask {
            Ask::Info { name } => {
                let name = legal(&name)?;
                if !self.client.rights.now(&server.access).may_see(name.as_str()) {
                    return Err(forbidden(op, name.as_str()));
                }
                let info = all.info(&name);
                self.wait_for_answer(op, async move { found(info.await, false) });
            }
            Ask::List { after, limit } => {
                self.client.check_unread(op, limit)?;
                let rights = self.client.rights.now(&server.access).clone();
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
        if may(&mut self.client.rights, &self.client.server.access, right, name.as_str().as_bytes()) {
            return Ok(name);
        }
        Err(forbidden(op, name.as_str()))
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
        self.waiting.begin(op, charged, self.client.came, ended);
    }

    /// Writes the reply of a request that waited, or lets it wait for what comes next.
    pub(super) fn write(&mut self, done: Done, outbox: &mut Outbox) {
        let Done { op, charged, came, ended } = done;
        let ended = match ended {
            Some(Ended::Numbers(name, Err(error))) if error.kind() == SequenceErrorKind::NoSequence => {
                if let Some(similar) = self.client.look_for_similar(&name) {
                    return self.wait_for(op, charged, similar.map(|refusal| Ended::Answer(Err(refusal))));
                }
                Some(Ended::Numbers(name, Err(error)))
            }
            Some(Ended::Step(name, Ok(step))) => {
                let before = outbox.len();
                let take = AssertUnwindSafe(|| self.take_piece(op, &name, step, outbox));
                let taken = catch_unwind(take).unwrap_or_else(|_| Err(self.panicked()));
                if self.waiting.is_some() {
                    return;
                }
                if let Some(came) = came {
                    self.client.tally.waited(op, came);
                }
                if let Err(refusal) = taken {
                    outbox.truncate(before);
                    self.deny(&refusal.into(), outbox);
                }
                return;
            }
            other => other,
        };
        if let Some(came) = came {
            self.client.tally.waited(op, came);
        }
        let refusal = match ended {
            Some(Ended::Ids(Ok(runs))) => return self.got_ids(op, &runs, outbox),
            Some(Ended::Numbers(_, Ok(numbers))) => return self.got_numbers(&numbers, outbox),
            Some(Ended::Answer(Ok(got))) => return self.fulfil(&got, outbox),
            Some(Ended::Ids(Err(error))) => of_ids(&self.client.server, error),
            Some(Ended::Numbers(name, Err(error))) => of_numbers(error, &name),
            Some(Ended::Answer(Err(refusal)) | Ended::Step(_, Err(refusal))) => refusal,
            Some(Ended::Step(_, Ok(_))) => unreachable!("taken above"),
            None => self.panicked(),
        };
        self.client.allowance.give_back(charged);
        self.deny(&refusal.into(), outbox);
    }

    /// From here on they are spent.
    fn got_ids(&mut self, op: Op, runs: &[Run], outbox: &mut Outbox) {
        for run in runs {
            crash_points::issued(run.first().raw(), run.len());
            self.pieces.push(run_of_ids(run));
        }
        self.client.tally.ids(op, runs.iter().map(|run| u64::from(run.len())).sum());
        self.got_pieces(outbox);
    }

    /// The same of numbers.
    fn got_numbers(&mut self, numbers: &[Numbers], outbox: &mut Outbox) {
        self.pieces.extend(numbers.iter().map(run_of_numbers));
        self.got_pieces(outbox);
    }

    fn got_pieces(&mut self, outbox: &mut Outbox) {
        self.fulfil(&Got::Pieces, outbox);
        // Opaque ids are a piece each.
        self.pieces.shrink_to(PIECES_KEPT);
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
