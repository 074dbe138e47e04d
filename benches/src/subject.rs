//! What is measured: a way to get ids, or a baseline beside it.
//!
//! A [`Worker`] runs its calls in one loop of its own, so that a subject is measured as a caller would compile it,
//! and one virtual call a batch is all that the measuring costs.

use serde::{Deserialize, Serialize};

/// What a subject stands for in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// This engine.
    Ours,
    /// Another generator of ids.
    Peer,
    /// What bounds any generator: a counter, a fetch-and-add.
    Limit,
}

/// Where the ids come from while it is measured. Figures of different supplies are never compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Supply {
    /// Time is not asked, or land nobody used was declared: how fast the code can go.
    Burst,
    /// As many as the clock allows.
    Sustained,
}

/// A way to get ids.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    /// `xuid/next_id`, `ferroid/atomic`: unique, without blanks.
    pub name: &'static str,
    /// One line for a reader of the table.
    pub about: &'static str,
    /// What it stands for.
    pub kind: Kind,
    /// Where its ids come from.
    pub supply: Supply,
    /// Ids that one call brings.
    pub ids_per_call: u64,
    /// Sets it up, once for all threads of a measurement.
    pub set_up: fn() -> Box<dyn Fixture>,
}

/// A subject set up for all threads of a measurement.
pub trait Fixture: Send + Sync {
    /// What one thread calls; made on that thread.
    fn worker(&self) -> Box<dyn Worker + '_>;

    /// Called after the measurement: what makes its figures void (refusals, land that ran out), if anything.
    fn objection(&self) -> Option<String> {
        None
    }
}

/// One thread's calls.
pub trait Worker {
    /// So many calls in a row, the ids thrown away.
    fn run(&mut self, calls: u64);

    /// So many calls in a row; every id they brought is appended to `ids`.
    fn collect(&mut self, calls: u64, ids: &mut Vec<u64>);
}

/// A worker that makes one id a call.
pub fn single<'a>(call: impl FnMut() -> u64 + 'a) -> Box<dyn Worker + 'a> {
    Box::new(Single(Some(call)))
}

/// Uses an id at the price of no instruction: it is in a register, and the compiler must assume that other code ran, so
/// that what a subject keeps in memory is written and read again. `black_box` writes each id to memory, and a sum of
/// the ids waits for itself: an id a cycle and no more, except where the compiler sees a way to add them up in pairs.
#[inline]
#[expect(unsafe_code, reason = "there is no safe way to use a value without an instruction")]
pub(crate) fn consume(id: u64) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // SAFETY: it is empty.
    unsafe {
        std::arch::asm!("/* {id} */", id = in(reg) id, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    std::hint::black_box(id);
}

/// Does `$body` so many times, eight in a row. The fastest subjects are loops of ten instructions, and whether those
/// lie on one line of 64 bytes or across two is worth a third of what they do and says nothing about them; of eight in
/// a row it is worth little. A macro: what a closure would wrap is too long to be inlined eight times where a call is
/// long.
macro_rules! repeat {
    ($calls:expr, $body:expr) => {
        let calls: u64 = $calls;
        for _ in 0..calls / 8 {
            $body;
            $body;
            $body;
            $body;
            $body;
            $body;
            $body;
            $body;
        }
        for _ in 0..calls % 8 {
            $body;
        }
    };
}

pub(crate) use repeat;

/// Does `$body` with what is in `$place` as a local variable, as a thread has what it owns: the compiler may keep its
/// state in registers. What is shared, or lies behind a pointer, is in memory all the same.
macro_rules! local {
    ($place:expr, $name:ident => $body:expr) => {
        let Some(mut $name) = $place.take() else { unreachable!("a batch that panicked was not the last") };
        $body;
        $place = Some($name);
    };
}

pub(crate) use local;

/// What makes one id a call. There is always one between batches.
struct Single<F>(Option<F>);

impl<F: FnMut() -> u64> Worker for Single<F> {
    fn run(&mut self, calls: u64) {
        local!(self.0, call => repeat!(calls, consume(call())));
    }

    fn collect(&mut self, calls: u64, ids: &mut Vec<u64>) {
        local!(self.0, call => ids.extend((0..calls).map(|_| call())));
    }
}

/// A fixture of something shared by all threads, and how one call is made of it.
pub struct SharedGenerator<T, F> {
    subject: T,
    call: F,
}

impl<T: Send + Sync + 'static, F: Fn(&T) -> u64 + Send + Sync + Copy + 'static> SharedGenerator<T, F> {
    /// `call` gets one id out of `subject`.
    #[expect(clippy::new_ret_no_self, reason = "subjects are held as fixtures only")]
    pub fn new(subject: T, call: F) -> Box<dyn Fixture> {
        Box::new(Self { subject, call })
    }
}

impl<T: Send + Sync, F: Fn(&T) -> u64 + Send + Sync + Copy> Fixture for SharedGenerator<T, F> {
    fn worker(&self) -> Box<dyn Worker + '_> {
        let call = self.call;
        single(move || call(&self.subject))
    }
}

/// A fixture of something that each thread makes its own of.
pub struct PerThread<F>(F);

impl<F, C> PerThread<F>
where
    F: Fn() -> C + Send + Sync + 'static,
    C: FnMut() -> u64 + 'static,
{
    /// `make` is called once on each thread; what it returns gets one id a call.
    #[expect(clippy::new_ret_no_self, reason = "subjects are held as fixtures only")]
    pub fn new(make: F) -> Box<dyn Fixture> {
        Box::new(Self(make))
    }
}

impl<F, C> Fixture for PerThread<F>
where
    F: Fn() -> C + Send + Sync,
    C: FnMut() -> u64 + 'static,
{
    fn worker(&self) -> Box<dyn Worker + '_> {
        single((self.0)())
    }
}
