//! What a caller can be told.

use std::fmt;
use std::time::Duration;

use xuid_id::Id;

/// Which kind of refusal an [`IdError`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdErrorKind {
    /// No window of ticks is held yet, or the last one ended while the registry was away.
    /// [`Engine::status`](crate::Engine::status) says what it waits for.
    NotReady,
    /// Everything minted up to now is spent.
    Overloaded,
    /// The wall clock went back, and no worker may mint at the new time yet.
    ClockBehind,
    /// The window was lost to somebody else, and another is being taken.
    WindowLost,
    /// The time bits of the layout have run out, or the clock is before the layout's epoch.
    Exhausted,
    /// The engine is being shut down, or was.
    ShuttingDown,
    /// This process is a fork of the one that built the engine, and must build its own.
    Forked,
    /// Ordered ids were asked for, and the ids of this namespace are opaque: they have no order.
    NoOrder,
}

/// Why a call for ids got none. Nothing was issued; whatever had been gathered went back.
///
/// It is one word, copied freely: a result that holds it is returned in two registers, and costs the call that
/// brings an id nothing.
///
/// ```
/// # use xuid_engine::{Engine, IdErrorKind};
/// # let folder = tempfile::tempdir().unwrap();
/// # let engine = Engine::builder().data_dir(folder.path()).build().unwrap();
/// # engine.shutdown();
/// match engine.next_id() {
///     Ok(id) => println!("{id}"),
///     Err(error) if error.is_retryable() => println!("{error}: again in {:?}", error.retry_after()),
///     Err(error) => assert_eq!(error.kind(), IdErrorKind::ShuttingDown),
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct IdError {
    /// From the lowest bit: 4 bits of kind, 20 of `wait` and 39 of `retry_after`, in milliseconds; then a one, which no
    /// id has there.
    word: u64,
}

const KIND_BITS: u32 = 4;
const WAIT_BITS: u32 = 20;
const RETRY_BITS: u32 = 39;

/// In place of the wait of a call that could not.
const NO_PLACE: u64 = (1 << WAIT_BITS) - 1;
const MARK: u64 = 1 << 63;

/// A time in whole milliseconds, rounded up; the most that so many bits hold if it is more.
fn millis(time: Duration, bits: u32) -> u64 {
    let whole = time.as_nanos().div_ceil(1_000_000);
    u64::try_from(whole).unwrap_or(u64::MAX).min((1 << bits) - 1)
}

impl IdError {
    const fn of(kind: IdErrorKind) -> Self {
        Self { word: MARK | kind as u64 }
    }

    pub(crate) const SHUTTING_DOWN: Self = Self::of(IdErrorKind::ShuttingDown);
    pub(crate) const FORKED: Self = Self::of(IdErrorKind::Forked);
    pub(crate) const NO_ORDER: Self = Self::of(IdErrorKind::NoOrder);
    pub(crate) const EXHAUSTED: Self = Self::of(IdErrorKind::Exhausted);

    fn again(kind: IdErrorKind, retry_after: Duration) -> Self {
        let word = Self::of(kind).word | millis(retry_after, RETRY_BITS) << (KIND_BITS + WAIT_BITS);
        Self { word }
    }

    pub(crate) fn not_ready(retry_after: Duration) -> Self {
        Self::again(IdErrorKind::NotReady, retry_after)
    }

    pub(crate) fn window_lost(retry_after: Duration) -> Self {
        Self::again(IdErrorKind::WindowLost, retry_after)
    }

    pub(crate) fn clock_behind(retry_after: Duration) -> Self {
        Self::again(IdErrorKind::ClockBehind, retry_after)
    }

    pub(crate) fn overloaded(wait: Duration, retry_after: Duration) -> Self {
        let Self { word } = Self::again(IdErrorKind::Overloaded, retry_after);
        Self { word: word | millis(wait, WAIT_BITS).min(NO_PLACE - 1) << KIND_BITS }
    }

    /// It could not wait, since too many do.
    pub(crate) fn without_place(retry_after: Duration) -> Self {
        let Self { word } = Self::again(IdErrorKind::Overloaded, retry_after);
        Self { word: word | NO_PLACE << KIND_BITS }
    }

    /// Which kind it is.
    #[must_use]
    pub fn kind(self) -> IdErrorKind {
        const KINDS: [IdErrorKind; 8] = [
            IdErrorKind::NotReady,
            IdErrorKind::Overloaded,
            IdErrorKind::ClockBehind,
            IdErrorKind::WindowLost,
            IdErrorKind::Exhausted,
            IdErrorKind::ShuttingDown,
            IdErrorKind::Forked,
            IdErrorKind::NoOrder,
        ];
        KINDS[(self.word & ((1 << KIND_BITS) - 1)) as usize]
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        !matches!(
            self.kind(),
            IdErrorKind::Exhausted | IdErrorKind::ShuttingDown | IdErrorKind::Forked | IdErrorKind::NoOrder
        )
    }

    /// When it is worth trying again, in whole milliseconds; at most 17 years.
    #[must_use]
    pub fn retry_after(self) -> Option<Duration> {
        self.is_retryable().then(|| Duration::from_millis((self.word & !MARK) >> (KIND_BITS + WAIT_BITS)))
    }

    /// How long the call was allowed to wait.
    fn wait(self) -> Duration {
        Duration::from_millis(self.word >> KIND_BITS & ((1 << WAIT_BITS) - 1))
    }
}

/// The outcome of a call in one word. A cold path returns it instead of a [`Result`]: where the hit's result meets one
/// that a function returned, the compiler joins the two pairs of registers before it looks into either, and each hit is
/// asked again whether it was one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome(u64);

impl Outcome {
    /// Takes it apart.
    #[inline]
    pub(crate) fn result(self) -> Result<Id, IdError> {
        if self.0 & MARK == 0 { Ok(Id::new(self.0)) } else { Err(IdError { word: self.0 }) }
    }
}

impl From<Result<Id, IdError>> for Outcome {
    fn from(result: Result<Id, IdError>) -> Self {
        Self(result.map_or_else(|error| error.word, Id::raw))
    }
}

impl fmt::Debug for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdError")
            .field("kind", &self.kind())
            .field("retry_after", &self.retry_after())
            .finish()
    }
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retry_after = self.retry_after().unwrap_or_default();
        match self.kind() {
            IdErrorKind::NotReady => write!(
                f,
                "no window of ticks is held (the engine's status says why); try again in {retry_after:?}"
            ),
            IdErrorKind::Overloaded if self.wait() == Duration::from_millis(NO_PLACE) => write!(
                f,
                "every id up to now is spent, and too many calls wait already, of this caller or of all; try again in \
                 {retry_after:?}, with fewer calls at once, or hold more workers"
            ),
            IdErrorKind::Overloaded => write!(
                f,
                "every id up to now is spent and {:?} brought too few; try again in {retry_after:?}, with fewer, or hold more workers",
                self.wait()
            ),
            IdErrorKind::ClockBehind => write!(
                f,
                "the clock is behind what was already issued, and stays so for {retry_after:?}; try again then, or at another server"
            ),
            IdErrorKind::WindowLost => write!(
                f,
                "the window of ticks was lost; another is being taken, try again in {retry_after:?}"
            ),
            IdErrorKind::Exhausted => f.write_str(
                "the clock is before the layout's epoch or past its last tick: check the clock, or choose a layout with more time bits",
            ),
            IdErrorKind::ShuttingDown => f.write_str("the engine is shut down"),
            IdErrorKind::NoOrder => f.write_str(
                "ordered ids were asked for, and the ids of this namespace are opaque and have no order: ask for fresh ones, or \
                 for any",
            ),
            IdErrorKind::Forked => f.write_str(
                "this process was forked from the one that built the engine: build an engine of its own after the fork",
            ),
        }
    }
}

impl std::error::Error for IdError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_a_call_fits_into_two_registers() {
        assert_eq!(size_of::<Result<Id, IdError>>(), 16);
    }

    #[test]
    fn a_word_tells_ids_from_errors() {
        let highest = Id::from_raw((1 << 63) - 1).unwrap();
        for result in
            [Ok(highest), Ok(Id::default()), Err(IdError::FORKED), Err(IdError::not_ready(Duration::MAX))]
        {
            assert_eq!(Outcome::from(result).result(), result);
        }
    }

    #[test]
    fn an_error_keeps_its_kind_and_its_times() {
        let (minute, year) = (Duration::from_mins(1), Duration::from_hours(365 * 24));
        let error = IdError::overloaded(minute, Duration::from_micros(1_500));
        assert_eq!(error.kind(), IdErrorKind::Overloaded);
        assert_eq!((error.wait(), error.retry_after()), (minute, Some(Duration::from_millis(2))));
        assert_eq!(IdError::clock_behind(year * 15).retry_after(), Some(year * 15));
        let longest = IdError::clock_behind(Duration::MAX).retry_after().unwrap();
        assert!(longest > year * 17 && IdError::not_ready(Duration::ZERO).is_retryable());
        assert_eq!(IdError::FORKED.retry_after(), None);
        assert!(format!("{error:?} {error}").contains("60s brought"), "{error}");
        // A wait for longer than there is room for is no want of places.
        let patient = IdError::overloaded(Duration::MAX, minute).to_string();
        assert!(patient.contains("brought too few") && !patient.contains("calls wait"), "{patient}");
        assert!(IdError::without_place(minute).to_string().contains("too many calls wait"));
    }
}
