//! What a server said about itself.

use std::sync::Arc;

use xuid_protocol::{ClusterId, HelloReply, Limits};

/// The answer to HELLO of the server that a client is connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Its address, as it was given.
    pub server: Arc<str>,
    /// Its version, for people.
    pub version: Arc<str>,
    /// Its cluster.
    pub cluster: ClusterId,
    /// Tick 0, in milliseconds since the Unix epoch.
    pub epoch_ms: u64,
    /// A tick, in microseconds.
    pub tick_us: u32,
    /// Highest bits of an id: the tick.
    pub time_bits: u8,
    /// Bits of the worker, below the tick.
    pub worker_bits: u8,
    /// Lowest bits: the sequence.
    pub sequence_bits: u8,
    /// 0 where the sequence lies lowest, as said above; 1 where the worker does; 2 where ids are opaque: only the server, or
    /// the owner of the key, can take them apart.
    pub face: u8,
    /// What it allows.
    pub limits: Limits,
}

impl Served {
    pub(crate) fn new(server: &Arc<str>, hello: &HelloReply<'_>) -> Self {
        Self {
            server: Arc::clone(server),
            version: Arc::from(hello.server),
            cluster: hello.cluster,
            epoch_ms: hello.epoch_ms,
            tick_us: hello.tick_us,
            time_bits: hello.time_bits,
            worker_bits: hello.worker_bits,
            sequence_bits: hello.sequence_bits,
            face: hello.face,
            limits: hello.limits,
        }
    }
}
