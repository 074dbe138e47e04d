//! The machine's boot clock.

/// Nanoseconds since the machine booted, suspended time included; they never step.
pub(crate) fn boot_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // Boot time is never negative, and 2^64 ns are 584 years.
    time.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.cast_unsigned())
}
