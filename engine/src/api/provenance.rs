//! What a running engine can say of an id that somebody asks about.

use xuid_id::Id;

use crate::api::engine::Engine;
use crate::sys::atomics::lock;

impl Engine {
    /// Whether the id lies in a window that this engine holds, and has not been cut from it: then neither this engine nor any
    /// other issued it until now. False says nothing. For
    /// [`Evidence::judge`](crate::registry::provenance::Evidence::judge).
    #[must_use]
    pub fn is_uncut(&self, id: Id) -> bool {
        let shared = self.shared();
        // In a forked child the windows are the parent's, which goes on.
        if shared.generation.forked() || id > shared.genesis.layout.last_id() {
            return false;
        }
        let parts = self.decode(id);
        lock(&shared.gate).is_uncut(shared.layout.encode(parts.tick, parts.worker, parts.sequence).raw())
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::Arc;

    use xuid_id::{ClusterId, Layout};

    use super::*;
    use crate::api::builder::assemble;
    use crate::clock::{Clock, SystemClock};
    use crate::registry::memory::MemoryRegistry;
    use crate::registry::ownership::{Identity, Ownership};
    use crate::registry::{Genesis, Token};
    use crate::settings::Settings;
    use crate::tiers::reserve::open;

    /// Another copy of this machine may have cut it. The producer does not run here, which drops the windows.
    #[test]
    fn nothing_is_said_to_be_uncut_from_a_leap_of_the_clock_on() {
        let layout = Layout::default();
        let clock = Arc::new(SystemClock);
        let now = layout.tick_at_ns(clock.read().wall).unwrap();
        let genesis = Genesis::new(ClusterId::from_bytes([1; 16]), layout, now - 1_000, 1);
        let identity = Identity::new(Token([1; 16]), "a test".into());
        let none = |_: &Genesis, _: &mut Ownership| open::none("a test");
        let registry = Box::new(MemoryRegistry::new(genesis));
        let assembly =
            assemble(registry, identity, none, Settings::default(), clock, std::thread::sleep).unwrap();
        let mut gate = lock(&assembly.shared.gate);
        // Windows reach two seconds ahead, and without a producer nothing is cut.
        let plot = layout.encode(now + 1_500, 0, 0).raw();
        assert!(gate.is_uncut(plot));
        gate.clock.note_copies(1);
        assert!(!gate.is_uncut(plot));
    }
}
