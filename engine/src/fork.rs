//! The two things on the hit path that the language cannot say without `unsafe`: a word on a page that is wiped on
//! fork, and a thread-local's address in a register.
//!
//! The epoch word: one load tells a thread whether the run in its hand is still good.
//!
//! The word changes when runs in threads' hands are voided (once a second), when the engine shuts down, and,
//! because it lies on a page of its own that the kernel wipes in a forked child, in a child. Values come from one
//! counter of the process and are never used twice, so that equality also tells one engine from another.
//!
//! # Invariants
//! - I1 zero means "forked": no live engine ever stores it;
//! - I2 no value is stored twice, by any engine of the process;
//! - I3 epochs are multiples of [`EPOCH_STEP`].

#![expect(
    unsafe_code,
    reason = "a page that is wiped on fork has to be mapped by hand, and a hand's address kept in a register"
)]

use std::io;
use std::ptr;
use std::sync::atomic::AtomicU64 as PlainAtomicU64;

#[cfg(loom)]
pub(crate) use self::modelled::ForkWord;
#[cfg(not(loom))]
pub(crate) use self::page::ForkWord;
use crate::sync::{AtomicU64, Ordering, load_in_order, store_in_order};

/// Between two epochs. 2^44 of them are 557 years of a thousand engines that renew theirs each second.
pub(crate) const EPOCH_STEP: u64 = 1 << 20;

/// Not one that loom knows: it outlives a model.
static NEXT: PlainAtomicU64 = PlainAtomicU64::new(EPOCH_STEP);

#[cfg(not(loom))]
mod page {
    use std::ptr::NonNull;
    use std::sync::Arc;

    use rustix::mm::{self, Advice, MapFlags, ProtFlags};

    use super::{AtomicU64, io, ptr};
    use crate::guards::Guard;

    /// Bytes mapped. The kernel rounds up to its page, of at least this size on every 64-bit Linux.
    const PAGE: usize = 4096;

    /// The mapping. Unmapped when the last [`EpochWord`] of it is gone.
    #[derive(Debug)]
    struct Page(NonNull<AtomicU64>);

    // SAFETY: the page is only reached as an `AtomicU64`, which may be shared between threads.
    unsafe impl Send for Page {}
    // SAFETY: as above.
    unsafe impl Sync for Page {}

    impl Drop for Page {
        fn drop(&mut self) {
            // SAFETY: the range is the whole mapping, and no `EpochWord` is left that could reach it.
            let unmapped = unsafe { mm::munmap(self.0.as_ptr().cast(), PAGE) };
            debug_assert!(unmapped.is_ok());
        }
    }

    /// A word on a page of its own, zero in a forked child; clones share it. The pointer lies beside the owner, so that a
    /// hit follows one pointer and not two.
    #[derive(Debug, Clone)]
    pub(crate) struct ForkWord {
        word: NonNull<AtomicU64>,
        page: Arc<Page>,
    }

    // SAFETY: `word` is `page`'s pointer, and `page` may be sent and shared.
    unsafe impl Send for ForkWord {}
    // SAFETY: as above.
    unsafe impl Sync for ForkWord {}

    impl ForkWord {
        /// Maps a page. The word is zero.
        pub(crate) fn new() -> io::Result<Self> {
            // SAFETY: an anonymous private mapping at an address of the kernel's choice aliases nothing.
            let start = unsafe {
                mm::mmap_anonymous(
                    ptr::null_mut(),
                    PAGE,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE,
                )
            }?;
            let Some(word) = NonNull::new(start.cast::<AtomicU64>()) else {
                return Err(io::Error::other("the kernel mapped the page at address 0"));
            };
            let mapped = Self { word, page: Arc::new(Page(word)) };
            if !Guard::ForkPage.is_out() {
                // SAFETY: the range is the mapping made above, whole; the advice changes only what a child sees.
                unsafe { mm::madvise(start, PAGE, Advice::LinuxWipeOnFork) }?;
            }
            Ok(mapped)
        }

        #[inline(always)]
        #[expect(clippy::inline_always, reason = "part of the hit path")]
        pub(crate) fn word(&self) -> &AtomicU64 {
            debug_assert_eq!(self.word, self.page.0);
            // SAFETY: the page is mapped, zeroed by the kernel (a valid AtomicU64), aligned to 4096, and `self.page`
            // keeps it mapped as long as `self` lives.
            unsafe { self.word.as_ref() }
        }

        /// Whether others hold it too.
        pub(crate) fn is_shared(&self) -> bool {
            Arc::strong_count(&self.page) > 1
        }
    }
}

/// For models of what threads do with it, which know no fork.
#[cfg(loom)]
mod modelled {
    use std::sync::Arc;

    use super::{AtomicU64, io};

    #[derive(Debug, Clone)]
    pub(crate) struct ForkWord(Arc<AtomicU64>);

    impl ForkWord {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(Arc::new(AtomicU64::new(0))))
        }

        pub(crate) fn word(&self) -> &AtomicU64 {
            &self.0
        }

        pub(crate) fn is_shared(&self) -> bool {
            Arc::strong_count(&self.0) > 1
        }
    }
}

/// The epoch of an engine.
#[derive(Debug, Clone)]
pub(crate) struct EpochWord(ForkWord);

impl EpochWord {
    /// Maps a page and stores a first epoch.
    pub(crate) fn new() -> io::Result<Self> {
        let epoch = Self(ForkWord::new()?);
        epoch.renew();
        Ok(epoch)
    }

    /// The epoch now. Relaxed: a thread that sees an old one uses up a run that is its own anyway.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the hit path")]
    pub(crate) fn load(&self) -> u64 {
        self.0.word().load(Ordering::Relaxed)
    }

    /// The epoch, in the one order of all accesses of that kind: what [`Limit`](crate::handle::Limit) rests on.
    pub(crate) fn load_in_order(&self) -> u64 {
        // Pairs with the store in `renew` and the stores of `Limit`.
        load_in_order(self.0.word())
    }

    /// Whether this is a forked child of the process that made the word.
    pub(crate) fn forked(&self) -> bool {
        self.load() == 0
    }

    /// Voids every run in threads' hands.
    pub(crate) fn renew(&self) {
        // Pairs with `load_in_order`.
        store_in_order(self.0.word(), NEXT.fetch_add(EPOCH_STEP, Ordering::Relaxed));
    }
}

/// The same reference, in a register, without the compiler's knowledge that it leads to a thread-local.
///
/// Else each access of a hit carries a segment prefix, and the store of one hit reaches the load of the next more
/// slowly: 784 M ids/s instead of 1,157 on one thread, 1,267 instead of 2,015 on two (two-core Sapphire Rapids,
/// `cargo bench -p xuid-benches --bench next_id`, medians of five). No instruction is added, and the address is
/// computed once outside a caller's loop.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it is part of the hit path and no code of its own")]
#[expect(
    clippy::pointers_in_nomem_asm_block,
    reason = "there is no instruction that could follow the pointer"
)]
pub(crate) fn in_register<T>(value: &T) -> &T {
    let mut address = ptr::from_ref(value);
    // SAFETY: there is no instruction, so the register holds what it held; nothing else is touched.
    unsafe {
        std::arch::asm!("/* {} */", inout(reg) address, options(pure, nomem, nostack, preserves_flags));
    }
    // SAFETY: it is `value`'s own address, under `value`'s own lifetime.
    unsafe { &*address }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::guards::Guard;

    /// Whether a forked child finds the word wiped, and the parent does not.
    fn is_wiped_in_a_child() -> bool {
        let word = EpochWord::new().unwrap();
        // SAFETY: the child only loads the word and ends at once, which is allowed after a fork of many threads.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let status = i32::from(!word.forked());
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(status) };
        }
        let mut status = -1;
        // SAFETY: waits for the child made above, and writes into a variable of this frame.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert!(waited == child && libc::WIFEXITED(status), "the child ended with {status}");
        assert!(!word.forked(), "the parent's is as it was");
        libc::WEXITSTATUS(status) == 0
    }

    #[test]
    fn a_forked_child_finds_the_word_wiped() {
        assert!(is_wiped_in_a_child());
    }

    #[test]
    fn a_page_that_is_not_wiped_is_found_out() {
        assert!(!Guard::without(&[Guard::ForkPage], is_wiped_in_a_child));
    }

    #[test]
    fn two_words_never_hold_the_same_epoch() {
        let (a, b) = (EpochWord::new().unwrap(), EpochWord::new().unwrap());
        let first = a.load();
        a.renew();
        assert!(first != a.load() && a.load() != b.load() && first != b.load());
        assert!(!a.forked());
    }
}
