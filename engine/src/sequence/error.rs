//! What a caller of a sequence can be told.

use std::fmt;
use std::time::Duration;

use super::name::{NameError, SequenceName};
use super::store::Row;

/// Which kind of refusal a [`SequenceError`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SequenceErrorKind {
    /// The store has no sequence of that name.
    NoSequence,
    /// Nothing is held, and the store, or the witness, was away for as long as the call could wait.
    StoreAway,
    /// The store may have gone back, and nothing can show that it did not. It wants a fence.
    StoreBehind,
    /// Nothing is held, and what the store granted came too late or was too little for all who wait.
    Overloaded,
    /// The last number was issued.
    Exhausted,
    /// No ids, or more than one call may ask for.
    Count,
    /// The sequences are being closed, or were.
    ShuttingDown,
    /// This process is a fork of the one that built the sequences, and must build its own.
    Forked,
}

/// All kinds, by their numbers in a word.
const KINDS: [SequenceErrorKind; 8] = [
    SequenceErrorKind::NoSequence,
    SequenceErrorKind::StoreAway,
    SequenceErrorKind::StoreBehind,
    SequenceErrorKind::Overloaded,
    SequenceErrorKind::Exhausted,
    SequenceErrorKind::Count,
    SequenceErrorKind::ShuttingDown,
    SequenceErrorKind::Forked,
];

/// Why a call for ids of a sequence got none. Nothing was issued.
///
/// It is one word, copied freely: a result that holds it is returned in two registers, and costs the call that brings an
/// id nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SequenceError {
    /// From the lowest bit: 4 bits of kind, then `retry_after` in milliseconds; the highest bit is set, which no id has.
    word: u64,
}

const KIND_BITS: u32 = 4;
const MARK: u64 = 1 << 63;

impl SequenceError {
    const fn of(kind: SequenceErrorKind) -> Self {
        Self { word: MARK | kind as u64 }
    }

    pub(crate) const NO_SEQUENCE: Self = Self::of(SequenceErrorKind::NoSequence);
    pub(crate) const EXHAUSTED: Self = Self::of(SequenceErrorKind::Exhausted);
    pub(crate) const COUNT: Self = Self::of(SequenceErrorKind::Count);
    pub(crate) const SHUTTING_DOWN: Self = Self::of(SequenceErrorKind::ShuttingDown);
    pub(crate) const FORKED: Self = Self::of(SequenceErrorKind::Forked);

    fn again(kind: SequenceErrorKind, retry_after: Duration) -> Self {
        let ms = u64::try_from(retry_after.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Self { word: Self::of(kind).word | ms.min((1 << 39) - 1) << KIND_BITS }
    }

    pub(crate) fn store_away(retry_after: Duration) -> Self {
        Self::again(SequenceErrorKind::StoreAway, retry_after)
    }

    pub(crate) fn store_behind(retry_after: Duration) -> Self {
        Self::again(SequenceErrorKind::StoreBehind, retry_after)
    }

    pub(crate) fn overloaded(retry_after: Duration) -> Self {
        Self::again(SequenceErrorKind::Overloaded, retry_after)
    }

    /// Which kind it is.
    #[must_use]
    pub fn kind(self) -> SequenceErrorKind {
        KINDS[(self.word & ((1 << KIND_BITS) - 1)) as usize]
    }

    /// Whether the same call may succeed later without anybody's help but time's; a store that wants a fence is retried,
    /// too, since the fence changes nothing here.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        use SequenceErrorKind::{Overloaded, StoreAway, StoreBehind};
        matches!(self.kind(), StoreAway | StoreBehind | Overloaded)
    }

    /// When it is worth trying again, in whole milliseconds.
    #[must_use]
    pub fn retry_after(self) -> Option<Duration> {
        self.is_retryable().then(|| Duration::from_millis((self.word & !MARK) >> KIND_BITS))
    }
}

/// The outcome of a call in one word: see [`id::error::Outcome`](crate::id::error).
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutcomeWord(u64);

impl OutcomeWord {
    /// Takes it apart.
    #[inline]
    pub(crate) fn result(self) -> Result<u64, SequenceError> {
        if self.0 & MARK == 0 { Ok(self.0) } else { Err(SequenceError { word: self.0 }) }
    }
}

impl From<Result<u64, SequenceError>> for OutcomeWord {
    fn from(result: Result<u64, SequenceError>) -> Self {
        Self(result.unwrap_or_else(|error| error.word))
    }
}

impl fmt::Debug for SequenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SequenceError")
            .field("kind", &self.kind())
            .field("retry_after", &self.retry_after())
            .finish()
    }
}

impl fmt::Display for SequenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retry_after = self.retry_after().unwrap_or_default();
        match self.kind() {
            SequenceErrorKind::NoSequence => {
                f.write_str("the store has no sequence of this name: create it, or allow its creation")
            }
            SequenceErrorKind::StoreAway => {
                write!(f, "no id is held and the store is away; try again in {retry_after:?}")
            }
            SequenceErrorKind::StoreBehind => write!(
                f,
                "the store of the sequences may have gone back, so no ids are taken from it until it is fenced \
                 (`xuid sequence fence`); tried again in {retry_after:?}"
            ),
            SequenceErrorKind::Overloaded => {
                write!(f, "no id is held and the next grant is not there yet; try again in {retry_after:?}")
            }
            SequenceErrorKind::Exhausted => f.write_str("the sequence has issued its last number"),
            SequenceErrorKind::Count => {
                write!(f, "a call asks for 1 to {} ids", super::numbers::MOST_IDS)
            }
            SequenceErrorKind::ShuttingDown => f.write_str("the sequences are closed"),
            SequenceErrorKind::Forked => f.write_str(
                "this process was forked from the one that built the sequences: build others after the fork",
            ),
        }
    }
}

impl std::error::Error for SequenceError {}

/// Why a sequence could not be shown, listed, created or altered.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The name is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// There is no such sequence.
    #[error("there is no sequence '{name}'{}", similar.as_ref().map(|found| format!("; there is '{found}'")).unwrap_or_default())]
    NoSequence {
        /// The name.
        name: SequenceName,
        /// One that the store takes for the same.
        similar: Option<String>,
    },
    /// There is one, with other settings.
    #[error("there is a sequence '{}' with other settings", found.name)]
    Exists {
        /// The one that is there.
        found: Box<Row>,
    },
    /// A fence closed it: more may have been granted than its store knows. Nothing was changed.
    #[error("{why}")]
    StoreBehind {
        /// What was closed, and what to do.
        why: String,
    },
    /// It cannot be done so.
    #[error("{why}")]
    Refused {
        /// Why, and what to do.
        why: String,
    },
    /// The store is away, and nothing was changed.
    #[error("the store cannot be reached: {why}")]
    StoreAway {
        /// What happened.
        why: String,
    },
    /// Whether the change was made is not known. Look, and try again.
    #[error("nobody knows whether the store made the change: {why}")]
    Unknown {
        /// What happened.
        why: String,
    },
    /// The sequences are being closed, or were.
    #[error("the sequences are closed")]
    ShuttingDown,
    /// This process is a fork of the one that built the sequences.
    #[error("this process was forked from the one that built the sequences: build others after the fork")]
    Forked,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_tells_ids_from_errors_and_keeps_kind_and_time() {
        assert_eq!(size_of::<Result<u64, SequenceError>>(), 16);
        for (number, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            assert_eq!(SequenceError::of(kind).kind(), kind);
        }
        let error = SequenceError::store_away(Duration::from_micros(250_001));
        assert_eq!(error.retry_after(), Some(Duration::from_millis(251)));
        assert_eq!(SequenceError::store_behind(Duration::MAX).kind(), SequenceErrorKind::StoreBehind);
        assert_eq!(SequenceError::EXHAUSTED.retry_after(), None);
        for result in [Ok(0), Ok((1 << 63) - 1), Err(error), Err(SequenceError::FORKED)] {
            assert_eq!(OutcomeWord::from(result).result(), result);
        }
    }
}
