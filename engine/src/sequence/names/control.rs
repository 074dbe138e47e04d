//! What the teller is asked by others than callers of numbers: one question after the other.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::reply::Question;
use crate::sequence::error::ControlError;
use crate::sequence::figures::SequenceInfo;
use crate::sequence::name::SequenceName;
use crate::sequence::store::{Alteration, NewSequence};
use crate::sys::atomics::lock;

/// Something that only the teller may ask the store.
pub(crate) enum Control {
    Info(SequenceName, Question<SequenceInfo>),
    List { prefix: String, after: String, limit: usize, question: Question<Vec<SequenceInfo>> },
    Create(SequenceName, NewSequence, Question<SequenceInfo>),
    Alter(SequenceName, Alteration, Question<SequenceInfo>),
    Raise(SequenceName, u64, Question<SequenceInfo>),
    AcceptIdentity(Question<()>),
}

impl Control {
    /// It only asks, and for somebody who has left.
    fn is_in_vain(&self) -> bool {
        match self {
            Self::Info(_, question) => question.is_forsaken(),
            Self::List { question, .. } => question.is_forsaken(),
            _ => false,
        }
    }

    /// The same, or it changes something for somebody who has left: where there is too much to do, that is not done.
    fn is_dispensable(&self) -> bool {
        match self {
            Self::Create(.., question) | Self::Alter(.., question) | Self::Raise(.., question) => {
                question.is_forsaken()
            }
            _ => self.is_in_vain(),
        }
    }

    /// The row that it changes, and would wait for.
    pub(crate) fn changes(&self) -> Option<&SequenceName> {
        match self {
            Self::Alter(name, ..) | Self::Raise(name, ..) => Some(name),
            _ => None,
        }
    }

    /// Answers it without the store.
    pub(crate) fn refuse(self, error: ControlError) {
        match self {
            Self::Info(_, question)
            | Self::Create(.., question)
            | Self::Alter(.., question)
            | Self::Raise(.., question) => question.answer(Err(error)),
            Self::List { question, .. } => question.answer(Err(error)),
            Self::AcceptIdentity(question) => question.answer(Err(error)),
        }
    }
}

/// From this length on, whenever it has doubled, what is dispensable is dropped.
const LONG: usize = 4_096;

/// Those that were not taken yet, in their order.
#[derive(Default)]
pub(crate) struct Controls(Mutex<VecDeque<Control>>);

impl Controls {
    /// One more, unless the queue `is_closed`, which is asked under its lock: who takes the last ones after it was closed misses
    /// none. Whether it was taken in.
    pub(super) fn push(&self, control: Control, is_closed: impl Fn() -> bool) -> bool {
        let mut controls = lock(&self.0);
        if is_closed() {
            // It ends after the lock.
            drop(controls);
            return false;
        }
        // Those who ask and leave would fill the memory where the store takes its time.
        let len = controls.len();
        let passed = if len >= LONG && len.is_power_of_two() {
            let (passed, kept) =
                std::mem::take(&mut *controls).into_iter().partition(Control::is_dispensable);
            *controls = kept;
            passed
        } else {
            VecDeque::new()
        };
        controls.push_back(control);
        // They end after the lock.
        drop(controls);
        drop(passed);
        true
    }

    /// The next one. What only asks, and for somebody who has left, is passed over.
    pub(crate) fn next(&self) -> Option<Control> {
        let mut passed = Vec::new();
        let mut controls = lock(&self.0);
        while let Some(control) = controls.pop_front() {
            if !control.is_in_vain() {
                drop(controls);
                return Some(control);
            }
            // It ends after the lock.
            passed.push(control);
        }
        None
    }

    /// The next one, if it is one that may be answered together with others.
    pub(crate) fn next_if(&self, fits: impl Fn(&Control) -> bool) -> Option<Control> {
        lock(&self.0).pop_front_if(|control| fits(control))
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }
}
