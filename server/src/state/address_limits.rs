//! Limits in ids a second by address: all connections that come from one address share a bucket.
//!
//! An address is one of IPv4, or a /64 of IPv6, which is what one customer of a network has at least. A connection asks for
//! its bucket once, behind HELLO, and holds it for life; the lock is never taken for a request.
//!
//! # Invariants
//! - I1 a bucket that a connection holds is never forgotten, so that the connections of an address share one;
//! - I2 a bucket that no connection holds is forgotten once it is full, since a new one is full, too. Of those that are
//!   not full at most [`MOST_IDLE`] stay, the emptiest: a stranger with many addresses costs little memory;
//! - I3 the table is looked through when it has doubled, so that a bucket costs the same however many there are.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::state::id_limit::IdLimit;

/// Buckets that are not full and that no connection holds. So many take some 2 MiB.
const MOST_IDLE: usize = 16_384;

/// Below so many the table is not looked through.
const SOME: usize = 64;

/// The bits of an IPv6 address that tell customers apart: its upper half.
const CUSTOMER: u128 = !(u64::MAX as u128);

/// The limit, and the bucket of each address.
#[derive(Debug)]
pub(crate) struct AddressLimits {
    /// 0: no limit.
    ids_per_second: AtomicU64,
    buckets: Mutex<Buckets>,
}

#[derive(Debug)]
struct Buckets {
    by_address: HashMap<IpAddr, Arc<IdLimit>>,
    /// At this size it is looked through.
    look_at: usize,
}

impl AddressLimits {
    /// No limit.
    pub(crate) fn none() -> Self {
        let buckets = Buckets { by_address: HashMap::new(), look_at: SOME };
        Self { ids_per_second: AtomicU64::new(0), buckets: Mutex::new(buckets) }
    }

    /// From now on it is this for each address; 0 is none. A connection that came while there was none has none.
    pub(crate) fn set(&self, ids_per_second: u64) {
        let buckets = self.lock();
        self.ids_per_second.store(ids_per_second, Relaxed);
        for bucket in buckets.by_address.values() {
            bucket.set(ids_per_second);
        }
    }

    /// The bucket of an address; `None`: there is no limit.
    pub(crate) fn bucket(&self, address: IpAddr) -> Option<Arc<IdLimit>> {
        if self.ids_per_second.load(Relaxed) == 0 {
            return None;
        }
        let mut buckets = self.lock();
        // Under the lock, which `set` holds when it changes it.
        let ids_per_second = self.ids_per_second.load(Relaxed);
        buckets.look_through();
        let bucket = buckets.by_address.entry(customer(address));
        Some(Arc::clone(bucket.or_insert_with(|| Arc::new(IdLimit::new(ids_per_second)))))
    }

    /// Addresses that have a bucket.
    pub(crate) fn addresses(&self) -> usize {
        self.lock().by_address.len()
    }

    fn lock(&self) -> MutexGuard<'_, Buckets> {
        // Nothing in the locked sections panics half way.
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buckets {
    /// Forgets what may be forgotten, if the table has doubled since.
    fn look_through(&mut self) {
        if self.by_address.len() < self.look_at {
            return;
        }
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
fn customer(address: IpAddr) -> IpAddr {
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
        let bucket = |address: &str| limits.bucket(address.parse().unwrap()).unwrap();
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
    fn without_a_limit_there_are_no_buckets_and_a_new_limit_counts_for_those_there_are() {
        let limits = limits(0);
        assert!(limits.bucket(nth(1)).is_none() && limits.addresses() == 0);
        limits.set(10);
        let bucket = limits.bucket(nth(1)).unwrap();
        assert_eq!(bucket.take(20), Ok(()));
        assert!(bucket.take(1).is_err());
        limits.set(0);
        assert_eq!(bucket.take(1_000_000), Ok(()));
        assert!(limits.bucket(nth(1)).is_none());
    }

    #[test]
    fn a_bucket_that_was_emptied_is_empty_for_the_next_connection_of_its_address() {
        let limits = limits(1);
        assert_eq!(limits.bucket(nth(7)).unwrap().take(1_000), Ok(()));
        for other in 100..100 + 4 * SOME as u32 {
            drop(limits.bucket(nth(other)));
        }
        assert!(limits.bucket(nth(7)).unwrap().take(1).is_err(), "a thousand seconds are to be paid off");
        assert!(limits.addresses() <= 2 * SOME, "full ones are forgotten: {}", limits.addresses());
    }

    #[test]
    fn a_stranger_with_many_addresses_has_a_bounded_table_and_takes_no_bucket_that_is_held() {
        let limits = limits(1);
        let held = limits.bucket(nth(0)).unwrap();
        assert_eq!(held.take(2), Ok(()));
        let many = 200_000;
        for number in 1..=many {
            // Each owes more than the one before, hours at least.
            assert_eq!(limits.bucket(nth(number)).unwrap().take(10_000 + number), Ok(()));
        }
        assert!(limits.addresses() <= 2 * (MOST_IDLE + 1), "{} buckets", limits.addresses());
        assert!(Arc::ptr_eq(&held, &limits.bucket(nth(0)).unwrap()), "it was held all the time");
        assert!(limits.bucket(nth(many)).unwrap().take(1).is_err(), "those that owe most stay");
        assert_eq!(limits.bucket(nth(1)).unwrap().take(1), Ok(()), "this one owed least");
    }
}
