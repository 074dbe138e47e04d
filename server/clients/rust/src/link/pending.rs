//! The requests in flight on one connection.
//!
//! # Invariants
//! - I1 a request id is never used twice on one connection, so a late reply meets nobody else's request;
//! - I2 a waiter is taken once.

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::link::answer::{Expected, Outcome};

/// Who waits for a reply.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) expected: Expected,
    /// The server may take its time until then, because the request says so.
    pub(crate) due: Instant,
    /// `None`: the link itself, which only wants to hear something.
    pub(crate) reply: Option<oneshot::Sender<Outcome>>,
}

/// A slab of waiters. A request id is a slot's index below its serial number, which grows with each use (I1); serials
/// begin at 1, so that ids below 2^32 are free for HELLO and GOAWAY.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    serial: u32,
    waiter: Option<Waiter>,
}

impl Pending {
    pub(crate) fn insert(&mut self, waiter: Waiter) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { serial: 0, waiter: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        // 2^32 uses of one slot take longer than any connection lives.
        slot.serial = slot.serial.wrapping_add(1).max(1);
        slot.waiter = Some(waiter);
        u64::from(slot.serial) << 32 | u64::from(index)
    }

    pub(crate) fn take(&mut self, request_id: u64) -> Option<Waiter> {
        let index = request_id as u32;
        let slot = self.slots.get_mut(index as usize)?;
        if u64::from(slot.serial) != request_id >> 32 {
            return None;
        }
        let waiter = slot.waiter.take()?;
        self.free.push(index);
        Some(waiter)
    }

    /// What the reply to that request must be, while it is in flight.
    pub(crate) fn expected(&self, request_id: u64) -> Option<Expected> {
        let slot = self.slots.get(request_id as u32 as usize)?;
        let waiter = slot.waiter.as_ref()?;
        (u64::from(slot.serial) == request_id >> 32).then_some(waiter.expected)
    }

    /// When the first reply of those in flight is due.
    pub(crate) fn first_due(&self) -> Option<Instant> {
        self.slots.iter().filter_map(|slot| slot.waiter.as_ref()).map(|waiter| waiter.due).min()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Everybody, at the end of the connection.
    pub(crate) fn drain(&mut self) -> Vec<Waiter> {
        self.free.clear();
        self.slots.drain(..).filter_map(|slot| slot.waiter).collect()
    }
}

#[cfg(test)]
mod tests {
    use xuid_protocol::Op;

    use super::*;

    fn waiter() -> Waiter {
        let expected = Expected { op: Op::Next, count: 0, contiguous: false };
        Waiter { expected, due: Instant::now(), reply: None }
    }

    #[test]
    fn a_request_id_is_answered_once_and_never_comes_again() {
        let mut pending = Pending::default();
        let mut seen = std::collections::HashSet::new();
        let mut open = Vec::new();
        for round in 0..1_000_u64 {
            let id = pending.insert(waiter());
            assert!(seen.insert(id) && id >> 32 != 0, "{id:x} in round {round}");
            open.push(id);
            if round % 3 != 0 {
                let id = open.swap_remove((round as usize * 7) % open.len());
                assert!(pending.expected(id).is_some() && pending.take(id).is_some());
                assert!(pending.expected(id).is_none() && pending.take(id).is_none(), "{id:x} twice");
            }
        }
        assert!(pending.take(0).is_none() && pending.take(u64::MAX).is_none());
        assert!(!pending.is_empty());
        assert_eq!(pending.drain().len(), open.len());
        assert!(pending.is_empty() && open.iter().all(|id| pending.take(*id).is_none()));
    }
}
