//! The two snowflakes one would write oneself: 41 bits of milliseconds, 10 of worker, 12 of sequence.
//!
//! `mutex-snowflake` keeps tick and sequence behind a std Mutex; `cas-snowflake` keeps them in one atomic word and
//! moves that by compare-and-set. Sustained, every call reads the clock and a spent tick is waited out, spinning, as
//! the first snowflake did. In their bursts both are kinder than that: the clock is read once, and a spent tick is
//! followed by the next one at once.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crossbeam_utils::CachePadded;

use super::clock;
use super::peer::peer;
use crate::subject::{SharedGenerator, Subject, Supply};

const SEQUENCE_BITS: u32 = 12;
const WORKER_BITS: u32 = 10;
const SEQUENCES: u64 = 1 << SEQUENCE_BITS;
/// Any worker but 0.
const WORKER: u64 = 7;

pub(super) fn subjects() -> Vec<Subject> {
    use Supply::{Burst, Sustained};
    vec![
        peer("mutex-snowflake", "41/10/12 behind a std Mutex, ticks taken in advance", Burst, || {
            SharedGenerator::new(Locked::new(), Locked::burst)
        }),
        peer(
            "mutex-snowflake-sustained",
            "41/10/12 behind a std Mutex, the clock read at each call",
            Sustained,
            || SharedGenerator::new(Locked::new(), Locked::sustained),
        ),
        peer(
            "cas-snowflake",
            "41/10/12 in one word moved by compare-and-set, ticks taken in advance",
            Burst,
            || SharedGenerator::new(Word::new(), Word::burst),
        ),
        peer(
            "cas-snowflake-sustained",
            "41/10/12 in one word, the clock read at each call",
            Sustained,
            || SharedGenerator::new(Word::new(), Word::sustained),
        ),
    ]
}

fn id(tick: u64, sequence: u64) -> u64 {
    tick << (WORKER_BITS + SEQUENCE_BITS) | WORKER << SEQUENCE_BITS | sequence
}

/// The next tick after `last`, once the clock is there.
fn wait_after(last: u64) -> u64 {
    loop {
        let now = clock::millis();
        if now > last {
            return now;
        }
        spin_loop();
    }
}

#[derive(Clone, Copy)]
struct Place {
    tick: u64,
    sequence: u64,
}

/// Tick and sequence issued last, behind a lock.
struct Locked(CachePadded<Mutex<Place>>);

impl Locked {
    fn new() -> Self {
        Self(CachePadded::new(Mutex::new(Place { tick: clock::millis(), sequence: 0 })))
    }

    fn burst(&self) -> u64 {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        place.sequence += 1;
        if place.sequence == SEQUENCES {
            *place = Place { tick: place.tick + 1, sequence: 0 };
        }
        id(place.tick, place.sequence)
    }

    fn sustained(&self) -> u64 {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::millis();
        if now > place.tick {
            *place = Place { tick: now, sequence: 0 };
        } else {
            place.sequence += 1;
            if place.sequence == SEQUENCES {
                *place = Place { tick: wait_after(place.tick), sequence: 0 };
            }
        }
        id(place.tick, place.sequence)
    }
}

/// `tick << 12 | sequence` issued last, in one word.
struct Word(CachePadded<AtomicU64>);

impl Word {
    fn new() -> Self {
        Self(CachePadded::new(AtomicU64::new(clock::millis() << SEQUENCE_BITS)))
    }

    fn burst(&self) -> u64 {
        let mut last = self.0.load(Ordering::Relaxed);
        loop {
            match self.0.compare_exchange_weak(last, last + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return id((last + 1) >> SEQUENCE_BITS, (last + 1) % SEQUENCES),
                Err(newer) => last = newer,
            }
        }
    }

    fn sustained(&self) -> u64 {
        let mut last = self.0.load(Ordering::Relaxed);
        loop {
            let (now, tick) = (clock::millis(), last >> SEQUENCE_BITS);
            let next = if now > tick {
                now << SEQUENCE_BITS
            } else if (last + 1).is_multiple_of(SEQUENCES) {
                spin_loop();
                last = self.0.load(Ordering::Relaxed);
                continue;
            } else {
                last + 1
            };
            match self.0.compare_exchange_weak(last, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return id(next >> SEQUENCE_BITS, next % SEQUENCES),
                Err(newer) => last = newer,
            }
        }
    }
}
