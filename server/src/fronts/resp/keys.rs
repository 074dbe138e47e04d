//! Questions about names, answered by the store of the sequences.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;
use xuid_engine::sequence::store::{NewSequence, SequenceSettings};
use xuid_engine::sequence::{ControlError, SequenceInfo, SequenceName, Sequences};
use xuid_protocol::{LIST_MAX, Refusal, Status};

use super::command::Scan;
use super::glob::{self, Pattern};
use super::reply::Reply;
use crate::config::SequenceRights;
use crate::fronts::refusals::of_control;
use crate::state::cursors::Cursors;
use crate::state::unread::{Unread, UnreadPart};

/// The most names that KEYS answers with.
pub(super) const MOST_KEYS: u32 = 10_000;

/// What became of a question.
pub(crate) type Answer = Result<Reply, Refusal>;

/// A sequence; `None` if there is none of that name.
async fn found(all: &Sequences, name: &SequenceName) -> Result<Option<SequenceInfo>, Refusal> {
    match all.info(name).await {
        Ok(info) => Ok(Some(info)),
        Err(ControlError::NoSequence { .. }) => Ok(None),
        Err(error) => Err(of_control(&error)),
    }
}

/// The number before the next one of this process or, where it holds none, before the store's mark.
pub(super) async fn get(all: Sequences, name: SequenceName) -> Answer {
    Ok(match found(&all, &name).await? {
        Some(info) => {
            let increment = u64::from(info.row.settings.increment);
            let before =
                info.here.next.map_or(info.row.next.saturating_sub(1), |next| next.saturating_sub(increment));
            Reply::id(before)
        }
        None => Reply::Null,
    })
}

pub(super) async fn exists(all: Sequences, names: Vec<SequenceName>) -> Answer {
    let mut count = 0;
    for name in names {
        count += i64::from(found(&all, &name).await?.is_some());
    }
    Ok(Reply::Integer(count))
}

pub(super) async fn kind(all: Sequences, name: SequenceName) -> Answer {
    let is_there = found(&all, &name).await?.is_some();
    Ok(Reply::Simple(if is_there { "string" } else { "none" }))
}

/// -1 for a key that lives for ever, -2 for one that is not there.
pub(super) async fn time_to_live(all: Sequences, name: SequenceName) -> Answer {
    let is_there = found(&all, &name).await?.is_some();
    Ok(Reply::Integer(if is_there { -1 } else { -2 }))
}

/// Creates a sequence that goes on behind the value of a counter, if there is none of that name.
pub(super) async fn set_if_absent(
    all: Sequences,
    name: SequenceName,
    value: u64,
    step: u64,
    is_answered_by_number: bool,
) -> Answer {
    let new = NewSequence {
        start: value + 1,
        settings: SequenceSettings { step, ..SequenceSettings::default() },
        description: None,
    };
    let is_new = match found(&all, &name).await? {
        Some(_) => false,
        None => match all.create(&name, new).await {
            // Another client's, made meanwhile, may have begun elsewhere, or is past this start already.
            Ok(info) => info.row.next == value + 1,
            Err(ControlError::Exists { .. }) => false,
            Err(error) => return Err(of_control(&error)),
        },
    };
    Ok(match (is_new, is_answered_by_number) {
        (_, true) => Reply::Integer(is_new.into()),
        (true, false) => Reply::Simple("OK"),
        (false, false) => Reply::Null,
    })
}

/// Names that are compared with a pattern before others have their turn: a millisecond, at the worst.
const AT_ONCE: usize = 16;

/// A page of names, and what was found on it.
struct Page {
    names: Vec<String>,
    /// The last name of the page; `None`: there are no more.
    last: Option<String>,
}

/// The names after `after` on one page of the store that the client may see and that fit.
async fn page(
    all: &Sequences,
    rights: &SequenceRights,
    pattern: Option<&str>,
    after: &str,
    most: usize,
) -> Result<Page, Refusal> {
    let prefix = pattern.map_or("", glob::prefix);
    let rows = all.list(prefix, after, most).await.map_err(|error| of_control(&error))?;
    let last = (rows.len() == most).then(|| rows.last().map(|info| info.row.name.to_string())).flatten();
    let pattern = pattern.map(Pattern::new);
    let mut names = Vec::new();
    for some in rows.chunks(AT_ONCE) {
        let some = some.iter().map(|info| info.row.name.as_str());
        let fits =
            |name: &&str| rights.may_see(name) && pattern.as_ref().is_none_or(|pattern| pattern.fits(name));
        names.extend(some.filter(fits).map(str::to_owned));
        yield_now().await;
    }
    Ok(Page { names, last })
}

/// One step of a walk over the names.
pub(super) async fn scan(
    all: Sequences,
    rights: SequenceRights,
    (cursor, pattern, count): (u64, Option<String>, usize),
    cursors: Cursors,
) -> Answer {
    let after = match cursor {
        0 => String::new(),
        _ => cursors.find(cursor).ok_or_else(forgotten)?,
    };
    let Page { names, last } = page(&all, &rights, pattern.as_deref(), &after, count).await?;
    if last.is_none() {
        cursors.end(cursor);
    }
    let next = last.map_or(0, |last| cursors.keep(cursor, last));
    Ok(Reply::List(vec![Reply::id(next), names_list(names)]))
}

/// What a scan asks for, without its borrow.
pub(super) fn owned(scan: Scan<'_>) -> (u64, Option<String>, usize) {
    (scan.cursor, scan.pattern.map(str::to_owned), scan.count)
}

/// All names that fit. What is gathered counts in an account of its own.
pub(super) async fn keys(
    all: Sequences,
    rights: SequenceRights,
    pattern: String,
    gathered: Arc<Unread>,
) -> Answer {
    let (mut found, mut after) = (Vec::new(), String::new());
    let (mut part, mut bytes) = (UnreadPart::new(gathered), 0);
    loop {
        let Page { names, last } = page(&all, &rights, Some(&pattern), &after, LIST_MAX as usize).await?;
        yield_now().await;
        bytes += names.iter().map(|name| size_of::<String>() + name.len()).sum::<usize>();
        found.extend(names);
        part.set(bytes);
        if part.is_too_much() {
            part.tell();
            let text =
                "too much is gathered for others at this moment: ask again, or walk over the names with SCAN";
            return Err(Refusal::new(Status::OVERLOADED, text).retry_after(Duration::from_secs(1)));
        }
        if found.len() > MOST_KEYS as usize {
            let text = format!("more than {MOST_KEYS} names fit: walk over them with SCAN");
            return Err(Refusal::new(Status::COUNT, text));
        }
        match last {
            Some(last) => after = last,
            None => return Ok(names_list(found)),
        }
    }
}

pub(super) async fn size(all: Sequences, rights: SequenceRights) -> Answer {
    let (mut count, mut after) = (0_usize, String::new());
    loop {
        let Page { names, last } = page(&all, &rights, None, &after, LIST_MAX as usize).await?;
        yield_now().await;
        count += names.len();
        match last {
            Some(last) => after = last,
            None => return Ok(Reply::count(count)),
        }
    }
}

fn names_list(names: Vec<String>) -> Reply {
    Reply::List(names.into_iter().map(Reply::bulk).collect())
}

fn forgotten() -> Refusal {
    Refusal::new(
        Status::BAD_REQUEST,
        "invalid cursor: not of this server's, or forgotten for newer walks: begin anew with 0",
    )
}
