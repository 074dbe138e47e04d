//! What the hit path needs and the language cannot say without `unsafe`: a word on a page that is wiped on fork, its
//! address beside what keeps it mapped, and a thread-local's address in a register.
//!
//! The generation word: one load tells a thread whether the run in its hand is still good.
//!
//! The word changes when runs in threads' hands are voided (once a second), when the engine shuts down, and,
//! because it lies on a page of its own that the kernel wipes in a forked child, in a child. Values come from one
//! counter of the process and are never used twice, so that equality also tells one engine from another.
//!
//! # Invariants
//! - I1 zero means "forked": no live engine ever stores it;
//! - I2 no value is stored twice, by any engine of the process;
//! - I3 generations are multiples of [`GENERATION_STEP`].

#![expect(
    unsafe_code,
    reason = "a page that is wiped on fork has to be mapped by hand, and a hand's address kept in a register"
)]

use std::io;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64 as PlainAtomicU64;

#[cfg(loom)]
pub(crate) use self::modelled::{Began, ForkWord, Maker, WordPool};
#[cfg(all(test, not(loom)))]
pub(crate) use self::page::ProcessMark;
#[cfg(not(loom))]
pub(crate) use self::page::{Began, ForkWord, Maker, WordPool};
use crate::sys::atomics::{AtomicU64, Ordering, load_in_order, store_in_order};

/// Between two generations. 2^44 of them are 557 years of a thousand engines that renew theirs each second.
pub(crate) const GENERATION_STEP: u64 = 1 << 20;

/// Not one that loom knows: it outlives a model.
static NEXT: PlainAtomicU64 = PlainAtomicU64::new(GENERATION_STEP);

#[cfg(not(loom))]
mod page {
    use std::sync::Arc;
    use std::sync::atomic::AtomicPtr;
    use std::sync::atomic::Ordering::{AcqRel, Acquire};

    use rustix::mm::{self, Advice, MapFlags, ProtFlags};

    use super::{AtomicU64, GENERATION_STEP, NEXT, NonNull, Ordering, io, ptr};
    use crate::sys::guards::Guard;

    /// Bytes mapped. The kernel rounds up to its page, of at least this size on every 64-bit Linux.
    const PAGE: usize = 4096;

    /// Bytes of a cache line: words of one page lie so far apart, so that a store to one delays no load of another.
    const LINE: usize = 64;

    /// Words that a page has room for.
    pub(super) const WORDS: usize = PAGE / LINE;

    /// The mapping. Unmapped when the last [`ForkWord`] of it is gone.
    #[derive(Debug)]
    struct Page(NonNull<AtomicU64>);

    // SAFETY: the page is only reached as an `AtomicU64`, which may be shared between threads.
    unsafe impl Send for Page {}
    // SAFETY: as above.
    unsafe impl Sync for Page {}

    impl Drop for Page {
        fn drop(&mut self) {
            // SAFETY: the range is the whole mapping, and no `ForkWord` is left that could reach it.
            let unmapped = unsafe { mm::munmap(self.0.as_ptr().cast(), PAGE) };
            debug_assert!(unmapped.is_ok());
        }
    }

    /// A word on a page of its own, or on one that it shares with words of a [`WordPool`], zero in a forked child; clones
    /// share it. The pointer lies beside the owner, so that a hit follows one pointer and not two.
    #[derive(Debug, Clone)]
    pub(crate) struct ForkWord {
        word: NonNull<AtomicU64>,
        page: Arc<Page>,
    }

    // SAFETY: `word` points into `page`, which may be sent and shared.
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
            if Guard::ForkPage.holds() {
                // SAFETY: the range is the mapping made above, whole; the advice changes only what a child sees.
                unsafe { mm::madvise(start, PAGE, Advice::LinuxWipeOnFork) }?;
            }
            Ok(mapped)
        }

        #[inline(always)]
        #[expect(clippy::inline_always, reason = "part of the hit path")]
        pub(crate) fn word(&self) -> &AtomicU64 {
            debug_assert_eq!(self.word.addr().get() / PAGE, self.page.0.addr().get() / PAGE);
            // SAFETY: the word is one of the first `WORDS` lines of the page (`new`, `beside`), which is mapped, zeroed by
            // the kernel (a valid AtomicU64) and aligned to 4096, and which `self.page` keeps mapped as long as `self`
            // lives.
            unsafe { self.word.as_ref() }
        }

        /// The word in that line of the same page.
        fn beside(&self, line: usize) -> Self {
            assert!(line < WORDS, "a page has no line {line}");
            // SAFETY: the page is `PAGE` bytes long from `self.page.0` on, and the line begins within it.
            let word = unsafe { self.page.0.byte_add(line * LINE) };
            Self { word, page: self.page.clone() }
        }

        /// Whether this is a child of the process that stored something.
        pub(crate) fn is_wiped(&self) -> bool {
            self.word().load(Ordering::Relaxed) == 0
        }

        /// Whether others hold it too.
        pub(crate) fn is_shared(&self) -> bool {
            Arc::strong_count(&self.page) > 1
        }
    }

    /// Words by the thousand: each has a line of a page that it shares with others. A page goes when its last word does.
    #[derive(Debug, Default)]
    pub(crate) struct WordPool {
        /// The page in use, and the line of the next word.
        page: Option<(ForkWord, usize)>,
    }

    impl WordPool {
        /// A word that no other code has. It is zero.
        pub(crate) fn take(&mut self) -> io::Result<ForkWord> {
            let (page, line) = match self.page.take() {
                Some(found) => found,
                None => (ForkWord::new()?, 0),
            };
            let word = page.beside(line);
            self.page = (line + 1 < WORDS).then_some((page, line + 1));
            Ok(word)
        }
    }

    /// A word with a value that is another one in each forked child.
    #[derive(Debug)]
    pub(crate) struct ProcessMark(ForkWord);

    impl ProcessMark {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(ForkWord::new()?))
        }

        /// The mark of all that lives in one process: made once, and there for good. `None`: the system has no page for it.
        fn of_all() -> Option<&'static Self> {
            // No lock, which a child might find held.
            static MADE: AtomicPtr<ProcessMark> = AtomicPtr::new(ptr::null_mut());
            let found = MADE.load(Acquire);
            let mark = if found.is_null() {
                let mine = Box::into_raw(Box::new(Self::new().ok()?));
                match MADE.compare_exchange(ptr::null_mut(), mine, AcqRel, Acquire) {
                    Ok(_) => mine,
                    Err(theirs) => {
                        // SAFETY: it was made above, and nobody else has seen it.
                        drop(unsafe { Box::from_raw(mine) });
                        theirs
                    }
                }
            } else {
                found
            };
            // SAFETY: what stands there was a box, and is never dropped.
            Some(unsafe { &*mark })
        }

        fn value(&self) -> u64 {
            let word = self.0.word();
            let found = word.load(Ordering::Relaxed);
            if found != 0 {
                return found;
            }
            // The first one of this process.
            let mine = NEXT.fetch_add(GENERATION_STEP, Ordering::Relaxed);
            word.compare_exchange(0, mine, Ordering::Relaxed, Ordering::Relaxed)
                .map_or_else(|theirs| theirs, |_| mine)
        }

        /// As a fork leaves it in the child.
        #[cfg(test)]
        pub(crate) fn wipe(&self) {
            self.0.word().store(0, Ordering::Relaxed);
        }
    }

    /// The process in which something begins, for who looks again behind a stranger's code that may have forked.
    #[derive(Debug)]
    pub(crate) struct Began {
        /// Where the system wipes no pages.
        id: u32,
        mark: Option<(&'static ProcessMark, u64)>,
    }

    impl Began {
        /// In this process.
        pub(crate) fn here() -> Self {
            Self::by(ProcessMark::of_all())
        }

        pub(crate) fn by(mark: Option<&'static ProcessMark>) -> Self {
            Self { id: std::process::id(), mark: mark.map(|mark| (mark, mark.value())) }
        }

        /// Whether this is a child of that process.
        pub(crate) fn forked(&self) -> bool {
            self.mark.is_some_and(|(mark, value)| mark.value() != value) || std::process::id() != self.id
        }
    }

    /// The process that made something. Its id does not tell it from a forked child: the first process of a pid namespace
    /// has the id that its parent has, if that one is the first of another.
    #[derive(Debug, Clone)]
    pub(crate) struct Maker(ForkWord);

    impl Maker {
        /// This process.
        pub(crate) fn this_process() -> io::Result<Self> {
            let word = ForkWord::new()?;
            word.word().store(1, Ordering::Relaxed);
            Ok(Self(word))
        }

        /// Whether this is a forked child of the maker.
        pub(crate) fn forked(&self) -> bool {
            self.0.is_wiped()
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

        /// No load: with one before the store of a turn-over loom does not come upon a thread between the two any more,
        /// and negative controls find nothing.
        pub(crate) fn is_wiped(&self) -> bool {
            false
        }

        pub(crate) fn is_shared(&self) -> bool {
            Arc::strong_count(&self.0) > 1
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct WordPool;

    impl WordPool {
        #[expect(clippy::unused_self, reason = "as the real one")]
        pub(crate) fn take(&mut self) -> io::Result<ForkWord> {
            ForkWord::new()
        }
    }

    #[derive(Debug)]
    pub(crate) struct Began;

    impl Began {
        pub(crate) fn here() -> Self {
            Self
        }

        #[expect(clippy::unused_self, reason = "as the real one")]
        pub(crate) fn forked(&self) -> bool {
            false
        }
    }

    /// Knows no fork, and has no word: a registry is made outside of models, too.
    #[derive(Debug, Clone)]
    pub(crate) struct Maker;

    impl Maker {
        pub(crate) fn this_process() -> io::Result<Self> {
            Ok(Self)
        }

        pub(crate) fn forked(&self) -> bool {
            false
        }
    }
}

/// A value on the heap, with a word that it keeps mapped, and the word's address here, beside it: one pointer leads to
/// either. What is not inlined never gets the address of the variable that holds it, not even when that is dropped, so
/// that the compiler may keep it, and what lies beside it, in registers.
pub(crate) struct WithWord<T> {
    word: NonNull<AtomicU64>,
    value: ManuallyDrop<Box<(ForkWord, T)>>,
}

// SAFETY: `word` is the pointer of the `ForkWord` in `value`, which may be sent.
unsafe impl<T: Send> Send for WithWord<T> {}

impl<T> WithWord<T> {
    pub(crate) fn new(word: ForkWord, value: T) -> Self {
        let value = Box::new((word, value));
        Self { word: NonNull::from(value.0.word()), value: ManuallyDrop::new(value) }
    }

    /// Whether the word is above `place`: a load and a comparison, in one instruction.
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of a handle's hit path")]
    pub(crate) fn is_above(&self, place: u64) -> bool {
        // SAFETY: reads eight aligned bytes, in one piece as any such load of this processor, of a word that `value`
        // keeps mapped; writes the flags. Others may store to the word meanwhile, as with a relaxed load.
        unsafe {
            std::arch::asm!(
                "cmp {place}, qword ptr [{word}]",
                "jae {not}",
                place = in(reg) place,
                word = in(reg) self.word.as_ptr(),
                not = label { return false },
                options(nostack, readonly),
            );
        }
        true
    }

    /// Whether the word is above `place`.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of a handle's hit path")]
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, miri)))))]
    pub(crate) fn is_above(&self, place: u64) -> bool {
        // SAFETY: the word lies on its own page, wherever its `ForkWord` is moved, and stays there while that one
        // lives.
        place < unsafe { self.word.as_ref() }.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn value(&mut self) -> &mut T {
        &mut self.value.1
    }
}

impl<T> Drop for WithWord<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this is the only place that takes it, and `self` is not used after it.
        discard(unsafe { ManuallyDrop::take(&mut self.value) });
    }
}

/// Drops what only a pointer is passed of.
#[inline(never)]
fn discard<T>(value: Box<T>) {
    drop(value);
}

/// The generation of an engine.
#[derive(Debug, Clone)]
pub(crate) struct GenerationWord(ForkWord);

impl GenerationWord {
    /// Maps a page and stores a first generation.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self::of(ForkWord::new()?))
    }

    /// Stores a first generation in a word that no other code has.
    pub(crate) fn of(word: ForkWord) -> Self {
        let generation = Self(word);
        generation.store_next();
        generation
    }

    /// The generation now. Relaxed: a thread that sees an old one uses up a run that is its own anyway.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the hit path")]
    pub(crate) fn load(&self) -> u64 {
        self.0.word().load(Ordering::Relaxed)
    }

    /// How far `place` is beyond the generation, and the place after it, both modulo 2^64: [`load`](Self::load), a
    /// subtraction and an addition, in the two instructions that they need. The compiler takes four: it never folds the
    /// load of an atomic into what uses it, and puts the addition off until it needs a copy. A hit is eight
    /// instructions.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the hit path")]
    pub(crate) fn step(&self, place: u64) -> (u64, u64) {
        #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
        {
            let (distance, next);
            // SAFETY: reads eight aligned bytes, in one piece as any such load of this processor, of a word that `self`
            // keeps mapped; writes two registers and the flags. Others may store to the word meanwhile, as with `load`.
            unsafe {
                std::arch::asm!(
                    "lea {next}, [{place} + 1]",
                    "sub {place}, qword ptr [{word}]",
                    next = out(reg) next,
                    place = inout(reg) place => distance,
                    word = in(reg) self.0.word().as_ptr(),
                    options(nostack, readonly),
                );
            }
            (distance, next)
        }
        #[cfg(not(all(target_arch = "x86_64", not(any(loom, miri)))))]
        (place.wrapping_sub(self.load()), place.wrapping_add(1))
    }

    /// The generation, in the one order of all accesses of that kind: what [`Limit`](crate::tiers::limits::Limit) rests
    /// on.
    pub(crate) fn load_in_order(&self) -> u64 {
        // Pairs with the store in `renew` and the stores of `Limit`.
        load_in_order(self.0.word())
    }

    /// Whether this is a forked child of the process that made the word.
    pub(crate) fn forked(&self) -> bool {
        self.0.is_wiped()
    }

    /// Voids every run in threads' hands. In a forked child they are void, and stay so (I1).
    pub(crate) fn renew(&self) {
        if !self.forked() {
            self.store_next();
        }
    }

    fn store_next(&self) {
        // Pairs with `load_in_order`.
        store_in_order(self.0.word(), NEXT.fetch_add(GENERATION_STEP, Ordering::Relaxed));
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
    use crate::sys::guards::Guard;

    #[test]
    fn a_step_is_what_a_load_a_subtraction_and_an_addition_make() {
        let word = GenerationWord::new().unwrap();
        for generation in [0, GENERATION_STEP, 1 << 63, 0_u64.wrapping_sub(GENERATION_STEP)] {
            store_in_order(word.0.word(), generation);
            for place in
                [0, 1, generation, generation.wrapping_sub(1), generation.wrapping_add(4_095), u64::MAX]
            {
                let (distance, next) = word.step(place);
                assert_eq!(distance, place.wrapping_sub(word.load()), "{place} from {generation}");
                assert_eq!(next, place.wrapping_add(1));
            }
        }
    }

    #[test]
    fn a_value_with_a_word_is_dropped_once_and_its_word_is_the_one_that_it_keeps() {
        let word = ForkWord::new().unwrap();
        let value = std::rc::Rc::new(());
        let mut beside = WithWord::new(word.clone(), value.clone());
        store_in_order(word.word(), 7);
        assert!(beside.is_above(6) && !beside.is_above(7) && !beside.is_above(u64::MAX));
        drop(word);
        let moved = Box::new(beside);
        assert!(moved.is_above(6) && !moved.is_above(7), "the page is kept");
        beside = *moved;
        assert_eq!((std::rc::Rc::strong_count(&value), std::rc::Rc::strong_count(beside.value())), (2, 2));
        drop(beside);
        assert_eq!(std::rc::Rc::strong_count(&value), 1);
    }

    /// Whether a forked child finds the word wiped, also after it renewed it, and the parent does not.
    fn is_wiped_in_a_child() -> bool {
        let word = GenerationWord::new().unwrap();
        // SAFETY: the child only loads and stores the word and ends at once, which is allowed after a fork of many
        // threads.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let before = word.forked();
            word.renew();
            let status = i32::from(!before || !word.forked());
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
    fn a_forked_child_finds_the_word_wiped_and_renews_it_in_vain() {
        assert!(is_wiped_in_a_child());
    }

    #[test]
    fn words_of_a_pool_share_pages_and_nothing_else() {
        let mut pool = WordPool::default();
        let words: Vec<ForkWord> = (0..=page::WORDS * 2).map(|_| pool.take().unwrap()).collect();
        for (number, word) in words.iter().enumerate() {
            assert!(word.is_wiped(), "it is zero at first");
            store_in_order(word.word(), number as u64 + 1);
        }
        for (number, word) in words.iter().enumerate() {
            assert_eq!(load_in_order(word.word()), number as u64 + 1);
        }
        let last = words.last().unwrap().clone();
        drop((words, pool));
        assert_eq!(load_in_order(last.word()), page::WORDS as u64 * 2 + 1, "a word keeps its page");
    }

    #[test]
    fn a_page_that_is_not_wiped_is_found_out() {
        assert!(!Guard::without(&[Guard::ForkPage], is_wiped_in_a_child));
    }

    #[test]
    fn two_words_never_hold_the_same_generation() {
        let (a, b) = (GenerationWord::new().unwrap(), GenerationWord::new().unwrap());
        let first = a.load();
        a.renew();
        assert!(first != a.load() && a.load() != b.load() && first != b.load());
        assert!(!a.forked());
    }
}
