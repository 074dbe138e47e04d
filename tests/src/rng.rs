//! A small random generator with a seed that is printed, so that a failure can be played again.

use std::time::Duration;

use crate::clock;

/// `SplitMix64`: a counter by the golden ratio and a finalizer; good enough to pick moments and offsets.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Seeded from `XUID_SEED`, else from the clock; prints the seed under the name of the test.
    pub fn from_env(test: &str) -> Self {
        let seed = std::env::var("XUID_SEED").ok().and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or_else(|| clock::unix_ms().wrapping_mul(0x9e37_79b9) % 1_000_000_007);
        println!("{test}: seed {seed} (set XUID_SEED={seed} to play it again)");
        Self::new(seed)
    }

    /// The next 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.word() % bound }
    }

    /// A duration of `low..high` milliseconds, to the microsecond.
    pub fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(low * 1_000 + self.below((high - low) * 1_000))
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.word() as u8).collect()
    }
}
