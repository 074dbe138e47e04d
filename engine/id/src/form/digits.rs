//! The digits of each form: what is written for each value, and what value is read from each byte.

/// Of [`Reader`]: no digit.
pub(super) const NONE: u8 = 0xFF;

/// Of [`Reader`]: stands between digits, and means nothing.
pub(super) const SKIPPED: u8 = 0xFE;

/// The value of each byte, or [`NONE`], or [`SKIPPED`].
pub(super) type Reader = [u8; 256];

pub(super) const BASE10: &[u8; 10] = b"0123456789";
pub(super) const BASE16: &[u8; 16] = b"0123456789abcdef";
pub(super) const BASE36: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// Douglas Crockford's base 32: without I, L, O and U.
pub(super) const CROCKFORD32: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Bitcoin's base 58: without 0, I, O and l.
pub(super) const BASE58: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
pub(super) const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The digits of `ID.Base32` of github.com/bwmarrin/snowflake: those of z-base-32.
pub(super) const BWMARRIN32: &[u8; 32] = b"ybndrfg8ejkmcpqxot1uwisza345h769";
/// The digits of `ID.Base58` of github.com/bwmarrin/snowflake: as Bitcoin's, with small letters before capitals.
pub(super) const BWMARRIN58: &[u8; 58] = b"123456789abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ";

pub(super) static READ_10: Reader = exactly(BASE10);
pub(super) static READ_16: Reader = in_either_case(exactly(BASE16));
pub(super) static READ_36: Reader = in_either_case(exactly(BASE36));
pub(super) static READ_CROCKFORD32: Reader = crockford();
pub(super) static READ_58: Reader = exactly(BASE58);
pub(super) static READ_62: Reader = exactly(BASE62);
pub(super) static READ_BWMARRIN32: Reader = exactly(BWMARRIN32);
pub(super) static READ_BWMARRIN58: Reader = exactly(BWMARRIN58);

/// Reads these digits, and nothing else.
const fn exactly(digits: &[u8]) -> Reader {
    let mut values = [NONE; 256];
    let mut value = 0;
    while value < digits.len() {
        values[digits[value] as usize] = value as u8;
        value += 1;
    }
    values
}

/// A letter that is no digit is read as the same letter in the other case.
const fn in_either_case(mut values: Reader) -> Reader {
    let mut letter = b'a';
    while letter <= b'z' {
        let (small, capital) = (letter as usize, letter.to_ascii_uppercase() as usize);
        if values[capital] == NONE {
            values[capital] = values[small];
        } else if values[small] == NONE {
            values[small] = values[capital];
        }
        letter += 1;
    }
    values
}

/// What people take for another digit is that digit, and hyphens may stand anywhere.
const fn crockford() -> Reader {
    let mut values = exactly(CROCKFORD32);
    values[b'I' as usize] = 1;
    values[b'L' as usize] = 1;
    values[b'O' as usize] = 0;
    let mut values = in_either_case(values);
    values[b'-' as usize] = SKIPPED;
    values
}
