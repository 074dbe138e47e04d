//! What a registry is to be that is created.

use anyhow::Result;
use xuid_engine::registry::Workers;
use xuid_engine::{Floor, Layout, Veil};

use crate::text::exit::usage;

/// What a registry is to be.
#[derive(Debug, Clone)]
pub(crate) struct New<'a> {
    pub(crate) layout: Layout,
    /// `None`: from now on.
    pub(crate) floor: Option<Floor>,
    pub(crate) workers: Workers,
    /// Those of another generator.
    pub(crate) closed: Workers,
    /// The key of opaque ids, which the layout says too.
    pub(crate) veil: Option<&'a Veil>,
}

impl New<'_> {
    /// Refuses workers that the layout does not have, and closed ones that the registry would not have.
    pub(crate) fn check(&self) -> Result<()> {
        let Self { layout, workers, closed, .. } = self;
        let most = layout.workers();
        // From 0 on how many there may be is told with the registry's own limit.
        if workers.from > 0 && workers.until > most {
            let text = format!(
                "--workers is {workers}; the layout {layout} has {}",
                Workers { from: 0, until: most }
            );
            return Err(usage(text).into());
        }
        if !closed.are_among(workers) {
            let text =
                format!("--closed is {closed}; allowed are workers of the registry, which has {workers}");
            return Err(usage(text).into());
        }
        Ok(())
    }
}

/// Workers of a registry that is created and that nobody said more about: at most what the default layout tells apart.
pub(crate) fn workers_of_new(layout: Layout) -> u32 {
    layout.workers().min(1024)
}
