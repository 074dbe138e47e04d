//! What a prefetching source counted.

/// Counters of a [`Prefetch`](crate::Prefetch). A handle settles what it issued when it is done with a run, so `issued`
/// lags by what is in the handles.
///
/// When no handle is left: `received = issued + wasted_by_age + wasted_at_end + held`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrefetchStats {
    /// Ids that came from servers.
    pub received: u64,
    /// Ids handed out. What a handle hands out of a run is counted when it takes another run or is dropped.
    pub issued: u64,
    /// Ids that grew older than `max_age` before anybody wanted them.
    pub wasted_by_age: u64,
    /// Ids that were held when the source was dropped, or its client closed.
    pub wasted_at_end: u64,
    /// Ids held now, without those in handles.
    pub held: u64,
    /// Refills that brought ids.
    pub refills: u64,
    /// Refills that failed. Their ids, if there were any, are wasted at the server's side of the count.
    pub failed_refills: u64,
    /// Calls that found nothing and had to wait.
    pub waits: u64,
}
