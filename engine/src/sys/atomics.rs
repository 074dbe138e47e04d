//! The atomics and locks by which threads meet, so that loom can stand in for them.
//!
//! In loom's build all threads of a model run on one thread of the machine, and change at the operations of these types
//! only. What is not from here (figures, the queue's crate) does not interleave there, which is right where an
//! operation is one step for everybody; a lock of the standard library must not be held over an operation from here.

#[cfg(loom)]
pub(crate) use loom::sync::Mutex;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::Mutex;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Locks, whether or not a holder panicked: what these locks guard is moved forward before it is used, so a
/// panic wastes ids at most.
#[cfg(not(loom))]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Stores in the one order of all accesses of this kind, which every thread agrees upon.
#[cfg(not(loom))]
pub(crate) fn store_in_order(word: &AtomicU64, value: u64) {
    // SeqCst: pairs with `load_in_order`.
    word.store(value, Ordering::SeqCst);
}

/// Loads in that order.
#[cfg(not(loom))]
pub(crate) fn load_in_order(word: &AtomicU64) -> u64 {
    // SeqCst: pairs with `store_in_order`.
    word.load(Ordering::SeqCst)
}

#[cfg(loom)]
pub(crate) use self::modelled::{load_in_order, lock, store_in_order};

#[cfg(loom)]
mod modelled {
    use std::ops::DerefMut;

    use loom::sync::atomic::{AtomicU64, Ordering, fence};

    use crate::sys::guards::Guard;

    /// Loom's locks, and those of the standard library.
    pub(crate) trait Lock<T> {
        fn hold(&self) -> impl DerefMut<Target = T>;
    }

    impl<T> Lock<T> for loom::sync::Mutex<T> {
        fn hold(&self) -> impl DerefMut<Target = T> {
            self.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }

    impl<T> Lock<T> for std::sync::Mutex<T> {
        fn hold(&self) -> impl DerefMut<Target = T> {
            self.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }

    impl<T, L: Lock<T>> Lock<T> for std::sync::Arc<L> {
        fn hold(&self) -> impl DerefMut<Target = T> {
            (**self).hold()
        }
    }

    impl<T, L: Lock<T>> Lock<T> for crossbeam_utils::CachePadded<L> {
        fn hold(&self) -> impl DerefMut<Target = T> {
            (**self).hold()
        }
    }

    pub(crate) fn lock<T>(mutex: &impl Lock<T>) -> impl DerefMut<Target = T> {
        mutex.hold()
    }

    /// Loom takes a `SeqCst` access for an acquiring or releasing one. A fence on both sides makes it what it is.
    fn in_order<T>(access: impl FnOnce() -> T) -> T {
        if !Guard::LimitInOrder.holds() {
            return access();
        }
        fence(Ordering::SeqCst);
        let result = access();
        fence(Ordering::SeqCst);
        result
    }

    pub(crate) fn store_in_order(word: &AtomicU64, value: u64) {
        in_order(|| word.store(value, Ordering::Relaxed));
    }

    pub(crate) fn load_in_order(word: &AtomicU64) -> u64 {
        in_order(|| word.load(Ordering::Relaxed))
    }
}
