//! Named sequences, by each of their calls, on a store that grants at once; and the double buffer that document and
//! service of Leaf describe.
//!
//! The double buffer, of which go-algorithm's `leaf` is an example: a lock a name; a cursor in one segment and perhaps
//! the next segment beside it; where a tenth of the segment was taken and there is no next one, a thread of its own loads
//! that; who finds both used up waits for it. It is not held back: its store is a counter, and its segments last for a
//! tenth of a second.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use xuid_engine::sequence::store::NewSequence;
use xuid_engine::sequence::store::memory::MemoryDatabase;
use xuid_engine::sequence::{Sequence, SequenceError, SequenceName, Sequences};

use super::calls::{Refusals, many, single};
use super::peer::peer;
use crate::subject::{Fixture, Kind, SharedGenerator, Subject, Supply, Worker};

/// Ids of a call for neighbours.
pub(crate) const TAKE: u32 = 1_000;

pub(super) fn subjects() -> Vec<Subject> {
    vec![
        ours("xuid/sequence-next_id", "one Sequence shared by all threads, next_id", 1, || {
            fixture(|ours| single(&ours.refused, || ours.sequence.next_id()))
        }),
        ours("xuid/sequence-handle", "a SequenceHandle owned by each thread", 1, || {
            fixture(|ours| {
                let mut handle = ours.sequence.handle();
                single(&ours.refused, move || handle.next_id())
            })
        }),
        ours("xuid/sequence-ordered", "one Sequence shared by all threads, next_ordered", 1, || {
            fixture(|ours| single(&ours.refused, || ours.sequence.next_ordered()))
        }),
        ours("xuid/sequence-take-1000", "1,000 neighbours a call", u64::from(TAKE), || fixture(take)),
        peer(
            "leaf/double-buffer",
            "two segments behind a std Mutex, the next loaded at 10 %",
            Supply::Burst,
            || SharedGenerator::new(DoubleBuffer::new(), DoubleBuffer::next),
        ),
    ]
}

fn ours(
    name: &'static str,
    about: &'static str,
    ids_per_call: u64,
    set_up: fn() -> Box<dyn Fixture>,
) -> Subject {
    Subject { name, about, kind: Kind::Ours, supply: Supply::Burst, ids_per_call, set_up }
}

type Make = for<'a> fn(&'a Ours) -> Box<dyn Worker + 'a>;

/// A sequence, and how a thread calls it.
struct Ours {
    sequence: Sequence,
    make: Make,
    refused: Refusals,
    /// Ends with this.
    _all: Sequences,
}

/// How long a call may wait: a host that takes the processor away from the thread that asks the store is not what is
/// measured.
const PATIENCE: Duration = Duration::from_secs(2);

fn fixture(make: Make) -> Box<dyn Fixture> {
    let begun = || -> anyhow::Result<_> {
        let name = SequenceName::new("measured")?;
        let store = MemoryDatabase::new(1).faithful_store(0);
        let all = Sequences::builder(Box::new(store)).wait(PATIENCE).build()?;
        all.create(&name, NewSequence::default()).wait()?;
        Ok((all.sequence(&name)?, all))
    };
    let (sequence, all) =
        begun().unwrap_or_else(|error| panic!("a sequence on a store in memory: {error:#}"));
    Box::new(Ours { sequence, make, refused: Refusals::default(), _all: all })
}

impl Fixture for Ours {
    fn worker(&self) -> Box<dyn Worker + '_> {
        (self.make)(self)
    }

    fn objection(&self) -> Option<String> {
        let calls = self.refused.count();
        (calls > 0).then(|| format!("{calls} calls were refused"))
    }
}

fn take(ours: &Ours) -> Box<dyn Worker + '_> {
    many(&ours.refused, |ids| {
        let numbers = ours.sequence.take(TAKE)?;
        match ids {
            Some(ids) => ids.extend(numbers),
            None => _ = black_box(numbers),
        }
        Ok::<_, SequenceError>(())
    })
}

/// Ids of a segment of the double buffer.
const STEP: u64 = 1 << 20;

/// A tenth of it: from then on the next one is loaded.
const BEGUN: u64 = STEP / 10;

/// How long who finds both segments used up waits at a time.
const WAIT: Duration = Duration::from_millis(500);

struct DoubleBuffer(Arc<Tag>);

#[derive(Default)]
struct Tag {
    /// The store's mark.
    mark: AtomicU64,
    buffers: CachePadded<Mutex<Buffers>>,
    loaded: Condvar,
}

#[derive(Default)]
struct Buffers {
    /// The next id, and the end of its segment.
    cursor: u64,
    end: u64,
    next: Option<u64>,
    is_loading: bool,
}

impl Tag {
    fn lock(&self) -> MutexGuard<'_, Buffers> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self) {
        let first = self.mark.fetch_add(STEP, Ordering::Relaxed);
        let mut buffers = self.lock();
        (buffers.next, buffers.is_loading) = (Some(first), false);
        drop(buffers);
        self.loaded.notify_all();
    }
}

impl DoubleBuffer {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn next(&self) -> u64 {
        let mut buffers = self.0.lock();
        loop {
            if buffers.next.is_none() && !buffers.is_loading && buffers.end - buffers.cursor <= STEP - BEGUN {
                buffers.is_loading = true;
                let tag = Arc::clone(&self.0);
                std::thread::spawn(move || tag.load());
            }
            if buffers.cursor < buffers.end {
                buffers.cursor += 1;
                return buffers.cursor - 1;
            }
            if let Some(first) = buffers.next.take() {
                (buffers.cursor, buffers.end) = (first, first + STEP);
                continue;
            }
            let waited = self.0.loaded.wait_timeout(buffers, WAIT);
            buffers = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
