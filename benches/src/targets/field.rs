//! Several subjects measured in turn, so that a machine that drifts drifts for all of them.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::measure::{checked, rate};
use crate::subject::{Fixture, Subject};

/// One measurement.
const SPAN: Duration = Duration::from_millis(100);

/// Subjects that are set up, and what each did in each round.
pub(super) struct Field {
    subjects: Vec<(Subject, Box<dyn Fixture>)>,
    figures: HashMap<(&'static str, usize), Vec<f64>>,
}

impl Field {
    /// Sets them all up.
    pub(super) fn new(names: &[&str]) -> Result<Self> {
        let subjects = names.iter().map(|name| checked(name)).collect::<Result<_>>()?;
        Ok(Self { subjects, figures: HashMap::new() })
    }

    /// One round of all, on so many threads.
    pub(super) fn round(&mut self, threads: usize) {
        for (subject, fixture) in &self.subjects {
            let calls = rate(threads, SPAN, || fixture.worker(), |worker, calls| worker.run(calls));
            let ids = calls * subject.ids_per_call as f64;
            self.figures.entry((subject.name, threads)).or_default().push(ids / 1e6);
        }
    }

    /// What a subject did in each round, in M ids/s.
    ///
    /// # Errors
    /// What makes its figures void.
    pub(super) fn figures(&self, name: &'static str, threads: usize) -> Result<&[f64]> {
        let fixture =
            self.subjects.iter().find(|(subject, _)| subject.name == name).map(|(_, fixture)| fixture);
        if let Some(why) = fixture.and_then(|fixture| fixture.objection()) {
            bail!("the figures of {name} are void: {why}");
        }
        match self.figures.get(&(name, threads)) {
            Some(figures) => Ok(figures),
            None => bail!("{name} was not measured on {threads} threads"),
        }
    }
}
