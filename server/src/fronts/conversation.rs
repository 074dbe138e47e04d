//! What a connection asks of a front: bytes in, bytes out, and requests that wait in between. A conversation has no
//! socket, so a test can cut its input anywhere.

use tokio::time::Instant;
use xuid_engine::sequence::Numbers;

use crate::fronts::buffers::{Inbox, Outbox};
use crate::fronts::client::Client;

/// What a conversation needs to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// More input.
    Input,
    /// Room in the output, or the end of a request that waits.
    Room,
    /// Another turn, after those of other connections.
    Turn,
    /// Nothing: write the output, and close.
    End,
}

/// One client's conversation with one front.
pub(crate) trait Conversation {
    /// The end of a request that waited.
    type Done;

    /// Whose it is.
    fn client(&self) -> &Client;

    /// Whose it is, to be changed.
    fn client_mut(&mut self) -> &mut Client;

    /// What an inbox must have room for, for the next request to be whole in it.
    fn longest_request(&self) -> usize;

    /// Whether the client has shown that it speaks this protocol, and may.
    fn was_greeted(&self) -> bool {
        self.client().was_greeted
    }

    /// Whether its token was refused, said once: the answer to that is not to come at once.
    fn take_rejection(&mut self) -> bool {
        self.client_mut().take_rejection()
    }

    /// Whether nothing is read any more: what waits is answered, and then it ends.
    fn is_leaving(&self) -> bool;

    /// Requests that wait.
    fn in_flight(&self) -> usize;

    /// Bytes of the requests that wait. A connection whose replies are not read does not look what became of them.
    fn waiting_bytes(&self) -> usize {
        0
    }

    /// Bytes of requests that it keeps until the client says what becomes of them.
    fn kept(&self) -> usize {
        0
    }

    /// What comes into the inbox now was read at this time.
    fn read_at(&mut self, now: Instant) {
        self.client_mut().came = Some(now);
    }

    /// Whether there are replies that [`written_at`](Self::written_at) was not told of.
    fn has_replied(&self) -> bool {
        self.client().tally.is_untimed()
    }

    /// The replies so far were written at this time.
    fn written_at(&mut self, now: Instant) {
        self.client_mut().written_at(now);
    }

    /// Answers what is in the inbox, as far as it may, and no request that begins behind the first `turn` bytes.
    fn receive(&mut self, inbox: &mut Inbox, outbox: &mut Outbox, turn: usize) -> Need;

    /// The end of the next request that waits; never, if none does. Nothing is lost if it is not awaited to its end.
    fn waited(&mut self) -> impl Future<Output = Self::Done> + Send;

    /// Writes the reply of a request that waited, and of all others that are ready by now.
    fn finish(&mut self, done: Self::Done, outbox: &mut Outbox);

    /// The client will not send any more: what waits is still answered.
    fn input_ended(&mut self);

    /// The client is to leave. It is told, if the protocol has a word for that.
    fn go_away(&mut self, outbox: &mut Outbox);

    /// Whether the protocol has a word for that which a client hears at any time.
    fn has_goaway(&self) -> bool;
}

/// A run of the engine's ids, as fronts write it.
pub(crate) fn run_of_ids(run: &xuid_engine::Run) -> xuid_protocol::Run {
    xuid_protocol::Run { first: run.first().raw(), count: run.len(), stride: run.stride() }
}

/// The same of numbers of a sequence.
pub(crate) fn run_of_numbers(numbers: &Numbers) -> xuid_protocol::Run {
    xuid_protocol::Run { first: numbers.first(), count: numbers.len(), stride: numbers.stride() }
}
