//! The port: compare-and-set by name, several changes at once, growth, lists.

use super::*;
use crate::registry::local::format::MOST_SEQUENCES;
use crate::registry::sequences::MOST_CHANGES;

#[test]
fn a_record_moves_only_from_the_version_that_was_read() {
    let disk = memory();
    let (mut ours, mut theirs) = (on(&disk), on(&disk));
    assert!(matches!(read(&mut ours, "orders"), Err(ReadError::Absent { .. })));
    assert!(matches!(
        swap_one(&mut ours, "orders", Some(1), 9),
        Err(SwapError::Read(ReadError::Absent { .. }))
    ));
    swap_one(&mut ours, "orders", None, 1_001).unwrap();
    assert!(matches!(swap_one(&mut theirs, "orders", None, 1_001), Err(SwapError::Conflict)));

    let found = read(&mut theirs, "orders").unwrap();
    assert_eq!(found.record, marked(1_001));
    swap_one(&mut theirs, "orders", Some(found.version), 2_001).unwrap();
    assert!(matches!(swap_one(&mut ours, "orders", Some(found.version), 2_001), Err(SwapError::Conflict)));
    let now = read(&mut ours, "orders").unwrap();
    assert_eq!((now.record.value, now.version), (2_001, found.version + 1));
}

#[test]
fn a_record_keeps_all_that_it_was_given() {
    let disk = memory();
    let record = SequenceRecord {
        value: 5_000,
        gaps: vec![(0, 1), (7, 9), (9, 10), (20, 30), (31, 40), (50, 60), (70, 80), (90, 5_000)],
        last: 9_999,
        step: 17,
        increment: 3,
        remainder: 2,
        strict: true,
    };
    let name = "ä".repeat(64);
    let change = SequenceChange { name: &name, expected: None, record: record.clone() };
    assert!(swap(&mut on(&disk), &[change])[0].is_ok());
    assert_eq!(read(&mut on(&disk), &name).unwrap().record, record);
}

#[test]
fn changes_of_one_call_stand_and_fall_alone() {
    let disk = memory();
    let mut records = on(&disk);
    swap_one(&mut records, "b", None, 5).unwrap();
    let too_long = "n".repeat(129);
    let changes = [
        change("a", None, 7),
        change("b", None, 7),
        change("c", Some(3), 7),
        change(&too_long, None, 7),
        change("d", None, 7),
    ];
    let outcomes = swap(&mut records, &changes);
    assert!(outcomes[0].is_ok() && outcomes[4].is_ok(), "{outcomes:?}");
    assert!(matches!(outcomes[1], Err(SwapError::Conflict)));
    assert!(matches!(outcomes[2], Err(SwapError::Read(ReadError::Absent { .. }))));
    assert!(matches!(outcomes[3], Err(SwapError::Read(ReadError::Damaged { .. }))));
    let mut again = on(&disk);
    assert_eq!(["a", "b", "d"].map(|name| read(&mut again, name).unwrap().record.value), [7, 5, 7]);
}

#[test]
fn as_many_changes_as_a_call_takes_share_two_syncs() {
    let disk = memory();
    let mut records = on(&disk);
    let names: Vec<String> = (0..MOST_CHANGES).map(|n| format!("n{n}")).collect();
    make_names(&mut records, "n", 0..1);
    let changes: Vec<_> = names.iter().map(|name| change(name, None, 1)).collect();
    // Each is written twice, and each of the two is synced once.
    let least = 2 * MOST_CHANGES as u32 + 2;
    disk.stop_after(Some(least - 1));
    assert!(swap(&mut on(&memory()), &changes).iter().all(Result::is_ok));
    assert!(swap(&mut records, &changes).iter().all(Result::is_err));
    let other = memory();
    let mut records = on(&other);
    other.stop_after(Some(least));
    assert!(swap(&mut records, &changes).iter().all(Result::is_ok));
}

#[test]
fn the_file_grows_with_the_names_and_every_opening_finds_all_of_them() {
    let disk = memory();
    let (mut first, mut second) = (on(&disk), on(&disk));
    let length = disk.bytes().len();
    make_names(&mut first, "a", 0..GROWTH_SLOTS - 10);
    assert_eq!(disk.bytes().len(), length, "there was room");
    // Each makes names beside the other, over the end.
    for part in 0..6 {
        make_names(&mut second, "b", part * 20..part * 20 + 20);
        make_names(&mut first, "c", part * 20..part * 20 + 20);
    }
    assert!(disk.bytes().len() > length);
    for records in [&mut first, &mut second, &mut on(&disk)] {
        for (prefix, n) in [("a", GROWTH_SLOTS - 10), ("b", 120), ("c", 120)] {
            for n in 0..n {
                assert!(read(records, &format!("{prefix}{n:06}")).is_ok(), "{prefix}{n:06}");
            }
        }
    }
    assert!(matches!(swap_one(&mut first, "b000007", None, 1), Err(SwapError::Conflict)));
}

#[test]
fn names_are_listed_in_order_a_page_at_a_time() {
    let disk = memory();
    let mut records = on(&disk);
    for name in ["b", "order:2", "a", "order:1", "@leftovers", "order", "z", "ordes"] {
        swap_one(&mut records, name, None, 3).unwrap();
    }
    let names = |records: &mut LocalSequences<MemoryDisk>, prefix: &str, after: &str, limit| {
        let page = records.list(prefix, after, limit).unwrap();
        assert!(page.iter().all(|(_, found)| found.as_ref().is_ok_and(|found| found.record.value == 3)));
        page.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&mut records, "", "", 100), "a b order order:1 order:2 ordes z");
    assert_eq!(names(&mut records, "", "", 2), "a b");
    assert_eq!(names(&mut records, "", "b", 2), "order order:1");
    assert_eq!(names(&mut records, "order", "", 100), "order order:1 order:2");
    assert_eq!(names(&mut records, "order", "order:1", 100), "order:2");
    assert_eq!(names(&mut records, "order", "z", 100), "");
    assert_eq!(names(&mut on(&disk), "order:", "a", 1), "order:1");
}

/// A disk that cannot grow.
struct Full(MemoryDisk);
impl Disk for Full {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        self.0.write_at(bytes, offset)
    }
    fn sync(&mut self) -> std::io::Result<()> {
        self.0.sync()
    }
    fn size(&self) -> std::io::Result<u64> {
        self.0.size()
    }
    fn identity(&self) -> std::io::Result<FileIdentity> {
        self.0.identity()
    }
    fn in_place(&self) -> std::io::Result<bool> {
        self.0.in_place()
    }
    fn try_lock(&mut self) -> std::io::Result<bool> {
        self.0.try_lock()
    }
    fn unlock(&mut self) {
        self.0.unlock();
    }
}

#[test]
fn a_full_disk_makes_no_new_names_and_costs_the_others_nothing() {
    let disk = memory();
    let mut records = on(&disk);
    make_names(&mut records, "a", 0..GROWTH_SLOTS);
    let mut full = LocalSequences::on(Full(disk.open_again()), Arc::new(Still)).unwrap();
    let refused = swap_one(&mut full, "one more", None, 1).unwrap_err();
    assert!(matches!(&refused, SwapError::Full { why } if why.contains("cannot grow")), "{refused}");
    assert_eq!(grant(&mut full, "a000007", 10).unwrap(), (1, 11));
    // There is room again.
    swap_one(&mut records, "one more", None, 1).unwrap();
    assert!(read(&mut full, "one more").is_ok());
}

#[test]
fn a_file_takes_so_many_names_and_no_more() {
    assert_eq!(MOST_SEQUENCES, 262_144);
    let sequences = SequencesHeader { slots: MOST_SEQUENCES, era: [1; 16], is_closed: false, least: 0 };
    let header = Header { identity: some_identity(), ..Header::new(&some_genesis(), Some(sequences)) };
    assert_eq!(header.geometry().bytes(), 8_192 + 1_024 * 262_144);
    // A file that is as long as the header says, and of which the slots are holes: nothing tells whose they are.
    let mut image = Vec::new();
    let row = |place: crate::registry::record::Place| {
        let record = marked(1);
        Row { version: 2, ..Row::of_sequence(place, (&format!("n{}", place.slot), [1; 16]), &record) }
    };
    genesis::write_image(&mut image, &header, &row).unwrap();
    let disk = MemoryDisk::new(image, some_identity());
    let mut records = on(&disk);
    let refused = swap_one(&mut records, "one more", None, 1).unwrap_err();
    assert!(matches!(&refused, SwapError::Full { why } if why.contains("database")), "{refused}");
    assert_eq!(grant(&mut records, "n262143", 5).unwrap(), (1, 6));
}

#[test]
fn a_folder_s_file_is_made_with_the_first_opening_and_belongs_to_its_registry() {
    let folder = folder();
    let mut records = opened(folder.path());
    let (genesis, seat) = (*records.records.genesis(), records.seat());
    assert_eq!(grant(&mut records, "orders", 100).unwrap(), (1, 101));
    assert_ne!(opened(folder.path()).seat(), seat);
    drop(records);
    assert_eq!(grant(&mut opened(folder.path()), "orders", 100).unwrap(), (101, 201));
    let other = Genesis { cluster: ClusterId::from_bytes([9; 16]), ..genesis };
    let refused = LocalSequences::open_or_create(folder.path(), Some(&other)).err();
    assert!(matches!(refused, Some(LocalError::SequencesOfOther { .. })), "{refused:?}");
    // Of a registry that is elsewhere.
    let bare = tempfile::tempdir().unwrap();
    let absent = LocalSequences::open_or_create(bare.path(), None).err();
    assert!(matches!(absent, Some(LocalError::Absent { .. })), "{absent:?}");
    let mut records = LocalSequences::open_or_create(bare.path(), Some(&genesis)).unwrap();
    assert_eq!(grant(&mut records, "orders", 100).unwrap(), (1, 101));
}

#[test]
fn of_many_openings_at_once_each_gets_numbers_of_its_own() {
    let folder = folder();
    let path = folder.path();
    let names: Vec<String> = (0..5).map(|n| format!("name {n}")).collect();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (path, names) = (path.to_owned(), names.clone());
            std::thread::spawn(move || {
                let mut records = opened(&path);
                let mut got = Vec::new();
                while got.len() < 100 {
                    let name = &names[got.len() % names.len()];
                    match grant(&mut records, name, 10) {
                        Ok(range) => got.push((name.clone(), range)),
                        Err(SwapError::Conflict) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                got
            })
        })
        .collect();
    let mut got: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    got.sort();
    assert!(got.windows(2).all(|two| two[0].0 != two[1].0 || two[0].1.1 == two[1].1.0), "{got:?}");
}
