//! The registry of an engine whose worker was given to this process, and what cannot stand beside it.

use std::time::Duration;

use xuid_id::{ClusterId, Layout};

use crate::api::build_error::BuildError;
use crate::clock::nanos;
use crate::registry::given::{GiveError, GivenWorker};
use crate::registry::{Floor, Genesis};
use crate::settings::Settings;

/// The most `drift`: `build` waits for as long.
const MOST_DRIFT: Duration = Duration::from_secs(2);

/// Refuses what would be kept beside it, and what `build` would wait for too long.
pub(super) fn check(settings: &Settings, has_folder: bool, has_registry: bool) -> Result<(), BuildError> {
    let refuse = |setting, found, allowed| Err(BuildError::Setting { setting, found, allowed });
    // Without a registry nothing tells whether a key is that of the ids before.
    let has_key = settings.veil.is_some();
    for (setting, is_set) in [("data_dir", has_folder), ("registry", has_registry), ("opaque_key", has_key)] {
        if is_set {
            return refuse(setting, "set".to_owned(), "none beside Engine::memory");
        }
    }
    if settings.drift > MOST_DRIFT {
        return refuse("drift", format!("{:?}", settings.drift), "0 to 2 s beside Engine::memory");
    }
    Ok(())
}

/// The worker of the settings, for an engine that is built when the clock says `wall` (Unix nanoseconds).
pub(super) fn given(
    cluster: ClusterId,
    layout: Layout,
    floor: Floor,
    wall: u64,
    settings: &Settings,
) -> Result<GivenWorker, BuildError> {
    let worker = settings.pinned.unwrap_or_default();
    if worker >= layout.workers() {
        let found = format!("{worker}, and the layout has {}", layout.workers());
        return Err(BuildError::Setting {
            setting: "worker",
            found,
            allowed: "one of those, counted from 0,",
        });
    }
    let floor = match floor {
        // An earlier process of this worker issued nothing further ahead of its clock than that.
        Floor::Now => floor.tick(&layout, wall.saturating_add(nanos(settings.drift))) + 1,
        asserted => asserted.tick(&layout, wall),
    };
    let floor = floor.min(layout.last_tick());
    let genesis = Genesis::new(cluster, layout, floor, layout.workers());
    GivenWorker::new(genesis, worker).map_err(|error| match error {
        GiveError::OfParent => BuildError::Worker { worker, why: OF_PARENT.to_owned() },
        GiveError::Busy => BuildError::Worker { worker, why: BUSY.to_owned() },
        GiveError::System(source) => BuildError::System { action: "map the fork page", source },
    })
}

const OF_PARENT: &str =
    "the process that this one was forked from has it; give each process a worker of its own";

const BUSY: &str =
    "another thread has been taking one for a second, or was when this process was forked from its own";
