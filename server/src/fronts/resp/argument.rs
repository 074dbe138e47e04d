//! What the arguments of commands say: numbers, keys, patterns.

use std::borrow::Cow;

use xuid_engine::sequence::SequenceName;
use xuid_protocol::{Order, Refusal, Status};

/// Which ids are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    /// The engine's own ids.
    Ids(Order),
    /// Numbers of a sequence.
    Name(SequenceName),
}

/// Why words are no command here: the kind of the error is ERR.
pub(super) fn bad(text: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::new(Status::BAD_REQUEST, text)
}

/// The longest pattern: more than any name, so that to compare a page of names takes no long time.
const MOST_PATTERN: usize = 256;

pub(super) fn pattern(bytes: &[u8]) -> Result<&str, Refusal> {
    if bytes.len() > MOST_PATTERN {
        return Err(bad(format!("a pattern has at most {MOST_PATTERN} bytes")));
    }
    text(bytes)
}

/// The front of an argument, for an error.
pub(super) fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(64)].escape_ascii().to_string()
}

pub(super) fn text(bytes: &[u8]) -> Result<&str, Refusal> {
    str::from_utf8(bytes).map_err(|_| bad("an argument is not UTF-8"))
}

/// A number without a sign, of digits alone.
pub(super) fn number(bytes: &[u8]) -> Option<u64> {
    bytes.first().filter(|first| first.is_ascii_digit())?;
    str::from_utf8(bytes).ok()?.parse().ok()
}

/// How many ids; whether that many may be asked for is the limits' to say.
pub(super) fn many(bytes: &[u8]) -> Result<u32, Refusal> {
    let many = number(bytes).filter(|many| *many > 0);
    let many = many.ok_or_else(|| bad("a sequence only rises: the count is a number from 1 on"))?;
    Ok(u32::try_from(many).unwrap_or(u32::MAX))
}

/// The value of a counter that is moved over.
pub(super) fn value(bytes: &[u8]) -> Result<u64, Refusal> {
    let allowed = number(bytes).filter(|value| *value < (1 << 63) - 1);
    allowed.ok_or_else(|| bad("the value of a counter is a number from 0 to 9223372036854775806"))
}

pub(super) fn name(bytes: &[u8]) -> Result<SequenceName, Refusal> {
    SequenceName::from_bytes(bytes).map_err(|error| bad(error.to_string()))
}

pub(super) fn key_or_any(bytes: Option<&&[u8]>) -> Result<Key, Refusal> {
    bytes.map_or(Ok(Key::Ids(Order::Any)), |bytes| key(bytes))
}

pub(super) fn key(bytes: &[u8]) -> Result<Key, Refusal> {
    Ok(match bytes {
        b"@any" => Key::Ids(Order::Any),
        b"@fresh" => Key::Ids(Order::Fresh),
        b"@ordered" => Key::Ids(Order::Ordered),
        _ => Key::Name(name(bytes)?),
    })
}
