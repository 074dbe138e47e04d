//! Ticks that are owned.

use std::ops::Range;

/// Ticks of one worker, owned by the holder of this value.
#[derive(Debug)]
#[must_use = "a window that is dropped is wasted"]
pub(crate) struct Window {
    worker: u32,
    span: Range<u64>,
}

impl Window {
    pub(crate) fn new(worker: u32, span: Range<u64>) -> Self {
        assert!(span.start < span.end, "an empty window");
        Self { worker, span }
    }

    pub(crate) fn worker(&self) -> u32 {
        self.worker
    }

    pub(crate) fn span(&self) -> Range<u64> {
        self.span.clone()
    }

    pub(crate) fn into_parts(self) -> (u32, Range<u64>) {
        (self.worker, self.span)
    }
}
