//! Why something was not done at a database.

use crate::sequence::store::StoreError;

/// Why a host was not connected.
#[derive(Debug)]
pub(super) enum Denied {
    /// Another host may do: this one is away, or read-only.
    Next { why: String },
    /// No host will do: the table is not as it must be, say.
    Refused { why: String },
}

/// Why something was not done on a connection.
#[derive(Debug)]
pub(super) enum Failure {
    /// The database said no, and did nothing.
    Said {
        /// Its words.
        why: String,
        /// Whether the same will fail for ever unless a person changes something.
        is_refusal: bool,
        /// Whether the connection, or what was learnt with it, is of no use any more.
        ends_connection: bool,
    },
    /// It was sent, and what became of it is not known.
    Lost {
        /// What happened.
        why: String,
    },
}

impl Failure {
    pub(super) fn refused(why: impl Into<String>) -> Self {
        Self::Said { why: why.into(), is_refusal: true, ends_connection: false }
    }

    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Self::Said { ends_connection, .. } => *ends_connection,
            Self::Lost { .. } => true,
        }
    }

    /// Of something that only reads: there is nothing whose outcome could be unknown.
    pub(super) fn of_a_read(self) -> Self {
        match self {
            Self::Lost { why } => Self::Said { why, is_refusal: false, ends_connection: true },
            said @ Self::Said { .. } => said,
        }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Said { why, is_refusal: true, .. } => Self::Refused { why },
            Failure::Said { why, .. } => Self::Away { why },
            Failure::Lost { why } => Self::Unknown { why },
        }
    }
}
