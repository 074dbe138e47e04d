//! Which worker to take.

use super::error::TakeError;
use crate::registry::WorkerEntry;
use crate::sys::guards::Guard;

pub(super) fn check_pinned(entries: &[WorkerEntry], pinned: u32, now: u64) -> Result<(), TakeError> {
    let Some(entry) = entries.iter().find(|entry| entry.worker == pinned) else {
        let number = |entry: Option<&WorkerEntry>| entry.map_or(0, |entry| entry.worker);
        let (first, last) = (number(entries.first()), number(entries.last()));
        return Err(TakeError::Outside { worker: pinned, first, last });
    };
    let record = &entry.record.as_ref().map_err(Clone::clone)?.record;
    if record.is_closed() {
        return Err(TakeError::Closed { worker: pinned });
    }
    if record.reserved_until > now {
        let (worker, until) = (pinned, record.reserved_until);
        let Some(owner) = entry.live.clone() else {
            return Err(TakeError::Ahead { worker, until, owner: record.owner.clone() });
        };
        return Err(TakeError::Held { worker, until, owner });
    }
    // The process that is announced has no window of it any more: being alive is no bar.
    Ok(())
}

/// Among how many of the lowest marks a worker is drawn. At genesis all marks are equal and the draw is over all
/// of them; later, sixteen keep two nodes that start together apart without touching marks that are younger.
const DRAW: usize = 16;

/// The worker to take: the one held last; else one of the lowest marks not live; else the lowest marks live;
/// never one whose mark is above `now`.
pub(super) fn choose<'a>(
    entries: &'a [WorkerEntry],
    now: u64,
    preferred: Option<u32>,
    (pinned, except): (Option<u32>, &[u32]),
    random: fn() -> u64,
) -> Result<&'a WorkerEntry, TakeError> {
    let is_closed = |entry: &WorkerEntry| entry.record.as_ref().is_ok_and(|found| found.record.is_closed());
    let mark = |entry: &WorkerEntry| {
        let found = entry.record.as_ref().ok().filter(|found| !found.record.is_closed());
        found.map(|found| found.record.reserved_until)
    };
    let usable = entries
        .iter()
        .filter(|entry| pinned.is_none_or(|pinned| pinned == entry.worker))
        .filter(|entry| !except.contains(&entry.worker))
        .filter_map(|entry| mark(entry).map(|until| (until, entry)));
    let Some(earliest) = usable.clone().map(|(until, _)| until).min() else {
        let are_closed = entries.iter().any(is_closed);
        return Err(if are_closed { TakeError::AllClosed } else { TakeError::NoneUsable });
    };
    let mut free: Vec<_> =
        usable.filter(|(until, _)| *until <= now || !Guard::MarkNotAhead.holds()).collect();
    if let Some((_, entry)) =
        free.iter().find(|(_, entry)| Some(entry.worker) == preferred && entry.live.is_none())
    {
        return Ok(entry);
    }
    if free.iter().any(|(_, entry)| entry.live.is_none()) {
        free.retain(|(_, entry)| entry.live.is_none());
    }
    free.sort_by_key(|(until, entry)| (*until, entry.worker));
    let lowest = free.first().ok_or(TakeError::NoneFree { earliest })?.0;
    let equal = free.iter().take_while(|(until, _)| *until == lowest).count();
    free.truncate(equal.max(DRAW));
    Ok(free[(random() % free.len() as u64) as usize].1)
}
