//! A fence that is killed, or meets a power cut, at each of its steps, after each kind of restore: what is left is refused,
//! or is the fence's.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::restored::{Copy, copied, put_back, put_registry_back};
use super::*;
use crate::registry::local::fence::{raised, remember};
use crate::registry::local::format::SECTOR;
use crate::registry::local::genesis::write_image;
use crate::registry::local::header::Header;
use crate::registry::local::simulated::MemoryHints;
use crate::testing::support::rng::Rng;

/// The tick, in the default layout, of a round time in 2023 and that time in nanoseconds.
const NOW_NS: u64 = 1_700_000_000_000_000_000;
const NOW_TICK: u64 = 1_700_000_000_000 - xuid_id::DEFAULT_EPOCH_MS;

/// Moments of a whole fence: a draft, what is known, its name, the registry, its name, and what was known removed.
const MOMENTS: u32 = 6;
/// From this one on the name leads to the fence's registry.
const NAMED: u32 = 3;

/// How a past came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The registry, written over the same file.
    Over,
    /// The registry, as another file.
    Another,
    /// The whole folder, written over the same files.
    Folder,
    /// The whole folder, in the place of the one that was removed.
    Replaced,
    /// The whole folder, at another place.
    Moved,
    /// The disk: each file is the one it was, with what it had, and nothing notices that.
    RolledBack,
}

const WAYS: [Way; 6] = [Way::Over, Way::Another, Way::Folder, Way::Replaced, Way::Moved, Way::RolledBack];

/// A folder that was used after it was backed up, and got its past back.
fn restored(way: Way) -> (tempfile::TempDir, PathBuf) {
    let home = folder();
    let path = home.path().join("data");
    let mut registry = made_in(&path, 4);
    registry.create_mark(spill(1), &mark_of(7, 1)).unwrap();
    let backup = copied(&path);
    registry.claim(1, 1, &claim_of(NOW_TICK, 2)).unwrap();
    registry.swap_mark(spill(1), 2, &mark_of(9, 3)).unwrap();
    registry.create_mark(spill(2), &mark_of(5, 4)).unwrap();
    drop(registry);
    match way {
        Way::Over => put_registry_back(&backup),
        Way::Another => {
            let (_, bytes) = backup.iter().find(|(path, _)| path.ends_with("registry")).unwrap();
            fs::write(path.join("back"), bytes).unwrap();
            fs::rename(path.join("back"), registry_of(&path)).unwrap();
        }
        Way::Folder => put_back(&backup),
        Way::Replaced => {
            // Beside, so that no inode is used again.
            fs::rename(&path, home.path().join("aside")).unwrap();
            fs::create_dir(&path).unwrap();
            put_back(&backup);
        }
        Way::Moved => return (home, moved(&backup, &path)),
        Way::RolledBack => {
            for entry in fs::read_dir(&path).unwrap().flatten() {
                if backup.iter().all(|(path, _)| *path != entry.path()) {
                    fs::remove_file(entry.path()).unwrap();
                }
            }
            put_back(&backup);
        }
    }
    (home, path)
}

fn moved(backup: &Copy, from: &Path) -> PathBuf {
    let to = from.with_file_name("elsewhere");
    fs::create_dir(&to).unwrap();
    let moved: Copy =
        backup.iter().map(|(path, bytes)| (to.join(path.file_name().unwrap()), bytes.clone())).collect();
    put_back(&moved);
    to
}

/// Whether this is what a fence makes, all of it.
fn is_fenced(registry: &mut LocalRegistry<impl Disk>, reached: u64) -> bool {
    let rows = registry.workers().unwrap();
    rows.iter().all(|row| row.record.as_ref().is_ok_and(|found| found.record.reserved_until >= reached))
        && registry.mark(spill(1)).is_ok_and(|mark| mark.record.granted_upto == u64::MAX)
        && matches!(registry.mark(spill(2)), Err(ReadError::Absent { .. }))
}

#[test]
fn a_fence_that_is_killed_at_any_step_leaves_a_registry_that_is_refused_or_fenced() {
    const REACHED: u64 = NOW_TICK + 125_000;
    for way in WAYS {
        for cut in 0..=MOMENTS {
            let (_home, path) = restored(way);
            MOMENTS_LEFT.set(Some(cut));
            let done = catch_unwind(AssertUnwindSafe(|| fence_restored(&path, NOW_NS)));
            MOMENTS_LEFT.set(None);
            assert_eq!(done.is_ok(), cut == MOMENTS, "{way:?} has other moments than {MOMENTS}");
            match LocalRegistry::open(&path) {
                Ok(mut registry) => {
                    // Cut off before it did anything where nothing notices what was done before.
                    let is_untouched = way == Way::RolledBack && cut == 0;
                    assert_eq!(is_fenced(&mut registry, REACHED), !is_untouched, "{way:?} cut at {cut}");
                    assert!(cut >= NAMED || is_untouched, "{way:?} cut at {cut}");
                }
                Err(LocalError::Restored { .. } | LocalError::Copied { .. }) => {
                    assert!(cut < NAMED, "{way:?} cut at {cut}");
                }
                Err(error) => panic!("{way:?} cut at {cut}: {error}"),
            }
            // Whatever was left, once more makes it good, and leaves nothing else behind.
            fence_restored(&path, NOW_NS).unwrap();
            let mut registry = LocalRegistry::open(&path).unwrap();
            assert!(is_fenced(&mut registry, REACHED), "{way:?} cut at {cut}, and again");
            drop(registry);
            let names = fs::read_dir(&path).unwrap().flatten().map(|entry| entry.file_name());
            let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
            names.retain(|name| name != "registry" && name != "registry.seat-0");
            names.retain(|name| !name.starts_with("sequences"));
            assert!(
                matches!(&names[..], [known] if known.starts_with("registry.known-")),
                "{way:?} cut at {cut} leaves {names:?}"
            );
        }
    }
}

/// A fence that was stopped while another registry was put back, fenced and used, and then goes on.
#[test]
fn a_fence_that_goes_on_after_another_one_neither_replaces_its_registry_nor_removes_what_is_known_of_it() {
    for moment in 0..MOMENTS {
        let (_home, path) = restored(Way::Over);
        // Without a seat nothing but the registry's file keeps another fence out.
        fs::remove_file(path.join("registry.seat-0")).unwrap();
        let other = path.clone();
        AT_MOMENT.set(Some((
            moment,
            Box::new(move || {
                // The same content as another file, or the first fence's own registry.
                if moment < NAMED {
                    fs::copy(registry_of(&other), other.join("back")).unwrap();
                    fs::rename(other.join("back"), registry_of(&other)).unwrap();
                }
                fence_restored(&other, NOW_NS + 1).unwrap();
                fs::copy(registry_of(&other), other.with_file_name("kept")).unwrap();
                let mut registry = LocalRegistry::open(&other).unwrap();
                let version = registry.worker(1).unwrap().version;
                registry.claim(1, version, &claim_of(NOW_TICK + 900_000, 9)).unwrap();
            }),
        )));
        let done = fence_restored(&path, NOW_NS);
        assert_eq!(done.is_ok(), moment >= NAMED, "stopped at {moment}: {done:?}");
        let found = inspect(&path).unwrap();
        let record = &found.workers[1].record.as_ref().unwrap().record;
        assert_eq!(
            (record.reserved_until, &found.findings[..]),
            (NOW_TICK + 900_000, &[][..]),
            "stopped at {moment}"
        );
        // Put back into the same file, what the other one granted is missed.
        fs::write(registry_of(&path), fs::read(path.with_file_name("kept")).unwrap()).unwrap();
        let refused = LocalRegistry::open(&path).err();
        assert!(matches!(refused, Some(LocalError::Restored { .. })), "stopped at {moment}: {refused:?}");
    }
}

/// A part of what was written, as a power cut leaves it: whole sectors, torn ones, none.
fn torn(whole: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut left = whole.to_vec();
    let percent = rng.pick(&[0, 5, 50, 95]);
    for sector in left.chunks_mut(SECTOR) {
        if !rng.chance(percent) {
            let kept = if rng.chance(50) { 0 } else { rng.below(SECTOR as u64) as usize };
            sector[kept..].fill(0);
        }
    }
    left
}

/// What is on the disk at some moment of a fence: the registry, which file it is, and what the folder knows.
struct Image {
    registry: Vec<u8>,
    identity: FileIdentity,
    known: Vec<Vec<u8>>,
    /// Whether anything of the fence's is in it that can be read.
    is_begun: bool,
    is_named: bool,
}

/// Images of a fence, in order. `knows`: whether the folder knows of what was done since the backup.
fn images(knows: bool, rng: &mut Rng) -> (u64, Vec<Image>) {
    let (disk, hints) = (memory(4), MemoryHints::default());
    let open = |disk: &MemoryDisk| {
        LocalRegistry::on_with(disk.open_again(), Some(hints.process()), clock()).unwrap()
    };
    let mut registry = open(&disk);
    registry.create_mark(spill(1), &mark_of(7, 1)).unwrap();
    registry.close();
    let (backup, before) = (disk.bytes(), hints.image(|_| 0));
    registry.claim(1, 1, &claim_of(NOW_TICK + 500_000, 2)).unwrap();
    registry.create_mark(spill(2), &mark_of(5, 4)).unwrap();
    registry.close();
    drop(registry);
    let told = if knows { hints.image(|_| 0) } else { before };

    let put_back = MemoryDisk::new(backup.clone(), some_identity());
    let header = records::read_header(&put_back, FileKind::Registry, Path::new("memory")).unwrap().header;
    let folder = MemoryHints::of(&told);
    let mut own = folder.process();
    let table = header.table();
    let knew = hints::known(own.as_mut(), table);
    let (fenced, row) = raised(&put_back, &header, &knew, NOW_NS, header.genesis.cluster);
    remember(own.as_mut(), table, &row).unwrap();
    let both = folder.image(|_| 0);
    own.sweep();
    let swept = folder.image(|_| 0);
    let (new, another) = (swept[0].clone(), FileIdentity { inode: 43, ..some_identity() });
    let mut file = Vec::new();
    let head = Header { identity: another, ..Header::new(&fenced.genesis, None) };
    write_image(&mut file, &head, &row).unwrap();

    let old = |known: Vec<Vec<u8>>, is_begun| Image {
        registry: backup.clone(),
        identity: some_identity(),
        known,
        is_begun,
        is_named: false,
    };
    let named =
        |known| Image { registry: file.clone(), identity: another, known, is_begun: true, is_named: true };
    let mut images = vec![old(told.clone(), false)];
    for _ in 0..8 {
        let part = torn(&new, rng);
        let is_begun =
            !hints::known(MemoryHints::of(std::slice::from_ref(&part)).process().as_mut(), table).is_empty();
        images.push(old([told.clone(), vec![part]].concat(), is_begun));
    }
    images.extend([old(both.clone(), true), named(both), named(swept)]);
    (fenced.reserved_until, images)
}

#[test]
fn a_fence_whose_power_is_cut_leaves_a_registry_that_is_refused_or_fenced() {
    let (mut refused, mut served) = (0, 0);
    for seed in 0..40 {
        for knows in [true, false] {
            let (reached, images) = images(knows, &mut Rng::new(seed));
            // Only what the folder knows tells how far the clock once was.
            let least = if knows { NOW_TICK + 500_000 } else { NOW_TICK + 125_001 };
            assert_eq!(reached, least);
            for (n, image) in images.into_iter().enumerate() {
                let disk = MemoryDisk::new(image.registry, image.identity);
                let hints = MemoryHints::of(&image.known).process();
                match LocalRegistry::on_with(disk, Some(hints), clock()) {
                    Ok(mut registry) => {
                        let is_untouched = !knows && !image.is_begun;
                        assert!(image.is_named || is_untouched, "seed {seed}, image {n} is served");
                        assert!(is_untouched || is_fenced(&mut registry, reached), "seed {seed}, image {n}");
                        served += 1;
                    }
                    Err(LocalError::Restored { .. }) => {
                        assert!(!image.is_named, "seed {seed}, image {n} is refused");
                        refused += 1;
                    }
                    Err(error) => panic!("seed {seed}, image {n}: {error}"),
                }
            }
        }
    }
    assert!(refused > 100 && served > 100, "{refused} images were refused and {served} served");
}
