//! The answer to a question that the teller asks the store, as a future that needs no runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::sequence::error::ControlError;
use crate::sys::atomics::lock;
use crate::sys::deferred_log;
use crate::sys::fork_word::GenerationWord;
use crate::sys::guards::Guard;
use crate::sys::wake::unpark_current;

enum State<T> {
    Waiting(Option<Waker>),
    Done(Result<T, ControlError>),
    Over,
}

/// An answer of the store that is being waited for. It comes within some seconds, whatever the store does; dropping it
/// does not take back what was asked for. (Where thousands of others wait, a change that was not begun
/// is given up.) In a forked child there is none: the answer is the parent's.
#[must_use = "an answer comes only to what is polled or waited for"]
pub struct Reply<T> {
    state: Arc<Mutex<State<T>>>,
    /// Zero in a child of the process that asked, if the answer was not there at once.
    alive: Option<GenerationWord>,
}

impl<T> std::fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

/// The other end: what is not answered is answered when it is dropped.
pub(crate) struct Question<T>(Arc<Mutex<State<T>>>);

impl<T> Reply<T> {
    /// A reply, and what answers it in the process of which this word is.
    pub(crate) fn channel(alive: Option<GenerationWord>) -> (Question<T>, Self) {
        let state = Arc::new(Mutex::new(State::Waiting(None)));
        (Question(state.clone()), Self { state, alive })
    }

    /// One that is there already.
    pub(crate) fn ready(answer: Result<T, ControlError>) -> Self {
        Self { state: Arc::new(Mutex::new(State::Done(answer))), alive: None }
    }

    /// Blocks the thread until it is there. Not for a thread of a runtime, nor for a subscriber of the log on the
    /// sequences' own thread.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn wait(self) -> Result<T, ControlError> {
        let waker = unpark_current();
        loop {
            if let Poll::Ready(answer) = self.poll_with(&waker) {
                return answer;
            }
            std::thread::park();
        }
    }

    fn poll_with(&self, waker: &Waker) -> Poll<Result<T, ControlError>> {
        // The thread that answers is the parent's, and may have held the lock.
        if self.forked() {
            return Poll::Ready(Err(ControlError::Forked));
        }
        let polled = self.poll_here(waker);
        // Clone and drop of a waker may fork.
        if self.forked() { Poll::Ready(Err(ControlError::Forked)) } else { polled }
    }

    fn forked(&self) -> bool {
        self.alive.as_ref().is_some_and(GenerationWord::forked) && Guard::SequenceForked.holds()
    }

    fn poll_here(&self, waker: &Waker) -> Poll<Result<T, ControlError>> {
        // A waker is a stranger's code, its clone and its drop as well: the old one goes after the lock.
        let mut kept = Some(waker.clone());
        let mut state = lock(&self.state);
        if let State::Waiting(waker) = &mut *state {
            std::mem::swap(waker, &mut kept);
            drop(state);
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, State::Over) {
            State::Done(answer) => Poll::Ready(answer),
            State::Waiting(_) | State::Over => Poll::Ready(Err(ControlError::ShuttingDown)),
        }
    }
}

impl<T> Future for Reply<T> {
    type Output = Result<T, ControlError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_with(context.waker())
    }
}

impl<T> Question<T> {
    /// Nobody waits for its answer any more.
    pub(crate) fn is_forsaken(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Answers. Called under no lock: it wakes a stranger.
    pub(crate) fn answer(self, answer: Result<T, ControlError>) {
        self.finish(answer);
    }

    fn finish(&self, answer: Result<T, ControlError>) {
        let mut state = lock(&self.0);
        let State::Waiting(waker) = &mut *state else { return };
        let waker = waker.take();
        *state = State::Done(answer);
        drop(state);
        deferred_log::wake(waker);
    }
}

impl<T> Drop for Question<T> {
    fn drop(&mut self) {
        let why = || "the thread that asks the store panicked, and goes on".into();
        let is_unwound = std::thread::panicking();
        self.finish(Err(if is_unwound {
            ControlError::Unknown { why: why() }
        } else {
            ControlError::ShuttingDown
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered_once_and_one_that_is_dropped_is_answered_too() {
        let (question, reply) = Reply::channel(None);
        let asked = std::thread::spawn(move || reply.wait());
        question.answer(Ok(7));
        assert_eq!(asked.join().unwrap().unwrap(), 7);
        let (question, reply) = Reply::<u32>::channel(None);
        let asked = std::thread::spawn(move || reply.wait());
        drop(question);
        assert!(matches!(asked.join().unwrap(), Err(ControlError::ShuttingDown)));
        assert_eq!(Reply::ready(Ok(1)).wait().unwrap(), 1);
    }
}
