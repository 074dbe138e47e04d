//! Random numbers that come from a seed, so that a history can be run again.

/// `SplitMix64`, by Sebastiano Vigna: small, fast, and good enough to pick events.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another one, independent of this one's further use.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// One of `0 .. n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// One of `from ..= to`.
    pub(crate) fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// One of `from ..= to`, small ones as likely as large ones: by magnitude.
    pub(crate) fn magnitude(&mut self, from: u64, to: u64) -> u64 {
        let (low, high) = (from.max(1).ilog2(), to.max(1).ilog2());
        let bits = self.within(u64::from(low), u64::from(high)) as u32;
        self.within(1 << bits, (1 << bits) * 2 - 1).clamp(from, to)
    }

    /// True in `percent` of a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    pub(crate) fn bytes(&mut self) -> [u8; 16] {
        let (high, low) = (u128::from(self.next()), u128::from(self.next()));
        (high << 64 | low).to_le_bytes()
    }
}
