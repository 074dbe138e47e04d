//! What must be refused at a start.

use xuid_id::DEFAULT_EPOCH_MS;

use crate::api::build_error::BuildError;
use crate::api::data_dir;
use crate::registry::local::{CreateOptions, LocalError, LocalRegistry};
use crate::registry::{ClusterId, Registry, Token, WorkerRecord};
use crate::sys::guards::Guard;
use crate::testing::mutants::only_without;
use crate::{Engine, Layout};

#[test]
fn an_engine_of_another_layout_is_refused() {
    only_without(&[Guard::LayoutCompared], || {
        let folder = tempfile::tempdir().unwrap();
        drop(Engine::builder().data_dir(folder.path()).build().unwrap());
        let other = Layout::new(40, 11, 12, 1_000, DEFAULT_EPOCH_MS).unwrap();
        match Engine::builder().data_dir(folder.path()).layout(other).build() {
            Ok(engine) => Some(format!("asked for {other:?}, and it works with {:?}", engine.layout())),
            Err(error) => {
                assert!(matches!(error, BuildError::Layout { .. }), "{error}");
                None
            }
        }
    });
}

#[test]
fn a_folder_of_another_cluster_is_refused() {
    only_without(&[Guard::FolderOfCluster], || {
        let folder = tempfile::tempdir().unwrap();
        data_dir::check(folder.path(), ClusterId::from_bytes([1; 16])).unwrap();
        let other = data_dir::check(folder.path(), ClusterId::from_bytes([2; 16]));
        other.is_ok().then(|| "what belongs to one cluster is used in another".into())
    });
}

#[test]
fn a_copied_registry_is_refused() {
    only_without(&[Guard::FileIdentity], || {
        let (original, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let options = CreateOptions { layout: Layout::default(), floor: 1_000, workers: 1 };
        let mut one = LocalRegistry::open_or_create(original.path(), &options).unwrap();
        std::fs::copy(original.path().join("registry"), copy.path().join("registry")).unwrap();
        let mut other = match LocalRegistry::open(copy.path()) {
            Ok(other) => other,
            Err(error) => {
                assert!(matches!(error, LocalError::Copied { .. }), "{error}");
                return None;
            }
        };
        let claim = |token| WorkerRecord {
            reserved_until: 5_000,
            token: Token([token; 16]),
            operation: 1,
            owner: String::new(),
        };
        let granted =
            [one.claim(0, 1, &claim(1)), other.claim(0, 1, &claim(2))].map(|claimed| claimed.is_ok());
        (granted == [true, true]).then(|| "ticks 1000..5000 of worker 0 were granted twice".into())
    });
}
