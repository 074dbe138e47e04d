//! Log lines that wait until their thread holds no lock.
//!
//! A subscriber is a stranger's code: it may stand still on a full pipe, panic, or ask the engine for an id. So
//! whatever the engine's threads have to say in a turn or a job is collected, and said when the turn or the job is
//! over.
//!
//! # Invariants
//! - I1 within [`collect`] no line is said: what its work locks, it unlocks before the lines are said;
//! - I2 a line that panics keeps no other line from being said, and ends no thread.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What calls the subscriber. It owns what it tells.
type Line = Box<dyn FnOnce()>;

thread_local! {
    /// The lines of the work that is under way in this thread. A turn or a job has a dozen at most.
    static LINES: RefCell<Option<Vec<Line>>> = const { RefCell::new(None) };
}

/// Says a line: after the work that is [collected](collect), or at once where there is none.
pub(crate) fn log(line: impl FnOnce() + 'static) {
    let mut line: Option<Line> = Some(Box::new(line));
    // In a thread that is ending there is no work either.
    let _ = LINES.try_with(|lines| {
        if let Some(lines) = lines.borrow_mut().as_mut() {
            lines.extend(line.take());
        }
    });
    line.into_iter().for_each(say);
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
    let outermost = LINES.with_borrow_mut(|lines| {
        let outermost = lines.is_none();
        lines.get_or_insert_default();
        outermost
    });
    let scope = Scope(outermost);
    let value = work();
    let unsaid = if outermost { Unsaid::take() } else { Unsaid(Vec::new()) };
    drop(scope);
    (value, unsaid)
}

/// Does work, and says the lines of it.
pub(crate) fn collected<T>(work: impl FnOnce() -> T) -> T {
    let (value, unsaid) = collect(work);
    unsaid.say();
    value
}

/// Lines that nobody has heard yet.
#[must_use = "lines are there to be said"]
pub(crate) struct Unsaid(Vec<Line>);

impl Unsaid {
    /// All lines of the work that is over.
    fn take() -> Self {
        Self(LINES.with_borrow_mut(Option::take).unwrap_or_default())
    }

    /// Says them in their order.
    pub(crate) fn say(self) {
        self.0.into_iter().for_each(say);
    }
}

/// Says one line (I2).
fn say(line: Line) {
    // The panic was told by its hook; there is nothing to undo.
    let _ = catch_unwind(AssertUnwindSafe(line));
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

    #[test]
    fn a_line_may_log_itself() {
        let heard = Heard::default();
        let inner = heard.clone();
        collected(|| log(move || inner.log(1)));
        assert_eq!(heard.now(), [1]);
    }
}
