//! What a data folder remembers beside registry and spill: the cluster it belongs to, in `node.json`.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::api::build_error::BuildError;
use crate::registry::{ClusterId, NODE_MOST_BYTES, NODE_VERSION};
use crate::sys::draft;
use crate::sys::guards::Guard;

const NAME: &str = "node.json";

#[derive(Serialize, Deserialize)]
struct Node {
    version: u32,
    cluster: String,
}

/// What every version of the file says.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Compares the folder's cluster with the registry's, or writes it down where the folder has none yet.
pub(crate) fn check(folder: &Path, cluster: ClusterId) -> Result<(), BuildError> {
    draft::sweep(folder, NAME);
    let path = folder.join(NAME);
    let fail = |source| BuildError::Folder { action: "write", path: path.clone(), source };
    if remembered(folder)?.is_none() && write(folder, &path, cluster).map_err(fail)? {
        return Ok(());
    }
    // It was there, or another process was quicker.
    match remembered(folder)? {
        Some(found) if found == cluster || !Guard::FolderOfCluster.holds() => Ok(()),
        Some(found) => Err(BuildError::Cluster { path: folder.to_owned(), folder: found, registry: cluster }),
        None => Err(fail(io::Error::other("it is removed again and again"))),
    }
}

/// The cluster that the folder belongs to, if it remembers one.
pub(crate) fn remembered(folder: &Path) -> Result<Option<ClusterId>, BuildError> {
    let path = folder.join(NAME);
    let fail = |action| {
        let path = path.clone();
        move |source| BuildError::Folder { action, path, source }
    };
    match xuid_spill::read_regular(&path, NODE_MOST_BYTES) {
        Ok(bytes) => {
            let damaged = |why: String| {
                let todo = "it names the folder's cluster and is damaged; if the registry is still the one it has always \
                            been, remove this file: the next start writes it again";
                io::Error::new(io::ErrorKind::InvalidData, format!("{why} ({todo})"))
            };
            let not_json = |error: serde_json::Error| fail("understand")(damaged(error.to_string()));
            let Versioned { version } = serde_json::from_slice(&bytes).map_err(not_json)?;
            if version != NODE_VERSION {
                return Err(fail("understand")(other_version(version)));
            }
            let node: Node = serde_json::from_slice(&bytes).map_err(not_json)?;
            let found = node.cluster.parse::<ClusterId>();
            Ok(Some(found.map_err(|error| fail("understand the cluster in")(damaged(error.to_string())))?))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fail("read")(error)),
    }
}

/// The file is of another program's format, and nothing else in it can be believed.
fn other_version(found: u32) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!(
            "its version is {found}, and this program knows version {NODE_VERSION}: another version of xuid used this \
             folder, so use that one, or an empty folder, which is another cluster"
        ),
    )
}

/// Whole or not at all: written beside, synced, and named. False if there is one by now.
fn write(folder: &Path, path: &Path, cluster: ClusterId) -> io::Result<bool> {
    let node = Node { version: NODE_VERSION, cluster: cluster.to_string() };
    let (mut file, beside) = draft::make(folder, NAME)?;
    let mut name = || {
        file.write_all(&serde_json::to_vec(&node)?)?;
        file.sync_all()?;
        let named = draft::publish(&beside, path)?;
        draft::sync_folder(folder)?;
        Ok(named)
    };
    let named = name();
    if !matches!(named, Ok(true)) {
        let _ = fs::remove_file(&beside);
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_to_its_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, other) = (ClusterId::from_bytes([1; 16]), ClusterId::from_bytes([2; 16]));
        check(folder.path(), ours).unwrap();
        check(folder.path(), ours).unwrap();
        let error = check(folder.path(), other).unwrap_err().to_string();
        assert!(error.contains(&ours.to_string()) && error.contains(&other.to_string()), "{error}");
        fs::write(folder.path().join(NAME), b"{").unwrap();
        let error = check(folder.path(), ours).unwrap_err();
        assert!(matches!(error, BuildError::Folder { action: "understand", .. }), "{error}");
        assert!(format!("{:?}", std::error::Error::source(&error)).contains("remove this file"), "{error:?}");
    }

    #[test]
    fn a_folder_of_another_version_is_refused_whatever_else_it_says_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let ours = ClusterId::from_bytes([1; 16]);
        for text in [format!("{{\"version\":2,\"cluster\":\"{ours}\"}}"), "{\"version\":7}".to_owned()] {
            fs::write(folder.path().join(NAME), &text).unwrap();
            let error = check(folder.path(), ours).unwrap_err();
            let why = std::error::Error::source(&error).unwrap().to_string();
            assert!(why.contains("knows version 1") && why.contains("use that one"), "{why}");
            assert!(!why.contains("remove"), "it is not damaged: {why}");
            assert_eq!(fs::read_to_string(folder.path().join(NAME)).unwrap(), text);
        }
    }

    #[test]
    fn of_two_clusters_that_begin_in_a_folder_at_once_one_has_it() {
        for _ in 0..50 {
            let (folder, barrier) = (tempfile::tempdir().unwrap(), std::sync::Barrier::new(4));
            let start = |cluster: u8| {
                barrier.wait();
                check(folder.path(), ClusterId::from_bytes([cluster; 16])).is_ok().then_some(cluster)
            };
            // Two of each, so that two that agree get on as well.
            let taken: Vec<u8> = std::thread::scope(|scope| {
                let threads: Vec<_> = [1, 2, 1, 2].map(|cluster| scope.spawn(move || start(cluster))).into();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            assert!(taken == [1, 1] || taken == [2, 2], "{taken:?} all have the folder");
            let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
            assert_eq!(left.len(), 1, "{left:?}");
        }
    }
}
