//! How many entries folders have.

use std::fs;
use std::path::{Path, PathBuf};

/// More than this, and the entries of a folder want groups of their own. A module's file beside the folder of the same
/// name counts as two.
pub(crate) const MOST_ENTRIES: usize = 14;

/// What is not looked at: what a build leaves, what a run of Python leaves, and the libraries in other languages, which are
/// laid out as their languages have it.
const NOT_OURS: [&str; 3] = ["target", "__pycache__", "clients"];

/// One line for each folder, from `root` down, with more entries than that. What has a hidden name is not looked at, nor
/// [`NOT_OURS`].
pub(crate) fn crowded(root: &Path) -> Vec<String> {
    let (mut open, mut found) = (vec![root.to_owned()], Vec::new());
    while let Some(folder) = open.pop() {
        let entries = entries(&folder);
        if entries.len() > MOST_ENTRIES {
            found.push(format!(
                "{}: {} entries, {MOST_ENTRIES} are allowed: group files by subject in a folder",
                folder.display(),
                entries.len()
            ));
        }
        open.extend(entries.into_iter().filter(|entry| entry.is_dir()));
    }
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder can be listed");
    let entries = entries.map(|entry| entry.expect("an entry can be read"));
    let shown = |name: &str| !name.starts_with('.') && !NOT_OURS.contains(&name);
    entries.filter(|entry| shown(&entry.file_name().to_string_lossy())).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_fifteen_entries_is_found_and_one_of_fourteen_is_not() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("inner");
        fs::create_dir_all(inner.join("target")).unwrap();
        let file = |number: usize| fs::write(inner.join(format!("{number}.rs")), "").unwrap();
        (0..MOST_ENTRIES).for_each(file);
        assert_eq!(crowded(root.path()), [""; 0]);
        file(MOST_ENTRIES);
        let found = crowded(root.path());
        assert!(found.len() == 1 && found[0].contains("inner: 15 entries"), "{found:?}");
    }
}
