//! Every call with what it got, and what is wrong with all of them together.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use thiserror::Error;

use super::Name;
use crate::fronts::Front;

/// A call that was answered with numbers.
#[derive(Debug, Clone)]
pub struct Call {
    /// Which name, by its place in the list.
    pub name: usize,
    /// Which life of which node answered.
    pub life: usize,
    /// At which front.
    pub front: Front,
    /// Whether the numbers were to be ordered.
    pub is_ordered: bool,
    /// Before the request was sent.
    pub asked: Instant,
    /// After the reply had come.
    pub got: Instant,
    /// In the order of the reply.
    pub numbers: Vec<u64>,
}

/// A call that got none.
#[derive(Debug, Clone)]
pub struct Missed {
    /// Which name, by its place in the list.
    pub name: usize,
    /// Which life of which node was asked.
    pub life: usize,
    /// How many numbers were asked for.
    pub count: u32,
    /// The status and text of the refusal; none if the connection ended first.
    pub refusal: Option<(u16, String)>,
    /// Before the request was sent.
    pub asked: Instant,
    /// How long it took.
    pub took: Duration,
}

/// Numbers came more than once.
#[derive(Debug, Error)]
#[error("{first} came twice; {count} numbers did")]
pub struct Twice {
    /// One of them, and its name.
    pub first: String,
    /// Each repetition counts.
    pub count: u64,
}

/// All calls of some takers.
#[derive(Debug, Clone, Default)]
pub struct Account {
    /// Those that got numbers.
    pub calls: Vec<Call>,
    /// Those that got none.
    pub missed: Vec<Missed>,
}

impl Account {
    /// Adds the calls of another.
    pub fn join(&mut self, other: Self) {
        self.calls.extend(other.calls);
        self.missed.extend(other.missed);
    }

    /// How many numbers came.
    pub fn total(&self) -> u64 {
        self.calls.iter().map(|call| call.numbers.len() as u64).sum()
    }

    /// The numbers of a name that one life answered, or all lives, ascending.
    pub fn numbers(&self, name: usize, life: Option<usize>) -> Vec<u64> {
        let mine = |call: &&Call| call.name == name && life.is_none_or(|life| call.life == life);
        let mut numbers: Vec<u64> =
            self.calls.iter().filter(mine).flat_map(|call| call.numbers.iter().copied()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// What came before, if anything did.
    pub fn twice(&self, names: &[Name]) -> Option<Twice> {
        let (mut first, mut count) = (None, 0);
        for (at, name) in names.iter().enumerate() {
            let numbers = self.numbers(at, None);
            for pair in numbers.windows(2).filter(|pair| pair[0] == pair[1]) {
                first.get_or_insert_with(|| format!("{} of {}", pair[0], name.text));
                count += 1;
            }
        }
        first.map(|first| Twice { first, count })
    }

    /// Fails if a call was refused, but for these statuses.
    pub fn check_refusals(&self, allowed: &[u16]) -> Result<()> {
        for missed in &self.missed {
            if let Some((status, text)) = &missed.refusal {
                let name = missed.name;
                ensure!(allowed.contains(status), "{status:04x} for name {name}: {text}");
            }
        }
        Ok(())
    }

    /// Fails if a number came twice, is none of its name, or is out of order.
    pub fn check(&self, names: &[Name]) -> Result<()> {
        if let Some(twice) = self.twice(names) {
            return Err(twice.into());
        }
        let mut groups: BTreeMap<(usize, usize), Vec<&Call>> = BTreeMap::new();
        for call in &self.calls {
            let name = &names[call.name];
            let is_legal = |number: &u64| {
                number % name.increment == name.remainder && (name.start..=name.last).contains(number)
            };
            ensure!(call.numbers.iter().all(is_legal), "{:?} of {name:?}", call.numbers);
            if call.is_ordered || name.is_strict {
                // A strict name has one order over all lives.
                let group = (call.name, if name.is_strict { 0 } else { call.life });
                groups.entry(group).or_default().push(call);
            }
        }
        groups.into_iter().try_for_each(|((name, life), calls)| ascend(&names[name], life, calls))
    }
}

/// What was got before a call was asked is lower.
fn ascend(name: &Name, life: usize, mut calls: Vec<&Call>) -> Result<()> {
    for call in calls.iter().filter(|call| call.is_ordered) {
        ensure!(call.numbers.is_sorted_by(|one, other| one < other), "{}: {:?}", name.text, call.numbers);
    }
    let mut ended = calls.clone();
    ended.sort_unstable_by_key(|call| call.got);
    calls.sort_unstable_by_key(|call| call.asked);
    let (mut ended, mut highest) = (ended.into_iter().peekable(), 0);
    for call in calls {
        while let Some(earlier) = ended.next_if(|earlier| earlier.got < call.asked) {
            highest = highest.max(earlier.numbers.iter().copied().max().unwrap_or_default());
        }
        let least = call.numbers.iter().copied().min().unwrap_or(u64::MAX);
        let text = &name.text;
        ensure!(least > highest, "{text}, life {life}: {least} was asked for after {highest} had come");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    /// Calls of one name: life, asked and got in milliseconds, numbers.
    fn account(calls: &[(usize, u64, u64, &[u64])]) -> Account {
        let begin = clock::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let call = |&(life, asked, got, numbers): &(usize, u64, u64, &[u64])| Call {
            name: 0,
            life,
            front: Front::Xuid,
            is_ordered: true,
            asked: at(asked),
            got: at(got),
            numbers: numbers.to_vec(),
        };
        Account { calls: calls.iter().map(call).collect(), missed: Vec::new() }
    }

    #[test]
    fn what_came_twice_is_found_and_what_came_once_is_not() {
        let names = [Name::new("a")];
        let once = account(&[(0, 0, 1, &[1, 2, 5]), (1, 0, 1, &[3, 4])]);
        assert!(once.twice(&names).is_none() && once.total() == 5);
        once.check(&names).unwrap();
        let twice = account(&[(0, 0, 1, &[1, 2, 5]), (1, 0, 1, &[2, 5])]);
        let found = twice.twice(&names).unwrap();
        assert_eq!((found.first.as_str(), found.count), ("2 of a", 2));
        assert!(twice.check(&names).is_err());
    }

    #[test]
    fn an_order_is_of_calls_that_did_not_meet() {
        let plain = [Name::new("a")];
        let strict = [Name { is_strict: true, ..Name::new("a") }];
        let apart = account(&[(0, 0, 1, &[10]), (0, 2, 3, &[9])]);
        assert!(apart.check(&plain).is_err());
        account(&[(0, 0, 3, &[10]), (0, 2, 3, &[9])]).check(&plain).unwrap();
        let of_two = account(&[(0, 0, 1, &[10]), (1, 2, 3, &[9])]);
        of_two.check(&plain).unwrap();
        assert!(of_two.check(&strict).is_err());
        assert!(account(&[(0, 0, 1, &[2, 1])]).check(&plain).is_err());
    }

    #[test]
    fn a_number_that_its_name_does_not_have_is_found() {
        let odd = [Name { increment: 3, remainder: 1, last: 10, start: 4, ..Name::new("a") }];
        account(&[(0, 0, 1, &[4, 7, 10])]).check(&odd).unwrap();
        for wrong in [1, 5, 13] {
            assert!(account(&[(0, 0, 1, &[wrong])]).check(&odd).is_err(), "{wrong}");
        }
    }
}
