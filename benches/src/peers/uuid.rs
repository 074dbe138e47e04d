//! uuid 1, version 7: 128 bits of milliseconds, counter and randomness, never waiting for the clock.
//!
//! `now_v7` counts in one context of the process, behind a Mutex. The crate's documented alternative is a context of
//! the caller's own, here one a thread. It never waits, so burst and sustained are the same call; random numbers come
//! from the crate's fast generator. Ids are folded to 64 bits only where duplicates are counted.

use uuid::{ContextV7, Timestamp, Uuid};

use super::peer::peer;
use super::wide::Wide;
use crate::subject::{Fixture, Subject, Supply};

pub(super) fn subjects() -> Vec<Subject> {
    use Supply::{Burst, Sustained};
    vec![
        peer("uuid/v7", "Uuid::now_v7", Burst, shared),
        peer("uuid/v7-per-thread", "Uuid::new_v7 with a ContextV7 a thread", Burst, per_thread),
        peer("uuid/v7-sustained", "Uuid::now_v7", Sustained, shared),
    ]
}

fn shared() -> Box<dyn Fixture> {
    Wide::new(|| || Uuid::now_v7().as_u128())
}

fn per_thread() -> Box<dyn Fixture> {
    Wide::new(|| {
        let context = ContextV7::new();
        move || Uuid::new_v7(Timestamp::now(&context)).as_u128()
    })
}
