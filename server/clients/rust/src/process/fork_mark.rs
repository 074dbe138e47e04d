//! A word on a page of its own that the kernel wipes in a forked child (`MADV_WIPEONFORK`, Linux 4.14).
//!
//! # Invariants
//! - I1 the word is 1 from the end of [`ForkMark::new`] on, in the process that called it, and 0 in each of its
//!   children.

#![expect(unsafe_code, reason = "a page that is wiped on fork has to be mapped by hand")]

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::mm::{self, Advice, MapFlags, ProtFlags};

/// Bytes mapped. The kernel rounds up to its page, of at least this size on every Linux.
const PAGE: usize = 4096;

/// The mapping. Unmapped when it is dropped, in a child the child's own.
#[derive(Debug)]
pub(crate) struct ForkMark(NonNull<AtomicU32>);

// SAFETY: the page is only reached as an `AtomicU32`, which may be shared between threads.
unsafe impl Send for ForkMark {}
// SAFETY: as above.
unsafe impl Sync for ForkMark {}

impl ForkMark {
    /// An error where the kernel has no page to give, or does not wipe it.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: an anonymous private mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            mm::mmap_anonymous(ptr::null_mut(), PAGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        let Some(word) = NonNull::new(start.cast::<AtomicU32>()) else {
            return Err(io::Error::other("the kernel mapped the page at address 0"));
        };
        let mark = Self(word);
        // SAFETY: the range is the mapping made above, whole; the advice changes only what a child sees.
        unsafe { mm::madvise(start, PAGE, Advice::LinuxWipeOnFork) }?;
        // Before anything belongs to the mark: a process that is forked off meanwhile has no copy of what does.
        mark.word().store(1, Relaxed);
        Ok(mark)
    }

    /// Whether this is a child of the process that made it.
    #[inline]
    pub(crate) fn is_wiped(&self) -> bool {
        self.word().load(Relaxed) == 0
    }

    #[inline]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: the page is mapped, zeroed by the kernel (a valid AtomicU32) and aligned to 4096, until `self` is
        // dropped.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        // SAFETY: the range is the whole mapping, and nothing reaches it after `self`.
        let unmapped = unsafe { mm::munmap(self.0.as_ptr().cast(), PAGE) };
        debug_assert!(unmapped.is_ok());
    }
}
