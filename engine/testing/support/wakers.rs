//! Strangers' wakers.

use std::sync::Arc;
use std::task::Wake;

/// One whose end panics.
pub(crate) struct Fails;

impl Wake for Fails {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Fails {
    fn drop(&mut self) {
        panic!("a stranger's waker");
    }
}
