//! Opaque ids: a keyed permutation of the ids of 63 bits.
//!
//! The cipher is Speck64/128, which permutes words of 64 bits. A word whose highest bit is one is enciphered again, until
//! it is zero: what is left is a permutation of the words below 2^63, and takes two rounds on average. The published
//! vector of the cipher: the key `1b1a1918131211100b0a090803020100` makes `8c6fa548454e028b` of `3b7265747475432d`.
//!
//! # Invariants
//! - I1 with one key, `seal` is a bijection of the ids, and `open` is its inverse: what is unique stays so. Two keys in one
//!   namespace can make one id of two plots, which is why a namespace has one for ever.

use std::fmt;
use std::str::FromStr;

use speck_cipher::Speck64_128;
use speck_cipher::cipher::{Block, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};

use crate::hex16;
use crate::id::Id;

/// The key that makes the ids of a namespace opaque: it seals plots, `time | worker | sequence`, and opens what it sealed.
///
/// It hides time, worker, load and neighbours from all that lack it. It is no proof of a right, since who has seen an
/// id has it; and what it sealed has no order.
///
/// ```
/// use xuid_id::{Id, Veil};
/// let veil: Veil = "1b1a1918131211100b0a090803020100".parse()?;
/// let plot = Id::from_raw(1_128_275_363_336_683_521).unwrap();
/// let id = veil.seal(plot);
/// assert_ne!(id, plot);
/// assert_eq!(veil.open(id), plot);
/// # Ok::<(), xuid_id::ParseKeyError>(())
/// ```
#[derive(Clone)]
pub struct Veil {
    cipher: Speck64_128,
}

/// The text is no key. It is not shown, since it may nearly be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a key of opaque ids is 32 hexadecimal digits, 128 random bits, as `openssl rand -hex 16` prints them"
)]
pub struct ParseKeyError;

/// Ids that are sealed at once: the rounds of one overlap with those of others, and the walks of all are short.
const AT_ONCE: usize = 32;

impl Veil {
    /// The one of a key of 128 bits.
    #[must_use]
    pub fn new(key: [u8; 16]) -> Self {
        Self { cipher: Speck64_128::new(&key.into()) }
    }

    /// What shows whether another key is the same: 0, enciphered once.
    #[must_use]
    pub fn check(&self) -> u64 {
        self.encrypt(0)
    }

    /// The id that callers see of a plot.
    #[must_use]
    pub fn seal(&self, plot: Id) -> Id {
        walk(plot, |word| self.encrypt(word))
    }

    /// The plot of an id that callers see.
    #[must_use]
    pub fn open(&self, id: Id) -> Id {
        walk(id, |word| {
            let mut block = Block::<Speck64_128>::from(word.to_be_bytes());
            self.cipher.decrypt_block(&mut block);
            u64::from_be_bytes(block.into())
        })
    }

    /// [`seal`](Self::seal) of many plots, each in its place, at about a third of the time.
    pub fn seal_all(&self, plots: &mut [Id]) {
        for plots in plots.chunks_mut(AT_ONCE) {
            let mut blocks = [Block::<Speck64_128>::default(); AT_ONCE];
            let mut places = [0; AT_ONCE];
            for (at, plot) in plots.iter().enumerate() {
                (blocks[at], places[at]) = (plot.raw().to_be_bytes().into(), at);
            }
            let mut walking = plots.len();
            while walking > 0 {
                self.cipher.encrypt_blocks(&mut blocks[..walking]);
                let mut left = 0;
                for at in 0..walking {
                    let (block, place) = (blocks[at], places[at]);
                    if let Some(id) = Id::from_raw(u64::from_be_bytes(block.into())) {
                        plots[place] = id;
                    } else {
                        (blocks[left], places[left]) = (block, place);
                        left += 1;
                    }
                }
                walking = left;
            }
        }
    }

    fn encrypt(&self, word: u64) -> u64 {
        let mut block = Block::<Speck64_128>::from(word.to_be_bytes());
        self.cipher.encrypt_block(&mut block);
        u64::from_be_bytes(block.into())
    }
}

/// Goes from word to word until one is an id. It ends: a permutation leads back to where the walk began, which is one.
fn walk(from: Id, step: impl Fn(u64) -> u64) -> Id {
    let mut word = step(from.raw());
    loop {
        match Id::from_raw(word) {
            Some(id) => return id,
            None => word = step(word),
        }
    }
}

impl fmt::Debug for Veil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Veil(..)")
    }
}

/// 32 hexadecimal digits.
impl FromStr for Veil {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        hex16::parse(text).map(Self::new).ok_or(ParseKeyError)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::LAST_ID;

    const KEY: &str = "1b1a1918131211100b0a090803020100";

    fn veil() -> Veil {
        KEY.parse().unwrap()
    }

    /// Of "The Simon and Speck Families of Lightweight Block Ciphers", 2013, appendix C.
    #[test]
    fn the_published_vector_of_speck64_128_comes_out() {
        assert_eq!(veil().encrypt(0x3b72_6574_7475_432d), 0x8c6f_a548_454e_028b);
    }

    /// The same by the cipher's definition, word by word, so that another program can be written from it.
    fn naive(key: u128, word: u64) -> u64 {
        let [mut k, l0, l1, l2] = [0, 32, 64, 96].map(|shift| (key >> shift) as u32);
        let mut l = std::collections::VecDeque::from([l0, l1, l2]);
        let round = |x: u32, y: u32, k: u32| {
            let x = x.rotate_right(8).wrapping_add(y) ^ k;
            (x, y.rotate_left(3) ^ x)
        };
        let (mut x, mut y) = ((word >> 32) as u32, word as u32);
        for i in 0..27 {
            (x, y) = round(x, y, k);
            let (next_l, next_k) = round(l.pop_front().unwrap(), k, i);
            l.push_back(next_l);
            k = next_k;
        }
        u64::from(x) << 32 | u64::from(y)
    }

    #[test]
    fn sealed_ids_are_unique_below_2_63_and_open_again() {
        let (veil, first) = (veil(), 1_128_275_363_336_683_520);
        let plots: Vec<Id> = (first..first + 100_000).map(Id::new).collect();
        let mut ids = plots.clone();
        veil.seal_all(&mut ids);
        assert!(ids.iter().zip(&plots).all(|(id, plot)| veil.open(*id) == *plot && veil.seal(*plot) == *id));
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), plots.len());
    }

    /// Ten million, as `cargo test --release -p xuid-id --features veil -- --ignored` counts them in seconds.
    #[test]
    #[ignore = "takes a minute without optimization"]
    fn ten_million_sealed_ids_are_unique_below_2_63_and_open_again() {
        let (veil, first) = (veil(), 1_128_275_363_336_683_520);
        let mut ids: Vec<Id> = (first..first + 10_000_000).map(Id::new).collect();
        veil.seal_all(&mut ids);
        let opened = ids.iter().zip(first..).all(|(id, plot)| veil.open(*id).raw() == plot);
        assert!(opened && ids.iter().all(|id| id.raw() <= LAST_ID));
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 10_000_000);
    }

    fn each_bit_flips_for_half_of_the_neighbours(neighbours: u64, slack: f64) {
        let mut ids: Vec<Id> = (0..=neighbours).map(|at| Id::new(1_128_275_363_336_683_520 + at)).collect();
        veil().seal_all(&mut ids);
        for bit in 0..63 {
            let flips = ids.windows(2).filter(|pair| (pair[0].raw() ^ pair[1].raw()) >> bit & 1 == 1).count();
            let share = flips as f64 / neighbours as f64;
            assert!((share - 0.5).abs() < slack, "bit {bit} flips in {:.2} %", share * 100.0);
        }
    }

    #[test]
    fn of_neighbours_each_bit_flips_in_half_of_the_cases() {
        // Five standard deviations of 50,000 coins.
        each_bit_flips_for_half_of_the_neighbours(50_000, 0.0112);
    }

    #[test]
    #[ignore = "takes seconds without optimization"]
    fn of_a_million_neighbours_each_bit_flips_in_49_to_51_percent() {
        each_bit_flips_for_half_of_the_neighbours(1_000_000, 0.01);
    }

    #[test]
    fn only_32_digits_are_a_key_and_neither_it_nor_what_is_none_is_shown() {
        for text in
            ["", "1b1a", &KEY[1..], &format!("{KEY}0"), &format!("+{}", &KEY[1..]), &KEY.replace('b', "g")]
        {
            let error = text.parse::<Veil>().err().unwrap().to_string();
            assert!(
                error.contains("32 hexadecimal digits") && error.contains("openssl rand -hex 16"),
                "{error}"
            );
            assert!(text.len() < 4 || !error.contains(text), "{error}");
        }
        assert_eq!(format!("{:?}", veil()), "Veil(..)");
        assert!(KEY.to_uppercase().parse::<Veil>().is_ok_and(|upper| upper.check() == veil().check()));
    }

    proptest! {
        #[test]
        fn any_key_seals_as_the_definition_says_and_opens_again(key: u128, raw in 0..=LAST_ID, len in 0usize..80) {
            let veil = Veil::new(key.to_be_bytes());
            let plot = Id::new(raw);
            let mut wanted = naive(key, raw);
            while wanted > LAST_ID {
                wanted = naive(key, wanted);
            }
            prop_assert_eq!((veil.seal(plot).raw(), veil.check()), (wanted, naive(key, 0)));
            prop_assert_eq!(veil.open(veil.seal(plot)), plot);
            prop_assert_eq!(veil.seal(veil.open(plot)), plot);
            let mut many: Vec<Id> = (0..len as u64).map(|at| Id::new(raw >> 1 | at)).collect();
            let each: Vec<Id> = many.iter().map(|plot| veil.seal(*plot)).collect();
            veil.seal_all(&mut many);
            prop_assert_eq!(many, each);
        }
    }
}
