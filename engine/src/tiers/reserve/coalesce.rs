//! Many small pieces of unused ids -> few extents, before they are appended to the spill.
//!
//! The producer calls it once a second with what it swept out of ring and queue, and the clean stop with all that
//! is left. Seen as a map, one for each worker with ticks going down and sequences going right, a piece is a
//! rectangle. The ids are read from the top in bands, a band being as many ticks as look the same: in each, what
//! touches is joined into intervals, and an interval that lies under nearly the same interval of the band before
//! extends the rectangle begun there. What sticks out of a rectangle at the sides goes through the same once
//! more, and what is still too small is dropped.
//!
//! # Invariants
//! - C1 no id comes out that did not go in, and none comes out twice;
//! - C2 ids in are ids out plus `trimmed`;
//! - C3 an extent lies within one worker, has at most `max_ticks` ticks and at least `least_ids` ids.

use xuid_id::Layout;
use xuid_spill::Extent;

#[cfg(test)]
mod tests;

/// What is worth a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most ticks of an extent. About a second of them, so that a grant is cut finely enough.
    pub(crate) max_ticks: u64,
    /// The least ids of an extent; fewer are dropped.
    pub(crate) least_ids: u64,
    /// The most extents; the smallest of more are dropped.
    pub(crate) max_extents: usize,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coalesced {
    /// By first id, so the oldest first.
    pub(crate) extents: Vec<Extent>,
    /// Ids dropped because they were not worth a record.
    pub(crate) trimmed: u64,
}

/// An interval joins a rectangle if at least this part of the ids of both lies in what they have in common: calls
/// for fresh ids begin a tick at an offset of 0 to 63 of 4096 and take some, which this forgives.
const KEPT: (u64, u64) = (7, 8);

/// Coalesces pieces, which may come in any order and must not overlap.
pub(crate) fn coalesce(pieces: Vec<Extent>, layout: &Layout, limits: &Limits) -> Coalesced {
    debug_assert!(limits.max_ticks > 0);
    let given: u64 = pieces.iter().map(Extent::ids).sum();
    let mut rects: Vec<Rect> =
        pieces.into_iter().filter(|piece| piece.ids() > 0).map(|piece| Rect::of(piece, layout)).collect();
    let mut pass = Pass::new(layout, limits);
    pass.run(&mut rects);
    let mut rest = std::mem::take(&mut pass.rest);
    pass.run(&mut rest);
    let rest = std::mem::take(&mut pass.rest);
    for rect in rest {
        pass.emit(rect);
    }

    let mut extents = pass.out;
    if extents.len() > limits.max_extents {
        extents.sort_unstable_by_key(|extent| std::cmp::Reverse(extent.ids()));
        extents.truncate(limits.max_extents);
    }
    extents.sort_unstable_by_key(|extent| extent.first);
    let kept: u64 = extents.iter().map(Extent::ids).sum();
    debug_assert!(kept <= given, "C1: {kept} ids out of {given}");
    Coalesced { extents, trimmed: given.saturating_sub(kept) }
}

/// Sequences `start .. end` of a worker, in each of `ticks` ticks from `tick`.
#[derive(Clone, Copy, Debug)]
struct Rect {
    worker: u32,
    start: u32,
    end: u32,
    tick: u64,
    ticks: u64,
}

impl Rect {
    fn of(piece: Extent, layout: &Layout) -> Self {
        let start = (piece.first & u64::from(layout.sequences() - 1)) as u32;
        let worker = (piece.first >> layout.sequence_bits()) & u64::from(layout.workers() - 1);
        let end = start + piece.len;
        debug_assert!(end <= layout.sequences(), "{piece:?} leaves its tick");
        let (tick, ticks) = (layout.tick_of(piece.first), u64::from(piece.ticks));
        Self { worker: worker as u32, start, end, tick, ticks }
    }

    /// Orders by worker, then tick, then sequence, in one word: an id with time and worker swapped.
    fn key(&self, layout: &Layout) -> u64 {
        let high = u64::from(self.worker) << layout.time_bits() | self.tick;
        high << layout.sequence_bits() | u64::from(self.start)
    }

    fn until(&self) -> u64 {
        self.tick + self.ticks
    }

    fn width(&self) -> u64 {
        u64::from(self.end - self.start)
    }
}

/// A rectangle that the next band may extend.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// What all its rows have in common.
    rect: Rect,
    /// Ids in its rows.
    ids: u64,
    /// Its last row in `Pass::rows`.
    row: usize,
}

/// One interval of one band, and the one above it in the same rectangle.
#[derive(Clone, Copy, Debug)]
struct Row {
    rect: Rect,
    above: Option<usize>,
}

struct Pass<'a> {
    layout: &'a Layout,
    limits: &'a Limits,
    out: Vec<Extent>,
    /// What stuck out of rectangles.
    rest: Vec<Rect>,
    /// Those that reach down to the current band, by sequence and disjoint.
    open: Vec<Open>,
    /// Empty; kept for its memory, as there is one walk over `open` a band.
    spare: Vec<Open>,
    rows: Vec<Row>,
}

impl<'a> Pass<'a> {
    fn new(layout: &'a Layout, limits: &'a Limits) -> Self {
        let (open, spare) = (Vec::new(), Vec::new());
        Self { layout, limits, out: Vec::new(), rest: Vec::new(), open, spare, rows: Vec::new() }
    }

    /// Turns `rects` into extents in `out`, and what is left at their sides into `rest`.
    fn run(&mut self, rects: &mut [Rect]) {
        self.rows.clear();
        rects.sort_unstable_by_key(|rect| rect.key(self.layout));
        let mut active: Vec<Rect> = Vec::new();
        let mut band: Vec<Rect> = Vec::new();
        let mut ahead = rects.iter().copied().peekable();
        while let Some(top) = active.first().copied().or_else(|| ahead.peek().copied()) {
            // What is still active was cut off at the band's top, so all of it begins there.
            let (worker, tick) = (top.worker, top.tick);
            let older = active.len();
            while let Some(rect) = ahead.next_if(|rect| (rect.worker, rect.tick) == (worker, tick)) {
                active.push(rect);
            }
            if older > 0 {
                active.sort_unstable_by_key(|rect| rect.start);
            }
            let mut until = active.iter().map(Rect::until).min().unwrap_or(tick);
            if let Some(next) = ahead.peek().filter(|next| next.worker == worker) {
                until = until.min(next.tick);
            }
            join(&active, until - tick, &mut band);
            self.place(&band);
            active.retain_mut(|rect| {
                rect.ticks = rect.until() - until;
                rect.tick = until;
                rect.ticks > 0
            });
        }
        for open in std::mem::take(&mut self.open) {
            self.close(open);
        }
    }

    /// Puts the intervals of a band under the open rectangles. Both go by sequence, so one walk does.
    fn place(&mut self, band: &[Rect]) {
        let walked = std::mem::take(&mut self.open);
        let mut next = std::mem::take(&mut self.spare);
        let mut open = walked.iter().copied().peekable();
        for row in band {
            // Rectangles that end before this interval begins have nothing below them.
            while let Some(before) = open.next_if(|open| open.rect.end <= row.start) {
                self.close(before);
            }
            // Of those that touch it at most one can have 7/8 of it; the last may reach into the next interval.
            let mut found = None;
            while let Some(above) = open.peek().copied().filter(|open| open.rect.start < row.end) {
                let fitting = if found.is_none() { self.fit(&above, row) } else { None };
                if fitting.is_some() {
                    found = fitting;
                    open.next();
                } else if above.rect.end <= row.end {
                    open.next();
                    self.close(above);
                } else {
                    break;
                }
            }
            let (rect, ids, above) = match found {
                Some(Open { rect, ids, row }) => (rect, ids, Some(row)),
                None => (*row, row.width() * row.ticks, None),
            };
            self.rows.push(Row { rect: *row, above });
            next.push(Open { rect, ids, row: self.rows.len() - 1 });
        }
        for left in open {
            self.close(left);
        }
        self.open = next;
        self.spare = walked;
        self.spare.clear();
    }

    /// The open rectangle with `row` under it, if that is worth it.
    fn fit(&self, above: &Open, row: &Rect) -> Option<Open> {
        let rect = Rect {
            start: above.rect.start.max(row.start),
            end: above.rect.end.min(row.end),
            ticks: above.rect.ticks + row.ticks,
            ..above.rect
        };
        let ids = above.ids + row.width() * row.ticks;
        let adjacent = above.rect.worker == row.worker && above.rect.until() == row.tick;
        let keeps = |kept: u64, of: u64| kept * KEPT.1 >= of * KEPT.0;
        let fits = adjacent
            && rect.start < rect.end
            && rect.ticks <= self.limits.max_ticks
            && keeps(rect.width(), row.width())
            && keeps(rect.width() * rect.ticks, ids);
        fits.then_some(Open { rect, ids, row: above.row })
    }

    /// Emits a rectangle that nothing extends any more, and puts what its rows have beside it to the rest.
    fn close(&mut self, open: Open) {
        self.emit(open.rect);
        let mut at = Some(open.row);
        while let Some(Row { rect: row, above }) = at.map(|index| self.rows[index]) {
            let left = Rect { end: open.rect.start, ..row };
            let right = Rect { start: open.rect.end, ..row };
            self.rest.extend([left, right].into_iter().filter(|side| side.start < side.end));
            at = above;
        }
    }

    /// Appends a rectangle to the extents, `max_ticks` at a time, unless it is too small.
    fn emit(&mut self, mut rect: Rect) {
        while rect.ticks > 0 {
            let ticks = rect.ticks.min(self.limits.max_ticks).min(u64::from(u32::MAX));
            if rect.width() * ticks >= self.limits.least_ids {
                let first = self.layout.encode(rect.tick, rect.worker, rect.start).raw();
                self.out.push(Extent { first, len: rect.end - rect.start, ticks: ticks as u32 });
            }
            rect.tick += ticks;
            rect.ticks -= ticks;
        }
    }
}

/// Joins what touches, the rectangles going by sequence, into the intervals of one band of `ticks` ticks.
fn join(rects: &[Rect], ticks: u64, band: &mut Vec<Rect>) {
    band.clear();
    for rect in rects {
        match band.last_mut() {
            Some(last) if rect.start <= last.end => {
                debug_assert!(rect.start == last.end, "an id in two places: {last:?} and {rect:?}");
                last.end = last.end.max(rect.end);
            }
            _ => band.push(Rect { ticks, ..*rect }),
        }
    }
}
