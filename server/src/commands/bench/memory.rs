//! How much the duplicate check may use.

use std::fs;

use anyhow::{Result, bail};

use crate::text::exit::usage;

/// What it may use if nobody says.
const DEFAULT: u64 = 4 << 30;

/// Less holds too few runs to be of use.
const LEAST: u64 = 1 << 20;

/// The bound in bytes: what was asked for, else the default or three quarters of what is free.
pub(super) fn bound(asked: Option<&str>) -> Result<u64> {
    bound_within(asked, available())
}

fn bound_within(asked: Option<&str>, available: Option<u64>) -> Result<u64> {
    let Some(text) = asked else {
        return Ok(available.map_or(DEFAULT, |free| DEFAULT.min(free / 4 * 3)).max(LEAST));
    };
    let Some(bytes) = parse(text).filter(|bytes| *bytes >= LEAST) else {
        let text =
            format!("--verify-memory is {text:?}; allowed is a size of 1MiB or more, as in 512MiB or 4GiB");
        return Err(usage(text).into());
    };
    match available {
        Some(free) if free < bytes => {
            bail!(
                "--verify-memory is {}, and this machine has {} free: ask for less",
                size(bytes),
                size(free)
            )
        }
        _ => Ok(bytes),
    }
}

/// `4GiB`, `512MiB`, `1024KiB`.
fn parse(text: &str) -> Option<u64> {
    let (number, shift) = [("KiB", 10), ("MiB", 20), ("GiB", 30)]
        .into_iter()
        .find_map(|(unit, shift)| Some((text.trim().strip_suffix(unit)?, shift)))?;
    number.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// A size for people.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

/// What can be had without swapping, as the kernel estimates it; `None` where it does not say.
fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::exit::Usage;

    #[test]
    fn a_bound_is_what_was_asked_for_if_it_is_there() {
        let gib = |count: u64| count << 30;
        assert_eq!(bound_within(None, Some(gib(100))).unwrap(), gib(4));
        assert_eq!(bound_within(None, Some(gib(4))).unwrap(), gib(3), "the default leaves something");
        assert_eq!(bound_within(None, None).unwrap(), gib(4));
        assert_eq!(bound_within(Some("8GiB"), Some(gib(9))).unwrap(), gib(8));
        assert_eq!(bound_within(Some(" 512 MiB "), None).unwrap(), 512 << 20);
        let refused = bound_within(Some("8GiB"), Some(gib(2))).unwrap_err();
        assert!(!refused.is::<Usage>() && refused.to_string().contains("2.0 GiB"), "{refused}");
    }

    #[test]
    fn what_is_no_size_is_wrong_usage() {
        for text in ["", "4", "4GB", "-1GiB", "1KiB", "99999999999GiB", "GiB"] {
            assert!(bound_within(Some(text), None).unwrap_err().is::<Usage>(), "{text}");
        }
    }
}
