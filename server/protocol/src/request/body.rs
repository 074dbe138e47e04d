//! What the bodies of all requests have in common.

use xuid_id::Order;

use crate::op::Op;
use crate::refusal::Refusal;

/// Refuses a body that goes on after `limit` bytes.
#[inline]
pub(super) fn limited(op: Op, limit: usize, body: &[u8]) -> Result<(), Refusal> {
    if body.len() > limit { Err(Refusal::trailing(op, limit, body.len())) } else { Ok(()) }
}

#[inline]
pub(super) fn parse_order(code: u8) -> Result<Order, Refusal> {
    Order::from_code(code).ok_or_else(|| Refusal::order(code))
}
