//! What callers see of plots, on the way out.

use xuid_id::{Face, Id, Layout, Parts, Veil};

use crate::id::run::Run;

/// How callers see the plots of an engine.
pub(crate) enum Shown {
    /// As they are.
    Plots,
    /// With their fields in another order.
    Fields(Layout),
    /// Sealed: each is a run of its own, since no two are neighbours.
    Sealed(Box<Veil>),
}

impl Shown {
    /// Of a namespace that was [checked](crate::registry::Genesis::check_veil) with that key.
    pub(super) fn new(layout: Layout, veil: Option<&Veil>) -> Self {
        match (layout.face(), veil) {
            (Face::Opaque, Some(veil)) => Self::Sealed(Box::new(veil.clone())),
            (Face::Opaque, None) => unreachable!("an engine of opaque ids is built with their key"),
            (Face::Plain, _) => Self::Plots,
            _ => Self::Fields(layout),
        }
    }

    pub(super) fn one(&self, plot: Id) -> Id {
        match self {
            Self::Plots => plot,
            Self::Fields(layout) => layout.face_of(plot.raw()),
            Self::Sealed(veil) => veil.seal(plot),
        }
    }

    /// Of all plots in a slice.
    pub(super) fn all(&self, plots: &mut [Id]) {
        match self {
            Self::Plots => {}
            Self::Fields(layout) => plots.iter_mut().for_each(|plot| *plot = layout.face_of(plot.raw())),
            Self::Sealed(veil) => veil.seal_all(plots),
        }
    }

    /// Of the runs from that place on.
    pub(super) fn runs(&self, runs: &mut Vec<Run>, from: usize) {
        match self {
            Self::Plots => {}
            Self::Fields(layout) => runs[from..].iter_mut().for_each(|run| run.show(layout)),
            Self::Sealed(veil) => {
                let count = runs[from..].iter().map(|run| run.len() as usize).sum();
                let mut ids: Vec<Id> = Vec::with_capacity(count);
                for run in runs.drain(from..) {
                    ids.extend((run.raw()..run.raw() + u64::from(run.len())).map(Id::new));
                }
                veil.seal_all(&mut ids);
                runs.extend(ids.into_iter().map(|id| Run::new(id.raw(), 1)));
            }
        }
    }

    /// What an id that callers see says.
    pub(super) fn parts(&self, layout: &Layout, id: Id) -> Parts {
        match self {
            Self::Sealed(veil) => layout.decode(veil.open(id)),
            _ => layout.decode(id),
        }
    }
}
