//! Ids of 128 bits, folded to 64 for counting duplicates.

use crate::subject::{Fixture, Worker, consume, repeat};

/// An odd constant, so that multiplying by it is a bijection of 128 bits: the golden ratio's fraction.
const MIX: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

/// Multiplicative hashing: two different ids meet by chance with a probability of about 2^-63, so that among a million
/// one equal pair is expected in ten million runs. What is counted as a duplicate is one.
fn fold(id: u128) -> u64 {
    (id.wrapping_mul(MIX) >> 64) as u64
}

/// A fixture whose threads each make a call that brings an id of 128 bits.
pub(super) struct Wide<F>(F);

impl<F, C> Wide<F>
where
    F: Fn() -> C + Send + Sync + 'static,
    C: FnMut() -> u128 + 'static,
{
    /// `make` is called once on each thread.
    #[expect(clippy::new_ret_no_self, reason = "subjects are held as fixtures only")]
    pub(super) fn new(make: F) -> Box<dyn Fixture> {
        Box::new(Self(make))
    }
}

impl<F, C> Fixture for Wide<F>
where
    F: Fn() -> C + Send + Sync,
    C: FnMut() -> u128 + 'static,
{
    fn worker(&self) -> Box<dyn Worker + '_> {
        Box::new(Calls((self.0)()))
    }
}

struct Calls<C>(C);

impl<C: FnMut() -> u128> Worker for Calls<C> {
    fn run(&mut self, calls: u64) {
        repeat!(calls, {
            let id = (self.0)();
            consume(id as u64 ^ (id >> 64) as u64);
        });
    }

    fn collect(&mut self, calls: u64, ids: &mut Vec<u64>) {
        ids.extend((0..calls).map(|_| fold((self.0)())));
    }
}
