//! Whether standard output was open when the process began. Before `main` the standard library puts `/dev/null` in the
//! place of a closed one, and from then on nothing tells the two apart: what was printed would be lost without a word.
//!
//! The only file of the crate with unsafe code, which is the attribute that has the loader call a function before
//! `main`.

#![expect(unsafe_code, reason = "only code before main can see a closed descriptor")]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::io::fcntl_getfd;
use rustix::stdio::stdout;

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether it was closed.
pub(super) fn was_closed() -> bool {
    CLOSED.load(Relaxed)
}

// SAFETY: the loader takes what lies in this section for addresses of functions of the C ABI, and calls each once
// before `main`, on the only thread. It passes three arguments, which a function without any may ignore.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// One system call and one store: nothing that the standard library would have to set up before.
extern "C" fn look() {
    CLOSED.store(fcntl_getfd(stdout()).is_err(), Relaxed);
}
