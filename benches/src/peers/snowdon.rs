//! snowdon 0.2: its lock-free generator, the default, shared by all threads.
//!
//! It reads the clock at each call. The burst has the layout of its own benchmark, 42 bits of milliseconds and 22 of
//! sequence, which no machine uses up in a millisecond. Sustained it has the crate's classic layout; a spent tick is an
//! error there, after which the caller tries again: here it spins.

use std::hint::spin_loop;

use snowdon::{ClassicLayout, Epoch, Generator, Layout, MachineId};

use super::peer::peer;
use crate::subject::{SharedGenerator, Subject, Supply};

const SEQUENCE_BITS: u32 = 22;
const SEQUENCES: u64 = 1 << SEQUENCE_BITS;

/// Worker and epoch.
struct Parameters;

impl Epoch for Parameters {
    fn millis_since_unix() -> u64 {
        // 2018-04-20 00:00 +08:00, as this engine's default layout has it.
        1_524_153_600_000
    }
}

impl MachineId for Parameters {
    fn machine_id() -> u64 {
        7
    }
}

/// 42 bits of time, 22 of sequence.
struct Wide;

impl Layout for Wide {
    #[inline]
    fn construct_snowflake(timestamp: u64, sequence: u64) -> u64 {
        assert!(!Self::exceeds_timestamp(timestamp) && !Self::exceeds_sequence_number(sequence));
        timestamp << SEQUENCE_BITS | sequence
    }

    #[inline]
    fn timestamp(id: u64) -> u64 {
        id >> SEQUENCE_BITS
    }

    #[inline]
    fn exceeds_timestamp(timestamp: u64) -> bool {
        timestamp >> (u64::BITS - SEQUENCE_BITS) != 0
    }

    #[inline]
    fn sequence_number(id: u64) -> u64 {
        id % SEQUENCES
    }

    #[inline]
    fn exceeds_sequence_number(sequence: u64) -> bool {
        sequence >= SEQUENCES
    }

    #[inline]
    fn is_valid_snowflake(_id: u64) -> bool {
        true
    }
}

pub(super) fn subjects() -> Vec<Subject> {
    vec![
        peer("snowdon", "the lock-free generator, 42 bits of time and 22 of sequence", Supply::Burst, || {
            SharedGenerator::new(Generator::<Wide, Parameters>::default(), next)
        }),
        peer("snowdon-sustained", "the lock-free generator, its classic layout", Supply::Sustained, || {
            SharedGenerator::new(Generator::<ClassicLayout<Parameters>, Parameters>::default(), next)
        }),
    ]
}

fn next<L: Layout>(generator: &Generator<L, Parameters>) -> u64 {
    loop {
        match generator.generate() {
            Ok(id) => return id.into_inner(),
            Err(_) => spin_loop(),
        }
    }
}
