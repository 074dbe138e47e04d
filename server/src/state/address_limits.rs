//! Limits in ids a second by address: all connections that come from one address share a bucket.
//!
//! An address is one of IPv4, or a /64 of IPv6, which is what one customer of a network has at least. A connection asks for
//! its bucket once, behind HELLO, and holds it for life; the lock is never taken for a request. It has one where there is
//! no limit, too, so that a limit that is set later counts for it.
//!
//! # Invariants
//! - I1 a bucket that a connection holds is never forgotten, so that the connections of an address share one;
//! - I2 a bucket that no connection holds is forgotten once it is full, since a new one is full, too. Of those that are
//!   not full at most [`MOST_IDLE`] stay, the emptiest: a stranger with many addresses costs little memory;
//! - I3 the table is looked through when it has doubled, so that a bucket costs the same however many there are; and when
//!   the limit changes, or addresses are counted: a full bucket that no connection holds is never counted.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::state::id_limit::IdLimit;

/// Buckets that are not full and that no connection holds. So many take some 2 MiB.
const MOST_IDLE: usize = 16_384;

/// Below so many the table is not looked through for a new address.
const SOME: usize = 64;

/// The bits of an IPv6 address that tell customers apart: its upper half.
const CUSTOMER: u128 = !(u64::MAX as u128);

/// The limit, and the bucket of each address.
#[derive(Debug)]
pub(crate) struct AddressLimits(Mutex<Buckets>);

#[derive(Debug)]
struct Buckets {
    /// 0: no limit.
    ids_per_second: u64,
    by_address: HashMap<IpAddr, Arc<IdLimit>>,
    /// At this size it is looked through.
    look_at: usize,
}

impl AddressLimits {
    /// No limit.
    pub(crate) fn none() -> Self {
        Self(Mutex::new(Buckets { ids_per_second: 0, by_address: HashMap::new(), look_at: SOME }))
    }

    /// From now on it is this for each address, also for connections that there are; 0 is none.
    pub(crate) fn set(&self, ids_per_second: u64) {
        let mut buckets = self.lock();
        buckets.ids_per_second = ids_per_second;
        for bucket in buckets.by_address.values() {
            bucket.set(ids_per_second);
        }
        buckets.look_through();
    }

    /// The bucket of an address.
    pub(crate) fn bucket(&self, address: IpAddr) -> Arc<IdLimit> {
        let mut buckets = self.lock();
        if buckets.by_address.len() >= buckets.look_at {
            buckets.look_through();
        }
        let ids_per_second = buckets.ids_per_second;
        let bucket = buckets.by_address.entry(customer(address));
        Arc::clone(bucket.or_insert_with(|| Arc::new(IdLimit::new(ids_per_second))))
    }

    /// Addresses whose ids are counted: those with a connection or a bucket that is not full. None, if there is no limit.
    pub(crate) fn addresses(&self) -> usize {
        let mut buckets = self.lock();
        buckets.look_through();
        if buckets.ids_per_second == 0 { 0 } else { buckets.by_address.len() }
    }

    fn lock(&self) -> MutexGuard<'_, Buckets> {
        // Nothing in the locked sections panics half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buckets {
    /// Forgets what may be forgotten.
    fn look_through(&mut self) {
        let is_held = |bucket: &Arc<IdLimit>| Arc::strong_count(bucket) > 1;
        self.by_address.retain(|_, bucket| is_held(bucket) || !bucket.until_full().is_zero());
        let idle = self.by_address.values().filter(|bucket| !is_held(bucket));
        let mut idle: Vec<Duration> = idle.map(|bucket| bucket.until_full()).collect();
        if let Some(surplus) = idle.len().checked_sub(MOST_IDLE + 1) {
            let (_, latest, _) = idle.select_nth_unstable(surplus);
            let latest = *latest;
            self.by_address.retain(|_, bucket| is_held(bucket) || bucket.until_full() > latest);
        }
        self.look_at = (2 * self.by_address.len()).max(SOME);
        self.by_address.shrink_to(self.look_at);
    }
}

/// What of an address tells customers apart.
pub(crate) fn customer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & CUSTOMER).into(),
        canonical @ IpAddr::V4(_) => canonical,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(ids_per_second: u64) -> AddressLimits {
        let limits = AddressLimits::none();
        limits.set(ids_per_second);
        limits
    }

    fn nth(number: u32) -> IpAddr {
        IpAddr::V4(std::net::Ipv4Addr::from_bits(number))
    }

    fn is_same(limits: &AddressLimits, one: &str, other: &str) -> bool {
        let bucket = |address: &str| limits.bucket(address.parse().unwrap());
        Arc::ptr_eq(&bucket(one), &bucket(other))
    }

    #[test]
    fn an_address_has_one_bucket_and_of_ipv6_a_whole_64_has_it() {
        let limits = limits(10);
        assert!(is_same(&limits, "10.0.0.1", "10.0.0.1") && !is_same(&limits, "10.0.0.1", "10.0.0.2"));
        assert!(is_same(&limits, "2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert!(!is_same(&limits, "2001:db8:1:2::1", "2001:db8:1:3::1"));
        assert!(is_same(&limits, "::ffff:10.0.0.1", "10.0.0.1"), "IPv4 on a socket of IPv6");
        assert!(!is_same(&limits, "::ffff:10.0.0.1", "::ffff:10.0.0.2"));
    }

    #[test]
    fn a_new_limit_counts_for_connections_that_came_while_there_was_none_or_another_one() {
        let limits = limits(0);
        let bucket = limits.bucket(nth(1));
        assert!(bucket.take(1_000_000).is_ok());
        limits.set(10);
        assert!(bucket.take(20).is_ok() && bucket.take(1).is_err(), "a full bucket, and what is in it");
        assert!(limits.bucket(nth(1)).take(1).is_err(), "the next connection shares it");
        limits.set(0);
        assert!(bucket.take(1_000_000).is_ok() && limits.bucket(nth(1)).take(1_000_000).is_ok());
    }

    #[test]
    fn an_address_is_counted_while_it_has_a_connection_or_a_bucket_that_is_not_full() {
        let limits = limits(100);
        drop(limits.bucket(nth(1)));
        assert_eq!(limits.addresses(), 0, "it has gone, and owes nothing");
        let held = limits.bucket(nth(2));
        assert!(limits.bucket(nth(3)).take(100_000).is_ok());
        assert_eq!(limits.addresses(), 2);
        limits.set(0);
        assert_eq!(limits.addresses(), 0, "there is no limit");
        assert_eq!(limits.lock().by_address.len(), 1, "what is not held is forgotten");
        limits.set(100);
        assert_eq!(limits.addresses(), 1);
        drop(held);
        assert_eq!(limits.addresses(), 0);
    }

    #[test]
    fn a_bucket_that_was_emptied_is_empty_for_the_next_connection_of_its_address() {
        let limits = limits(1);
        assert!(limits.bucket(nth(7)).take(1_000).is_ok());
        for other in 100..100 + 4 * SOME as u32 {
            drop(limits.bucket(nth(other)));
        }
        assert!(limits.bucket(nth(7)).take(1).is_err(), "a thousand seconds are to be paid off");
        assert!(limits.addresses() <= 2 * SOME, "full ones are forgotten: {}", limits.addresses());
    }

    #[test]
    fn a_stranger_with_many_addresses_has_a_bounded_table_and_takes_no_bucket_that_is_held() {
        let limits = limits(1);
        let held = limits.bucket(nth(0));
        assert!(held.take(2).is_ok());
        let many = 200_000;
        for number in 1..=many {
            // Each owes more than the one before, hours at least.
            assert!(limits.bucket(nth(number)).take(10_000 + number).is_ok());
        }
        assert!(limits.addresses() <= 2 * (MOST_IDLE + 1), "{} buckets", limits.addresses());
        assert!(Arc::ptr_eq(&held, &limits.bucket(nth(0))), "it was held all the time");
        assert!(limits.bucket(nth(many)).take(1).is_err(), "those that owe most stay");
        assert!(limits.bucket(nth(1)).take(1).is_ok(), "this one owed least");
    }
}
