//! Log lines, and calls of wakers, that wait until their thread holds no lock.
//!
//! A subscriber is a stranger's code: it may stand still on a full pipe, panic, fork, or ask the engine for an id. So
//! whatever the engine's threads have to say in a turn or a job is collected, and said when the turn or the job is
//! over. A waker is a stranger's code as well; wakers are called before the lines.
//!
//! # Invariants
//! - I1 within [`collect`] no line is said, and no waker called, but where its work [says so](say_collected): what it locks, it
//!   unlocks before;
//! - I2 a line or a waker that panics keeps no other one from being called, and ends no thread;
//! - I3 in a child that one of them forked, those after it are not called: they are the parent's.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use crate::sys::fork_word::Began;

/// What calls the subscriber. It owns what it tells.
type Line = Box<dyn FnOnce()>;

/// Rounds in which wakers have others woken, before the rest waits for the end of the work: none goes on for ever.
const MOST_ROUNDS: u32 = 16;

thread_local! {
    /// What the work that is under way in this thread leaves to be called. A turn or a job has a dozen lines at most.
    static UNSAID: RefCell<Option<Unsaid>> = const { RefCell::new(None) };
}

/// Says a line: after the work that is [collected](collect), or at once where there is none.
pub(crate) fn log(line: impl FnOnce() + 'static) {
    let mut line: Option<Line> = Some(Box::new(line));
    // In a thread that is ending there is no work either.
    let _ = UNSAID.try_with(|unsaid| {
        if let Some(unsaid) = unsaid.borrow_mut().as_mut() {
            unsaid.lines.extend(line.take());
        }
    });
    Unsaid { lines: line.into_iter().collect(), wakers: Vec::new() }.say();
}

/// Calls wakers: after the work that is [collected](collect), or at once where there is none.
pub(crate) fn wake(wakers: impl IntoIterator<Item = Waker>) {
    let mut wakers = Some(wakers);
    let _ = UNSAID.try_with(|unsaid| {
        if let Some(unsaid) = unsaid.borrow_mut().as_mut() {
            unsaid.wakers.extend(wakers.take().into_iter().flatten());
        }
    });
    Unsaid { lines: Vec::new(), wakers: wakers.into_iter().flatten().collect() }.say();
}

/// Does work, and returns the lines of it. Work within work says nothing: its lines are those of the outer one.
pub(crate) fn collect<T>(work: impl FnOnce() -> T) -> (T, Unsaid) {
    /// Ends the collecting, whatever happens.
    struct Scope(bool);
    impl Drop for Scope {
        fn drop(&mut self) {
            if self.0 {
                Unsaid::take().say();
            }
        }
    }
    let outermost = UNSAID.with_borrow_mut(|unsaid| {
        let outermost = unsaid.is_none();
        unsaid.get_or_insert_default();
        outermost
    });
    let scope = Scope(outermost);
    let value = work();
    let unsaid = if outermost { Unsaid::take() } else { Unsaid::default() };
    drop(scope);
    (value, unsaid)
}

/// Does work, and says the lines of it.
pub(crate) fn collected<T>(work: impl FnOnce() -> T) -> T {
    let (value, unsaid) = collect(work);
    unsaid.say();
    value
}

/// Says what the work that is under way has collected so far, and what comes of that: before it waits for something else. It
/// holds no lock (I1), and may go on in a child then, that one of the strangers forked.
pub(crate) fn say_collected() {
    for _ in 0..MOST_ROUNDS {
        let unsaid = UNSAID.with_borrow_mut(|unsaid| unsaid.as_mut().map(std::mem::take)).unwrap_or_default();
        if unsaid.wakers.is_empty() && unsaid.lines.is_empty() {
            return;
        }
        if !unsaid.say() {
            // What came of it until then is the parent's as well (I3).
            std::mem::forget(UNSAID.with_borrow_mut(|unsaid| unsaid.as_mut().map(std::mem::take)));
            return;
        }
    }
}

/// Lines that nobody has heard yet, and wakers that were not called.
#[must_use = "lines are there to be said"]
#[derive(Default)]
pub(crate) struct Unsaid {
    wakers: Vec<Waker>,
    lines: Vec<Line>,
}

impl Unsaid {
    /// All lines of the work that is over.
    fn take() -> Self {
        UNSAID.with_borrow_mut(Option::take).unwrap_or_default()
    }

    /// Calls them in their order. False in a child that one of them forked.
    pub(crate) fn say(self) -> bool {
        if !call_all(self.wakers, Waker::wake, &Began::here) {
            std::mem::forget(self.lines);
            return false;
        }
        call_all(self.lines, |line| line(), &Began::here)
    }
}

/// Calls strangers (I2). False in a child that one of them forked (I3): what is left is forgotten there, since to drop it is
/// to call it, too.
fn call_all<T>(strangers: Vec<T>, call: impl Fn(T), begin: &impl Fn() -> Began) -> bool {
    let mut strangers = strangers.into_iter();
    while let Some(stranger) = strangers.next() {
        let process = begin();
        // The panic was told by its hook; there is nothing to undo.
        let _ = catch_unwind(AssertUnwindSafe(|| call(stranger)));
        if process.forked() {
            std::mem::forget(strangers);
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[derive(Clone, Default)]
    struct Heard(Rc<RefCell<Vec<u32>>>);

    impl Heard {
        fn log(&self, number: u32) {
            let heard = self.clone();
            log(move || heard.0.borrow_mut().push(number));
        }

        fn now(&self) -> Vec<u32> {
            self.0.borrow().clone()
        }
    }

    #[test]
    fn lines_wait_for_the_end_of_the_work_and_others_do_not() {
        let heard = Heard::default();
        heard.log(1);
        assert_eq!(heard.now(), [1]);
        let (value, unsaid) = collect(|| {
            heard.log(2);
            collected(|| heard.log(3));
            heard.log(4);
            assert_eq!(heard.now(), [1], "I1");
            5
        });
        assert_eq!((value, heard.now()), (5, vec![1]));
        heard.log(6);
        unsaid.say();
        assert_eq!(heard.now(), [1, 6, 2, 3, 4]);
    }

    #[test]
    fn a_line_that_panics_ends_neither_the_thread_nor_the_lines_after_it() {
        let heard = Heard::default();
        collected(|| {
            heard.log(1);
            log(|| panic!("a subscriber"));
            heard.log(2);
        });
        log(|| panic!("a subscriber"));
        assert_eq!(heard.now(), [1, 2], "I2");
    }

    #[test]
    fn work_that_panics_still_tells_what_it_had_to_say() {
        let heard = Heard::default();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            collected(|| {
                heard.log(1);
                panic!("the work");
            });
        }));
        assert!(panicked.is_err());
        assert_eq!(heard.now(), [1]);
        heard.log(2);
        assert_eq!(heard.now(), [1, 2], "nothing is collected any more");
    }

    struct Says(std::sync::mpsc::Sender<u32>);

    impl std::task::Wake for Says {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.send(1).unwrap();
            panic!("a stranger's waker");
        }
    }

    #[test]
    fn wakers_wait_for_the_end_of_the_work_and_come_before_its_lines() {
        let (says, said) = std::sync::mpsc::channel();
        let waker = Waker::from(std::sync::Arc::new(Says(says.clone())));
        collected(|| {
            log(move || says.send(2).unwrap());
            wake([waker.clone(), waker.clone()]);
            assert!(said.try_recv().is_err(), "I1");
        });
        assert_eq!(said.try_iter().collect::<Vec<_>>(), [1, 1, 2], "I2");
        wake([waker]);
        assert_eq!(said.try_recv(), Ok(1));
    }

    /// A fork into another pid namespace keeps the process id, where that is 1.
    #[test]
    #[cfg(not(loom))]
    fn in_a_child_that_has_its_parents_process_id_the_others_are_not_called() {
        use crate::sys::fork_word::ProcessMark;

        for looks_within in [false, true] {
            let mark: &'static ProcessMark = Box::leak(Box::new(ProcessMark::new().unwrap()));
            let called = RefCell::new(Vec::new());
            let begin = || Began::by(Some(mark));
            let call = |stranger| {
                called.borrow_mut().push(stranger);
                if stranger == 2 {
                    mark.wipe();
                    // Calls of the child's own.
                    assert!(!looks_within || call_all(vec![7], |_| (), &begin));
                }
            };
            assert!(!call_all(vec![1, 2, 3], call, &begin), "I3");
            assert_eq!(*called.borrow(), [1, 2]);
            assert!(call_all(vec![4], |stranger| called.borrow_mut().push(stranger), &begin));
            assert_eq!(*called.borrow(), [1, 2, 4], "and the child goes on");
        }
    }

    #[test]
    fn a_line_may_log_itself() {
        let heard = Heard::default();
        let inner = heard.clone();
        collected(|| log(move || inner.log(1)));
        assert_eq!(heard.now(), [1]);
    }
}
