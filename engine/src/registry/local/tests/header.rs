//! Kills and power cuts while the header is written anew, because the registry's volume was moved.

use super::*;
use crate::sys::guards::Guard;

/// Writes and syncs of an opening that writes both headers: fewer than this.
const STOPS: u32 = 7;

/// What a power cut makes of each sector that was not synced: the first content it was to get, a part of that, the
/// content before or the second one, a part of that.
const WAYS: usize = 4;

/// Where a torn sector is cut: behind all of the header but its checksum.
const TORN: usize = 300;

/// Opens the registry from this device, while the disk stops after so many writes and syncs.
fn moved(disk: &MemoryDisk, device: u64, stop: Option<u32>) -> Result<LocalRegistry<MemoryDisk>, LocalError> {
    disk.identify(FileIdentity { device, ..some_identity() });
    disk.stop_after(stop);
    let opened = LocalRegistry::on(disk.open_again(), clock());
    disk.stop_after(None);
    opened
}

fn cut(disk: &MemoryDisk, way: usize) {
    disk.cut_power(|n| if n == format::SECTOR { TORN } else { way % n });
}

/// The first course that leaves no header: the volume is moved, and the opening there is killed or meets a power cut; it
/// is moved once more, and the opening there meets a power cut.
fn lost() -> Option<String> {
    let cuts = || (0..WAYS).map(Some).chain([None]);
    let courses = (0..STOPS).flat_map(|first| {
        cuts().flat_map(move |first_cut| {
            (0..STOPS).flat_map(move |second| (0..WAYS).map(move |way| (first, first_cut, second, way)))
        })
    });
    courses.into_iter().find_map(|(first, first_cut, second, way)| {
        let disk = memory(1);
        drop(moved(&disk, 1, Some(first)));
        if let Some(way) = first_cut {
            cut(&disk, way);
        }
        drop(moved(&disk, 2, Some(second)));
        cut(&disk, way);
        let why = match moved(&disk, 2, None) {
            Ok(registry) if *registry.genesis() == some_genesis(1) => return None,
            Ok(registry) => format!("{:?}", registry.genesis()),
            Err(error) => error.to_string(),
        };
        Some(format!("stopped after {first}, cut {first_cut:?}, stopped after {second}, cut {way}: {why}"))
    })
}

#[test]
fn a_moved_registry_is_opened_whatever_kills_and_power_cuts_left_of_its_headers() {
    assert_eq!(lost(), None);
}

fn is_found_without(guard: Guard) {
    let lost = Guard::without(&[guard], lost);
    println!("without {guard:?}: {lost:?}");
    assert!(lost.is_some());
}

#[test]
fn without_the_sync_before_the_headers_are_written_the_test_finds_both_lost() {
    is_found_without(Guard::HeaderSyncBefore);
}

#[test]
fn without_the_sync_between_the_headers_the_test_finds_both_lost() {
    is_found_without(Guard::HeaderSyncBetween);
}

#[test]
fn where_the_sound_header_is_written_first_the_test_finds_both_lost() {
    is_found_without(Guard::HeaderSpareFirst);
}
