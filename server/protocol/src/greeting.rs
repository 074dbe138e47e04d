//! HELLO and its reply.

use std::borrow::Cow;

use xuid_id::ClusterId;

use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::status::Status;

/// The only version there is.
pub const VERSION: u16 = 1;

/// What a client says first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The lowest version it speaks.
    pub min_version: u16,
    /// The highest version it speaks.
    pub max_version: u16,
    /// Bits of features it offers; version 1 has none.
    pub features: u32,
    /// The cluster it means, or [`ClusterId::ANY`].
    pub cluster: ClusterId,
    /// What it proves its right with; empty: nothing. At most 255 bytes.
    pub token: &'a [u8],
    /// What it calls itself, for logs. At most 255 bytes, meant to be UTF-8.
    pub client: &'a [u8],
}

/// A field that must fit a length of one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {field} has {len} bytes, and HELLO holds at most 255: shorten it")]
pub struct TooLong {
    /// Which one.
    pub field: &'static str,
    /// Its length in bytes.
    pub len: usize,
}

impl<'a> Hello<'a> {
    /// Version 1, any cluster, no token.
    #[must_use]
    pub const fn new(client: &'a str) -> Self {
        Self {
            min_version: VERSION,
            max_version: VERSION,
            features: 0,
            cluster: ClusterId::ANY,
            token: &[],
            client: client.as_bytes(),
        }
    }

    /// The client's name as text; what is not UTF-8 is replaced.
    #[must_use]
    pub fn client_name(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.client)
    }

    /// The version to speak: the highest that both know.
    pub fn pick_version(&self) -> Result<u16, Refusal> {
        if (self.min_version..=self.max_version).contains(&VERSION) {
            return Ok(VERSION);
        }
        let (min, max) = (self.min_version, self.max_version);
        let text = format!(
            "this server speaks versions {VERSION} to {VERSION}, and the client {min} to {max}: use a client that speaks \
             one of the server's"
        );
        Err(Refusal::new(Status::VERSION, text))
    }

    /// Refuses a client that means another cluster than `ours`.
    pub fn check_cluster(&self, ours: ClusterId) -> Result<(), Refusal> {
        if self.cluster == ClusterId::ANY || self.cluster == ours {
            return Ok(());
        }
        let text = format!(
            "this server is of cluster {ours}, and the client expects {}: check the address, or the cluster that the \
             client is set to",
            self.cluster
        );
        Err(Refusal::new(Status::WRONG_CLUSTER, text))
    }
}

/// What a server answers HELLO with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HelloReply<'a> {
    /// The version both will speak.
    pub version: u16,
    /// The features that were offered and are known.
    pub features: u32,
    /// The server's cluster.
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
    /// How the fields lie in an id: 0 as `time | worker | sequence`, 1 as `time | sequence | worker`.
    pub face: u8,
    /// What this server allows.
    pub limits: Limits,
    /// The server's version, for people. At most 255 bytes are sent.
    pub server: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_common_version_is_picked_and_a_refusal_names_the_range() {
        let offer = |min_version, max_version| Hello { min_version, max_version, ..Hello::new("x") };
        for (min, max) in [(1, 1), (0, 9), (1, u16::MAX)] {
            assert_eq!(offer(min, max).pick_version(), Ok(1));
        }
        for (min, max) in [(2, 3), (0, 0), (3, 1)] {
            let refusal = offer(min, max).pick_version().unwrap_err();
            assert!(refusal.status == Status::VERSION && refusal.closes);
            assert!(refusal.text.contains("versions 1 to 1"), "{refusal}");
        }
    }

    #[test]
    fn another_cluster_is_refused_with_both_ids_shown() {
        let (ours, other) = (ClusterId::from_bytes([1; 16]), ClusterId::from_bytes([2; 16]));
        let expect = |cluster| Hello { cluster, ..Hello::new("x") };
        assert!(expect(ClusterId::ANY).check_cluster(ours).is_ok());
        assert!(expect(ours).check_cluster(ours).is_ok());
        let refusal = expect(other).check_cluster(ours).unwrap_err();
        assert!(refusal.status == Status::WRONG_CLUSTER && refusal.closes);
        assert!(refusal.text.contains(&ours.to_string()) && refusal.text.contains(&other.to_string()));
    }
}
