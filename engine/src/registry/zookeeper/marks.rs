//! Marks: made with a spill file, and removed long after it was given up.

use xuid_spill::SpillId;
use zookeeper_client::{Client, Stat};

use super::link::Link;
use super::znode::{MARK, SPILLS};
use crate::registry::MarkRecord;
use crate::registry::record::{Place, Row};
use crate::sys::deferred_log;

/// Beyond so many marks one that was not changed for long makes room: containers that come and go leave theirs.
const MOST: usize = 4_096;

/// How many are looked at to find an old one.
const SAMPLE: usize = 32;

/// A mark changes when ids are taken back from its spill. A spill whose ids no process took back for so long, where
/// there are very many, may find no mark: it is refused and its ids are wasted; none is repeated.
const OLD_MS: i64 = 7 * 24 * 3_600_000;

/// The record of a mark, as it is when its node is made.
pub(super) fn row(spill: SpillId, record: &MarkRecord) -> Row {
    let MarkRecord { granted_upto, token, operation } = *record;
    Row {
        place: Place::mark(MARK),
        spill,
        version: 0,
        value: granted_upto,
        token,
        operation,
        updated_ms: 0,
        owner: String::new(),
        named: None,
    }
}

/// Removes an old mark where there are too many. Best effort: an absent mark is refused, never taken for zero.
pub(super) fn make_room(link: &Link, client: &Client) {
    let Ok(marks) = link.ask(client.list_children(SPILLS)) else { return };
    if marks.len() < MOST {
        return;
    }
    let begin = getrandom::u64().map_or(0, |random| random as usize % marks.len());
    let sample = marks.iter().cycle().skip(begin).take(SAMPLE).map(|name| format!("{SPILLS}/{name}"));
    let stats = sample.filter_map(|path| {
        let stat = link.ask(client.check_stat(&path)).ok()??;
        Some((path, stat))
    });
    let Some((path, stat)) = oldest(stats) else { return };
    // At the version that was old, so that a mark that moves meanwhile stays.
    if link.ask(client.delete(&path, Some(stat.version))).is_ok() {
        deferred_log::log(move || {
            tracing::info!(path, "an old spill's mark made room; that spill is refused from now on");
        });
    }
}

/// The one changed longest ago, if that is long enough beside the one changed last.
fn oldest(stats: impl Iterator<Item = (String, Stat)>) -> Option<(String, Stat)> {
    let mut stats: Vec<_> = stats.collect();
    stats.sort_by_key(|(_, stat)| stat.mtime);
    // Both times are the ensemble's.
    let newest = stats.last()?.1.mtime;
    stats.into_iter().next().filter(|(_, stat)| newest - stat.mtime > OLD_MS)
}
