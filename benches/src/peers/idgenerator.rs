//! idgenerator 2: a snowflake that runs ahead of the clock in a burst.
//!
//! Shared it is the crate's own `IdInstance`, one for the process. A thread's own is its `CoreIdGenerator`, which the
//! crate says to wrap. For the burst the sequence has 16 bits, more than it can use up in a millisecond: it reads the
//! clock at each call whatever happens. Sustained it has 12 bits, of which it keeps five numbers back, and runs ahead
//! of the clock by 100 ms at most: by its default of two seconds a short measurement would show the lead or the wait
//! that pays it back. It wastes one tick at the end of each lead, here one in a hundred.

use std::sync::OnceLock;

use idgenerator::{CoreIdGenerator, IdGeneratorOptions, IdInstance};

use super::peer::{locked, peer, per_worker};
use crate::subject::{SharedGenerator, Subject, Supply};

const WORKER_BITS: u8 = 6;
/// Ticks it may run ahead.
const LEAD: u32 = 100;

pub(super) fn subjects() -> Vec<Subject> {
    use Supply::{Burst, Sustained};
    vec![
        peer("idgenerator", "IdInstance::next_id, 16 bits of sequence", Burst, || {
            configure();
            SharedGenerator::new((), |()| IdInstance::next_id().cast_unsigned())
        }),
        peer("idgenerator/per-thread", "a CoreIdGenerator a thread, 16 bits of sequence", Burst, || {
            per_worker(1 << WORKER_BITS, |worker| {
                let mut generator = generator(options(worker, 16));
                move || generator.next_id().cast_unsigned()
            })
        }),
        peer("idgenerator-sustained", "a CoreIdGenerator in a Mutex, 12 bits of sequence", Sustained, || {
            let generator = generator(options(1, 12).top_over_cost_count(LEAD));
            locked(generator, |generator| generator.next_id().cast_unsigned())
        }),
    ]
}

fn options(worker: u64, sequence_bits: u8) -> IdGeneratorOptions {
    IdGeneratorOptions::new()
        .worker_id(worker as u32)
        .worker_id_bit_len(WORKER_BITS)
        .seq_bit_len(sequence_bits)
}

/// It sleeps for a second while it is set up, of its own.
fn generator(options: IdGeneratorOptions) -> CoreIdGenerator {
    let mut generator = CoreIdGenerator::default();
    generator.init(options).unwrap_or_else(|error| panic!("a generator within its limits: {error}"));
    generator
}

/// Configures the process's one generator, once: doing it again would begin its sequence anew.
fn configure() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let done = IdInstance::init(options(1, 16));
        done.unwrap_or_else(|error| panic!("a generator within its limits: {error}"));
    });
}
