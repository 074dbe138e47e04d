//! The three shapes of a table that marks can lie in, and what a row of one says.
//!
//! | shape | name | mark | a grant of n | its ids |
//! |---|---|---|---|---|
//! | `xuid` | name | next | next + n x increment | next and above |
//! | `leaf` | `biz_tag` | `max_id` | `max_id` + n | `max_id` and above |
//! | `tinyid` | `biz_type` | `max_id` | `max_id` + n x delta | **above** `max_id` |
//!
//! The column of Leaf is exclusive: its row with `max_id` 1 and step 2000 issues 1 to 2000. The one of tinyid is inclusive.
//! A shape turns either into the port's mark, the first number that was not granted.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::failure::Failure;
use crate::sequence::name::SequenceName;
use crate::sequence::store::{
    Alteration, Ask, HIGHEST, MOST_STEP, NewSequence, Outcome, Row, SequenceSettings, StoreError,
};

/// Whose table it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// Ours, `xuid_sequence`, which `init` makes.
    #[default]
    Xuid,
    /// Leaf's `leaf_alloc`.
    Leaf,
    /// tinyid's `tiny_id_info`.
    TinyId,
}

/// A shape, and the table that has it: `xuid`, `leaf`, `tinyid`, or `leaf:TABLE` and so on, where TABLE may be
/// `schema.table`.
///
/// ```
/// use xuid_engine::sequence::store::database::Table;
/// let table: Table = "leaf:shop.leaf_alloc_2".parse()?;
/// assert_eq!(table.name(), "shop.leaf_alloc_2");
/// assert_eq!("tinyid".parse::<Table>()?.name(), "tiny_id_info");
/// # Ok::<(), xuid_engine::sequence::store::database::ParseTableError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The shape.
    pub shape: Shape,
    name: Option<String>,
}

/// Not a shape of a table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{found:?} is no shape of a table; allowed are xuid, leaf, tinyid, and leaf:TABLE with a table of another name"
)]
pub struct ParseTableError {
    found: String,
}

impl Table {
    /// The table's name as it was given, or the shape's own.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.shape.columns().table)
    }

    /// One of another name.
    pub(super) fn named(shape: Shape, name: String) -> Self {
        Self { shape, name: Some(name) }
    }

    /// Schema, if one was given, and name.
    pub(super) fn parts(&self) -> (Option<&str>, &str) {
        match self.name().split_once('.') {
            Some((schema, table)) => (Some(schema), table),
            None => (None, self.name()),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shape.word())?;
        self.name.as_ref().map_or(Ok(()), |name| write!(f, ":{name}"))
    }
}

impl FromStr for Table {
    type Err = ParseTableError;

    fn from_str(text: &str) -> Result<Self, ParseTableError> {
        let fail = || ParseTableError { found: text.to_owned() };
        let (word, name) = match text.split_once(':') {
            Some((word, name)) => (word, Some(name)),
            None => (text, None),
        };
        let shape = Shape::ALL.into_iter().find(|shape| shape.word() == word).ok_or_else(fail)?;
        let is_plain = |part: &str| {
            !part.is_empty() && part.chars().all(|char| char.is_alphanumeric() || "_$-".contains(char))
        };
        if name.is_some_and(|name| name.split('.').count() > 2 || !name.split('.').all(is_plain)) {
            return Err(fail());
        }
        Ok(Self { shape, name: name.map(str::to_owned) })
    }
}

/// Rows of `tiny_id_token` that are read at most.
pub(super) const MOST_TINY_TOKENS: u32 = 100_000;

/// What the columns of a shape are called.
pub(super) struct Columns {
    /// The table, where no other is named.
    pub(super) table: &'static str,
    pub(super) name: &'static str,
    pub(super) mark: &'static str,
    /// What is added to the column to make it the port's mark.
    pub(super) above: u64,
    pub(super) step: &'static str,
    pub(super) increment: Option<&'static str>,
    pub(super) remainder: Option<&'static str>,
    pub(super) last: Option<&'static str>,
    pub(super) strict: Option<&'static str>,
    /// Counted up with each grant.
    pub(super) version: Option<&'static str>,
}

impl Columns {
    /// What no table of the shape lacks.
    pub(super) fn needed(&self) -> impl Iterator<Item = &'static str> {
        let optional = [self.increment, self.remainder, self.last, self.strict, self.version];
        [self.name, self.mark, self.step].into_iter().chain(optional.into_iter().flatten())
    }
}

impl Shape {
    pub(super) const ALL: [Self; 3] = [Self::Xuid, Self::Leaf, Self::TinyId];

    fn word(self) -> &'static str {
        match self {
            Self::Xuid => "xuid",
            Self::Leaf => "leaf",
            Self::TinyId => "tinyid",
        }
    }

    pub(super) fn columns(self) -> &'static Columns {
        match self {
            Self::Xuid => &Columns {
                table: "xuid_sequence",
                name: "name",
                mark: "next",
                above: 0,
                step: "step",
                increment: Some("increment"),
                remainder: Some("remainder"),
                last: Some("last"),
                strict: Some("strict"),
                version: None,
            },
            Self::Leaf => &Columns {
                table: "leaf_alloc",
                name: "biz_tag",
                mark: "max_id",
                above: 0,
                step: "step",
                increment: None,
                remainder: None,
                last: None,
                strict: None,
                version: None,
            },
            Self::TinyId => &Columns {
                table: "tiny_id_info",
                name: "biz_type",
                mark: "max_id",
                above: 1,
                step: "step",
                increment: Some("delta"),
                remainder: Some("remainder"),
                last: None,
                strict: None,
                version: Some("version"),
            },
        }
    }

    /// Refuses settings that no column of the shape can hold.
    pub(super) fn check_new(self, new: &NewSequence) -> Result<(), StoreError> {
        let columns = self.columns();
        let (settings, usual) = (&new.settings, SequenceSettings::default());
        let misfits = [
            ("an increment", columns.increment.is_none() && settings.increment != usual.increment),
            ("a remainder", columns.remainder.is_none() && settings.remainder != usual.remainder),
            ("a last number", columns.last.is_none() && settings.last != usual.last),
            ("strict order", columns.strict.is_none() && settings.strict),
        ];
        if let Some((what, _)) = misfits.iter().find(|(_, is_misfit)| *is_misfit) {
            return refuse(format!("a table of shape {} has no column for {what}", self.word()));
        }
        let biggest = i32::MAX as u32;
        let why = if settings.increment == 0 || settings.increment > biggest {
            format!("the increment is {} and must be 1 to {biggest}", settings.increment)
        } else if settings.remainder >= settings.increment {
            format!("the remainder {} is not below the increment {}", settings.remainder, settings.increment)
        } else if !(1..=MOST_STEP).contains(&settings.step) {
            format!("the step is {} and must be 1 to {MOST_STEP}", settings.step)
        } else if settings.last > HIGHEST || new.start > HIGHEST || new.start < columns.above {
            format!("start and last are {} to {HIGHEST} in this table", columns.above)
        } else {
            return Ok(());
        };
        refuse(why)
    }
}

impl Shape {
    /// Refuses what no column of the shape can hold.
    pub(super) fn check_alteration(self, alteration: &Alteration) -> Result<(), StoreError> {
        if alteration.step.is_some_and(|step| !(1..=MOST_STEP).contains(&step)) {
            return refuse(format!("the step must be 1 to {MOST_STEP}"));
        }
        if alteration.last.is_some() && self.columns().last.is_none() {
            return refuse(format!("a table of shape {} has no column for a last number", self.word()));
        }
        Ok(())
    }
}

fn refuse<T>(why: String) -> Result<T, StoreError> {
    Err(StoreError::Refused { why })
}

/// Which characters a column can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alphabet {
    /// All of Unicode.
    All,
    /// Those of three bytes at most in UTF-8.
    Basic,
    /// ASCII for certain, and nothing is asked of the rest.
    Ascii,
}

/// What a column holds, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Integers of 64 bits.
    Bigint,
    /// Narrower integers.
    Integer,
    /// Text whose length is counted in characters.
    Text,
    /// Text whose length is counted in bytes.
    Bytes,
    /// Anything else.
    Other,
}

/// A column as the database describes it.
#[derive(Clone, Debug)]
pub(super) struct FoundColumn {
    /// `bigint`, say.
    pub(super) kind: String,
    pub(super) content: Content,
    /// The longest text, in its units.
    pub(super) most: Option<u64>,
    pub(super) alphabet: Alphabet,
}

const INTEGERS: [Content; 2] = [Content::Bigint, Content::Integer];

/// A table that was looked at and fits its shape.
#[derive(Clone, Debug)]
pub(super) struct FoundTable {
    pub(super) shape: Shape,
    /// In this schema, by this name.
    pub(super) place: (String, String),
    /// Quoted, and with its schema.
    pub(super) table: String,
    pub(super) columns: BTreeMap<String, FoundColumn>,
}

impl FoundTable {
    /// Holds the columns of a table against its shape.
    pub(super) fn check(&self, name: &str, has_unique_key: bool) -> Result<(), String> {
        let shape = self.shape.columns();
        let needed: Vec<&str> = shape.needed().collect();
        for column in &needed {
            if !self.columns.contains_key(*column) {
                return Err(format!(
                    "the table {name} has no column {column}: shape {} needs {}",
                    self.shape.word(),
                    needed.join(", ")
                ));
            }
        }
        let kind =
            |column: &str| self.columns.get(column).map(|found| found.kind.clone()).unwrap_or_default();
        let is = |column: &str, allowed: &[Content]| {
            self.columns.get(column).is_some_and(|found| allowed.contains(&found.content))
        };
        for column in [Some(shape.mark), shape.last].into_iter().flatten() {
            if !is(column, &[Content::Bigint]) {
                return Err(format!(
                    "the column {column} of {name} is {}, and a mark needs 64 bits: make it bigint",
                    kind(column)
                ));
            }
        }
        for column in
            [Some(shape.step), shape.increment, shape.remainder, shape.version].into_iter().flatten()
        {
            if !is(column, &INTEGERS) {
                return Err(format!("the column {column} of {name} is {} and no integer", kind(column)));
            }
        }
        if !is(shape.name, &[Content::Text, Content::Bytes]) {
            return Err(format!(
                "the column {} of {name} is {}: make it varchar(128)",
                shape.name,
                kind(shape.name)
            ));
        }
        if !has_unique_key {
            return Err(format!(
                "the table {name} has no unique key on {column}, so two rows could have one name: \
                 ALTER TABLE {name} ADD UNIQUE ({column})",
                column = shape.name
            ));
        }
        Ok(())
    }

    pub(super) fn has(&self, column: &str) -> bool {
        self.columns.contains_key(column)
    }

    /// Whether a column is there and an integer.
    pub(super) fn has_integer(&self, column: &str) -> bool {
        self.columns.get(column).is_some_and(|found| INTEGERS.contains(&found.content))
    }

    /// Whether a row can have this name. The database is not asked for one that none can have: it would not understand.
    pub(super) fn can_hold(&self, name: &SequenceName) -> bool {
        let Some(column) = self.columns.get(self.shape.columns().name) else { return false };
        let is_in_bytes = column.content == Content::Bytes;
        let len = if is_in_bytes { name.as_str().len() } else { name.as_str().chars().count() };
        let has_room = column.most.is_none_or(|most| len as u64 <= most);
        let is_known = match column.alphabet {
            Alphabet::All => true,
            Alphabet::Basic => name.as_str().chars().all(|char| char.len_utf8() < 4),
            Alphabet::Ascii => name.as_str().is_ascii(),
        };
        has_room && is_known
    }

    /// Refuses a name that the column would change.
    pub(super) fn check_name(&self, name: &SequenceName) -> Result<(), Failure> {
        if self.can_hold(name) {
            return Ok(());
        }
        let column = self.shape.columns().name;
        let kind = self.columns.get(column).map(|found| found.kind.clone()).unwrap_or_default();
        Err(Failure::refused(format!("the name does not fit into the column {column}, {kind}")))
    }
}

/// The floor of an ask, as the mark's column has it.
pub(super) fn floor_of(shape: Shape, ask: &Ask) -> i64 {
    i64::try_from(ask.floor.saturating_sub(shape.columns().above)).unwrap_or(i64::MAX)
}

/// A row as it lies in the table.
#[derive(Clone, Debug)]
pub(super) struct FoundRow {
    /// Spelled as in the table.
    pub(super) name: String,
    /// The mark's column as it is.
    pub(super) mark: Option<i64>,
    pub(super) step: Option<i64>,
    pub(super) increment: Option<i64>,
    pub(super) remainder: Option<i64>,
    pub(super) last: Option<i64>,
    pub(super) strict: bool,
    pub(super) description: Option<String>,
}

/// What a statement did to a mark's column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    /// What it replaced.
    pub(super) from: i64,
    /// What it stored.
    pub(super) to: i64,
}

#[cfg(test)]
impl FoundRow {
    /// One of usual settings.
    pub(super) fn some(name: &str, mark: i64, step: i64) -> Self {
        Self {
            name: name.to_owned(),
            mark: Some(mark),
            step: Some(step),
            increment: Some(1),
            remainder: Some(0),
            last: Some(i64::MAX),
            strict: false,
            description: None,
        }
    }
}

impl FoundRow {
    /// The row's settings, or why they are none.
    pub(super) fn settings(&self) -> Result<SequenceSettings, String> {
        let word = |what: &str, value: Option<i64>, allowed: std::ops::RangeInclusive<i64>| {
            let found = value.ok_or_else(|| format!("the row's {what} is NULL"))?;
            if allowed.contains(&found) {
                return Ok(found.unsigned_abs());
            }
            Err(format!("the row's {what} is {found} and must be {} to {}", allowed.start(), allowed.end()))
        };
        let step = word("step", self.step, 1..=i64::MAX)?.min(MOST_STEP);
        let increment = word("increment", self.increment, 1..=i64::from(i32::MAX))? as u32;
        let remainder = word("remainder", self.remainder, 0..=i64::from(increment) - 1)? as u32;
        let last = word("last", self.last, 0..=i64::MAX)?;
        Ok(SequenceSettings { step, increment, remainder, last, strict: self.strict })
    }

    /// The port's mark.
    pub(super) fn next(&self, shape: Shape) -> Result<u64, String> {
        match self.mark {
            Some(mark) if mark >= 0 => Ok(mark.unsigned_abs() + shape.columns().above),
            Some(mark) => Err(format!("the row's {} is {mark}, below 0", shape.columns().mark)),
            None => Err(format!("the row's {} is NULL", shape.columns().mark)),
        }
    }

    /// The port's row.
    pub(super) fn row(&self, shape: Shape) -> Result<Row, String> {
        let name = SequenceName::of_row(&self.name).map_err(|error| error.to_string())?;
        let (next, settings) = (self.next(shape)?, self.settings()?);
        Ok(Row { name, next, settings, description: self.description.clone() })
    }
}

/// What became of an ask: `row` is the row of its very name as the transaction saw it, `moved` what the transaction
/// did to it.
pub(super) fn outcome(shape: Shape, ask: &Ask, row: Option<&FoundRow>, moved: Option<Moved>) -> Outcome {
    let above = i128::from(shape.columns().above);
    let Some(row) = row else {
        return match moved {
            None => Outcome::Absent,
            Some(_) => Outcome::Unknown { why: "a mark moved, and its row was not found".into() },
        };
    };
    let settings = match row.settings() {
        Ok(settings) => settings,
        Err(why) if moved.is_none() => return Outcome::Refused { why },
        Err(why) => return Outcome::Unknown { why },
    };
    if let Some(moved) = moved {
        let (from, to) = (i128::from(moved.from) + above, i128::from(moved.to) + above);
        let count = if settings.strict { ask.least } else { ask.count.max(settings.step) };
        let most = i128::from(count) * i128::from(settings.increment);
        if let (Ok(first), Ok(end)) = (u64::try_from(from), u64::try_from(to))
            && moved.from >= 0
            && end > first
            && to - from <= most
        {
            return Outcome::Granted { first, end, settings };
        }
        // What a trigger, say, made of the mark is waste, and nothing is issued of it.
        return Outcome::Unknown {
            why: format!("the mark moved from {from} to {to}, which was not asked for"),
        };
    }
    let next = match row.next(shape) {
        Ok(next) => next,
        Err(why) => return Outcome::Refused { why },
    };
    if next < ask.floor {
        return Outcome::Behind { next };
    }
    let increment = u64::from(settings.increment);
    let ahead = (u64::from(settings.remainder) + increment - next % increment) % increment;
    // What the column can say ends with the grant of the number before the highest, where the mark is exclusive.
    let highest = settings.last.min(HIGHEST - 1 + shape.columns().above);
    if next.checked_add(ahead).is_none_or(|first| first > highest) {
        return Outcome::Exhausted { settings };
    }
    Outcome::Away { why: "the row changed meanwhile".into() }
}

/// Other spellings of a name that a person may have meant.
pub(super) fn spellings(name: &SequenceName) -> Vec<String> {
    let text = name.as_str();
    let mut capital = text.to_lowercase();
    if let Some(first) = capital.chars().next() {
        capital.replace_range(..first.len_utf8(), &first.to_uppercase().to_string());
    }
    let mut found = vec![text.to_lowercase(), text.to_uppercase(), capital];
    found.retain(|other| other != text);
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(count: u64, least: u64) -> Ask {
        Ask { name: SequenceName::new("orders").unwrap(), count, least, floor: 0 }
    }

    fn row(mark: i64, step: i64) -> FoundRow {
        FoundRow::some("orders", mark, step)
    }

    #[test]
    fn a_table_is_named_by_its_shape_or_after_a_colon() {
        for text in ["xuid", "leaf", "tinyid", "leaf:a.b", "tinyid:my_info"] {
            assert_eq!(text.parse::<Table>().unwrap().to_string(), text);
        }
        for text in ["", "Leaf", "leaf:", "leaf:a.b.c", "leaf:a b", "leaf:a`b", "leaf:a\"b", "leaf:."] {
            assert!(text.parse::<Table>().is_err(), "{text}");
        }
    }

    #[test]
    fn leaf_s_mark_is_exclusive_and_tinyid_s_is_inclusive() {
        let moved = Some(Moved { from: 1, to: 2001 });
        let found = outcome(Shape::Leaf, &ask(1, 1), Some(&row(2001, 2000)), moved);
        assert!(matches!(found, Outcome::Granted { first: 1, end: 2001, .. }), "{found:?}");
        let odd = FoundRow { increment: Some(2), remainder: Some(1), ..row(200_001, 100_000) };
        let found = outcome(Shape::TinyId, &ask(1, 1), Some(&odd), Some(Moved { from: 1, to: 200_001 }));
        assert!(matches!(found, Outcome::Granted { first: 2, end: 200_002, .. }), "{found:?}");
    }

    #[test]
    fn a_mark_that_moved_otherwise_than_asked_is_no_grant() {
        for (from, to) in [(1, 1), (5, 4), (1, 2002), (-7, 3)] {
            let found = outcome(Shape::Leaf, &ask(1, 1), Some(&row(to, 2000)), Some(Moved { from, to }));
            assert!(matches!(found, Outcome::Unknown { .. }), "{from} to {to}: {found:?}");
        }
        let moved = Some(Moved { from: 1, to: 2 });
        assert!(matches!(outcome(Shape::Leaf, &ask(1, 1), None, moved), Outcome::Unknown { .. }));
    }

    #[test]
    fn what_did_not_move_is_absent_exhausted_or_refused() {
        let found = |row: FoundRow| outcome(Shape::Xuid, &ask(1, 1), Some(&row), None);
        assert!(matches!(outcome(Shape::Xuid, &ask(1, 1), None, None), Outcome::Absent));
        assert!(matches!(found(FoundRow { last: Some(9), ..row(10, 1) }), Outcome::Exhausted { .. }));
        let odd = FoundRow { last: Some(11), increment: Some(3), remainder: Some(0), ..row(10, 1) };
        assert!(matches!(found(odd), Outcome::Exhausted { .. }));
        assert!(matches!(found(row(i64::MAX, 1)), Outcome::Exhausted { .. }));
        assert!(matches!(found(row(-1, 1)), Outcome::Refused { .. }));
        assert!(matches!(found(row(1, 0)), Outcome::Refused { .. }));
        let odd = FoundRow { increment: Some(2), remainder: Some(2), ..row(1, 1) };
        assert!(matches!(found(odd), Outcome::Refused { .. }));
    }

    #[test]
    fn settings_without_a_column_are_refused() {
        let strict = SequenceSettings { strict: true, ..SequenceSettings::default() };
        let new = NewSequence { settings: strict, ..NewSequence::default() };
        assert!(Shape::Xuid.check_new(&new).is_ok());
        let error = Shape::Leaf.check_new(&new).unwrap_err().to_string();
        assert!(error.contains("leaf has no column for strict order"), "{error}");
        assert!(Shape::TinyId.check_new(&NewSequence { start: 0, ..NewSequence::default() }).is_err());
        assert!(Shape::TinyId.check_new(&NewSequence::default()).is_ok());
    }

    #[test]
    fn other_spellings_differ_in_case_only() {
        let name = SequenceName::new("order").unwrap();
        assert_eq!(spellings(&name), ["ORDER", "Order"]);
        assert_eq!(spellings(&SequenceName::new("1").unwrap()), [""; 0]);
    }
}
