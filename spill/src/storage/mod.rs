//! What a log is kept in: the port that a file, or a simulator, is plugged into.

pub(crate) mod mapped;
#[cfg(any(test, feature = "test-util"))]
pub(crate) mod memory;

use std::io;

/// Bytes that can be read and written at offsets.
///
/// A log is its only user. A write that fails may have landed in part; a write that returned may be lost by a power
/// cut until [`sync`](Self::sync) returned.
pub trait Storage: Send {
    /// How many bytes there are now.
    fn len(&self) -> io::Result<u64>;

    /// Whether there are none.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Makes it at least `bytes` long, the new ones zero, with all space set aside, so that no later write within
    /// them can meet a full disk. Called once, on an empty storage.
    fn allocate(&mut self, bytes: u64) -> io::Result<()>;

    /// Fills `buf` from `offset` on. Bytes that are not there any more are a [`Shortened`] error.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes all `bytes` at `offset`, within the allocated length.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns when everything written so far would survive a power cut.
    fn sync(&mut self) -> io::Result<()>;
}

/// The storage ends before the bytes that were asked for. Travels inside an [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the file was shortened: {found} bytes are left of at least {needed}")]
pub struct Shortened {
    /// How many bytes there are.
    pub found: u64,
    /// How many there have to be.
    pub needed: u64,
}

impl Shortened {
    /// The one that this error carries, if it does.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref().and_then(|inner| inner.downcast_ref::<Self>()).copied()
    }

    /// Whether `length` bytes from `offset` are within `found` bytes.
    pub(crate) fn check(found: u64, offset: u64, length: usize) -> io::Result<()> {
        let needed = offset.saturating_add(length as u64);
        if needed <= found { Ok(()) } else { Err(Self { found, needed }.into()) }
    }
}

impl From<Shortened> for io::Error {
    fn from(shortened: Shortened) -> Self {
        Self::new(io::ErrorKind::UnexpectedEof, shortened)
    }
}

/// Fills a buffer from an offset: a [`Storage`], or a file that is only looked at.
pub(crate) type ReadAt<'a> = &'a dyn Fn(u64, &mut [u8]) -> io::Result<()>;
