//! Tier 2: the freshest blocks, lock-free. The producer pushes; callers whose slots are empty, and the producer's
//! refills, pop. A facade, because the queue's crate has no hook for a model checker.

use crossbeam_queue::ArrayQueue;

use crate::id::run::Block;

/// The queue of blocks. A block is in it once, and the thread that pops it owns it (U3).
pub(crate) struct Queue(ArrayQueue<Block>);

impl Queue {
    pub(crate) fn new(capacity: usize) -> Self {
        Self(ArrayQueue::new(capacity))
    }

    /// Gives the block back if the queue is full.
    pub(crate) fn push(&self, block: Block) -> Result<(), Block> {
        self.0.push(block)
    }

    pub(crate) fn pop(&self) -> Option<Block> {
        self.0.pop()
    }

    /// Room for this many more blocks.
    pub(crate) fn room(&self) -> usize {
        self.0.capacity() - self.0.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
