//! What people ask of the store: shown, listed, created, altered.

use super::teller::Teller;
use super::witness::{Unseen, own_marks};
use crate::clock::SECOND;
use crate::sequence::error::ControlError;
use crate::sequence::figures::{NameFigures, SequenceFigures, SequenceInfo};
use crate::sequence::name::SequenceName;
use crate::sequence::names::control::Control;
use crate::sequence::names::named::Standing;
use crate::sequence::names::reply::Question;
use crate::sequence::store::{
    HIGHEST, Identity, MOST_ASKS, MOST_STEP, NewSequence, Row, SequenceSettings, StoreError,
};

/// Sequences that one question lists at most.
const MOST_LISTED: usize = 1_000;

/// The longest description, in bytes.
const MOST_DESCRIPTION: usize = 256;

/// So many sequences are made together at a database, where each is a commit.
pub(super) const MOST_AT_DATABASE: usize = 4;

/// How long it is looked in one turn which rows are there that are to be made.
const MOST_CHECKING: u64 = 3 * SECOND;

impl Teller {
    /// Asks the store, and answers. While it hangs, it is asked one question a second, and the others are answered without it.
    pub(super) fn answer(&mut self, control: Control) {
        if let Some(why) = self.hangs(&control) {
            let why = format!("it did not answer a moment ago, and is asked again in a second: {why}");
            return control.refuse(ControlError::StoreAway { why });
        }
        let asked = self.hub.clock.read().boot;
        let (mut failed, row) = (None, control.changes().cloned());
        self.ask_store(control, &mut failed);
        self.note_hang(failed.as_deref(), row, asked, self.hub.clock.read().boot);
    }

    /// `failed` is told if no answer came.
    fn ask_store(&mut self, control: Control, failed: &mut Option<String>) {
        match control {
            Control::Info(name, question) => {
                let row = heard(self.store.read(&name), failed).map_err(of_reading);
                question.answer(self.told(&name, row));
            }
            Control::List { prefix, after, limit, question } => {
                let rows = heard(self.store.list(&prefix, &after, limit.min(MOST_LISTED)), failed);
                let rows = rows.map_err(|error| unnamed(of_reading(error), &prefix));
                question.answer(rows.map(|rows| rows.into_iter().map(|row| self.info(row)).collect()));
            }
            Control::Create(name, new, question) => self.create((name, new), question, failed),
            Control::Alter(name, alteration, question) => {
                let step = alteration.step.is_none_or(|step| (1..=MOST_STEP).contains(&step));
                let described =
                    alteration.description.as_ref().is_none_or(|text| text.len() <= MOST_DESCRIPTION);
                let row = if step && described {
                    heard(self.store.alter(&name, &alteration), failed)
                } else {
                    let why = "a step is 1 to 4,294,967,296, and a description has at most 256 bytes".into();
                    Err(StoreError::Refused { why })
                };
                self.forget(&name);
                question.answer(self.told(&name, row));
            }
            Control::Raise(name, least, question) => {
                // Only a person opens what a fence closed.
                let row = heard(self.store.raise_open(&name, least), failed);
                self.forget(&name);
                question.answer(self.told(&name, row));
            }
            Control::AcceptIdentity(question) => {
                let found = heard(self.store.identity(), failed);
                let found = found.map_err(|error| unnamed(error, "the store"));
                question.answer(found.and_then(|found| self.accept(&found)));
            }
        }
    }

    /// Goes on with a store, whichever it is.
    fn accept(&mut self, found: &Identity) -> Result<(), ControlError> {
        self.look_at_identity(found, false);
        let is_known = self.known.known() == Some(&*found.current);
        let is_closed = self.known.closed().is_some();
        if !is_known || is_closed || self.known.is_witness_changed() || self.known.lacks_fence(found) {
            let why = "which store it is can't be written down in the data folder: make room there".into();
            return Err(ControlError::Refused { why });
        }
        // Its marks may be anywhere.
        self.is_accepted = true;
        self.reclaim.beside = None;
        self.hub.forget_marks();
        self.open_names();
        Ok(())
    }

    /// Makes this sequence, and those that are to be made after it: they share a change of the store, and the same ones a row.
    fn create(
        &mut self,
        first: (SequenceName, NewSequence),
        question: Question<SequenceInfo>,
        failed: &mut Option<String>,
    ) {
        let (mut rows, mut questions) = (vec![first], vec![vec![question]]);
        // A database makes them one after the other, and callers wait for that.
        let most = if self.store.may_go_back() { MOST_AT_DATABASE } else { MOST_ASKS };
        let fits = |rows: &[(SequenceName, NewSequence)], control: &Control| match control {
            Control::Create(name, new, _) => match rows.iter().find(|(other, _)| other == name) {
                Some((_, same)) => same == new,
                None => rows.len() < most,
            },
            _ => false,
        };
        while let Some(Control::Create(name, new, question)) =
            self.hub.controls.next_if(|control| fits(&rows, control))
        {
            if let Some(at) = rows.iter().position(|(other, _)| *other == name) {
                questions[at].push(question);
            } else {
                rows.push((name, new));
                questions.push(vec![question]);
            }
        }
        // What could not issue as it says is not shown to the store.
        let checks = self.check_rows(&rows, failed);
        let sound = rows.iter().zip(&checks).filter(|(_, check)| check.is_ok());
        let sound: Vec<_> = sound.map(|(row, _)| row.clone()).collect();
        let mut made = self.store.create_all(&sound).into_iter();
        for (((name, new), check), questions) in rows.into_iter().zip(checks).zip(questions) {
            let made = check.and_then(|()| match heard(made.next().unwrap_or_else(no_answer), failed) {
                // One that still grants numbers below the start is not the one that was asked for.
                Err(StoreError::Exists(row)) if row.settings == new.settings && row.next >= new.start => {
                    Ok(*row)
                }
                made => made.map_err(|error| named(error, &name)),
            });
            let made = made.map(|row| {
                self.forget(&name);
                self.info(row)
            });
            for question in questions {
                question.answer(made.clone());
            }
        }
    }

    /// Which of these may be made. Where no witness of all would notice, none that begins below numbers that were granted, and whose
    /// row is gone: those numbers would come again at other processes, and here they would close all names.
    fn check_rows(
        &mut self,
        rows: &[(SequenceName, NewSequence)],
        failed: &mut Option<String>,
    ) -> Vec<Result<(), ControlError>> {
        let known = self.known_marks(&rows.iter().map(|(name, _)| name).collect::<Vec<_>>());
        let (begun, mut silence) = (self.hub.now(), None);
        let mut check = |((name, new), known): (&(SequenceName, NewSequence), Result<u64, ControlError>)| {
            checked(new)?;
            let (start, known) = (new.start, known?);
            if start >= known {
                return Ok(());
            }
            // Each would wait for a store that hangs.
            if self.hub.now().saturating_sub(begun) >= MOST_CHECKING {
                silence.get_or_insert_with(|| "others took too long".to_owned());
            }
            if let Some(why) = &silence {
                return Err(ControlError::StoreAway { why: format!("it was not asked: {why}") });
            }
            match heard(self.store.read(name), failed) {
                Err(StoreError::Absent { .. }) => Err(ControlError::Refused {
                    why: format!(
                        "numbers of it below {known} were granted, and its row is gone: allowed is a start of {known} or \
                         above, not {start}"
                    ),
                }),
                Err(StoreError::Away { why } | StoreError::Unknown { why }) => {
                    silence = self.store.was_silent().then(|| why.clone());
                    Err(ControlError::StoreAway { why })
                }
                _ => Ok(()),
            }
        };
        rows.iter().zip(known).map(&mut check).collect()
    }

    /// How far the store had come with these names, as far as this process or the witness of its folder knows; 0 where a witness of
    /// all does. Where it can't be had what the witness saw, an error.
    fn known_marks(&mut self, names: &[&SequenceName]) -> Vec<Result<u64, ControlError>> {
        if !self.is_watched() {
            return vec![Ok(0); names.len()];
        }
        self.remember_beside();
        let mut marks: Vec<_> = names.iter().map(|name| Ok(self.hub.names.known_mark(name))).collect();
        if let Some(records) = self.records.as_mut().filter(|_| self.witnesses) {
            let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
            for (mark, seen) in marks.iter_mut().zip(own_marks(&mut **records, &names)) {
                let seen = seen.map_err(|unseen| match unseen {
                    Unseen::Away(why) => ControlError::StoreAway { why: format!("its witness: {why}") },
                    Unseen::Refused(why) => ControlError::Refused { why },
                });
                *mark = seen.map(|seen| mark.as_ref().map_or(seen, |mark| seen.max(*mark)));
            }
        }
        marks
    }

    /// What was remembered of a name's refusal is not true any more.
    fn forget(&self, name: &SequenceName) {
        if let Some(named) = self.hub.names.find(name) {
            named.lock().standing = Standing::Open;
        }
    }

    fn told(&self, name: &SequenceName, row: Result<Row, StoreError>) -> Result<SequenceInfo, ControlError> {
        row.map(|row| self.info(row)).map_err(|error| named(error, name))
    }

    fn info(&self, row: Row) -> SequenceInfo {
        let boot = self.hub.clock.read().boot;
        let trouble = self.hub.trouble();
        let here = if let Some(named) = self.hub.names.find(&row.name) {
            named.figures(&named.lock(), boot, trouble)
        } else {
            let held = self.hub.names.kept_of(&row.name);
            let figures = SequenceFigures { held, ..SequenceFigures::default() };
            NameFigures { figures, ..NameFigures::default() }
        };
        SequenceInfo { row, here, store: self.store.describe() }
    }
}

/// Remembers why no answer came.
fn heard<T>(answer: Result<T, StoreError>, failed: &mut Option<String>) -> Result<T, StoreError> {
    if let Err(StoreError::Away { why } | StoreError::Unknown { why }) = &answer {
        *failed = Some(why.clone());
    }
    answer
}

/// A reading changes nothing, whatever became of it.
fn of_reading(error: StoreError) -> StoreError {
    match error {
        StoreError::Unknown { why } => StoreError::Away { why },
        other => other,
    }
}

/// What an adaptor's defect leaves unsaid.
fn no_answer() -> Result<Row, StoreError> {
    Err(StoreError::Unknown { why: "the store's adaptor gave no answer".into() })
}

/// Whether a sequence can be made so.
fn checked(new: &NewSequence) -> Result<(), ControlError> {
    let SequenceSettings { step, increment, remainder, last, .. } = new.settings;
    let described = new.description.as_ref().map_or(0, String::len);
    let why = if !(1..=MOST_STEP).contains(&step) {
        format!("a step is 1 to {MOST_STEP}, and this one is {step}")
    } else if increment == 0 || increment > i32::MAX as u32 {
        format!("an increment is 1 to {}, and this one is {increment}", i32::MAX)
    } else if remainder >= increment {
        format!("a remainder is below the increment {increment}, and this one is {remainder}")
    } else if last > HIGHEST || new.start > HIGHEST {
        format!("numbers are at most {HIGHEST}")
    } else if described > MOST_DESCRIPTION {
        format!("a description has at most {MOST_DESCRIPTION} bytes, and this one has {described}")
    } else {
        return Ok(());
    };
    Err(ControlError::Refused { why })
}

/// What an error of the store says of a name.
fn named(error: StoreError, name: &SequenceName) -> ControlError {
    match error {
        StoreError::Absent { similar } => ControlError::NoSequence { name: name.clone(), similar },
        other => unnamed(other, name.as_str()),
    }
}

fn unnamed(error: StoreError, what: &str) -> ControlError {
    match error {
        StoreError::Absent { .. } => ControlError::Refused { why: format!("there is no {what}") },
        StoreError::Exists(found) => ControlError::Exists { found },
        StoreError::Closed { why } => ControlError::StoreBehind { why },
        StoreError::Refused { why } => ControlError::Refused { why },
        StoreError::Away { why } => ControlError::StoreAway { why },
        StoreError::Unknown { why } => ControlError::Unknown { why },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_that_could_not_issue_as_it_says_is_not_made() {
        let with = |change: fn(&mut NewSequence)| {
            let mut new = NewSequence::default();
            change(&mut new);
            checked(&new)
        };
        assert!(with(|_| ()).is_ok());
        let bad: [fn(&mut NewSequence); 7] = [
            |new| new.settings.step = 0,
            |new| new.settings.step = MOST_STEP + 1,
            |new| new.settings.increment = 0,
            |new| new.settings.remainder = 1,
            |new| new.settings.last = HIGHEST + 1,
            |new| new.start = HIGHEST + 1,
            |new| new.description = Some("x".repeat(257)),
        ];
        for change in bad {
            assert!(matches!(with(change), Err(ControlError::Refused { .. })));
        }
    }
}
