//! Commands that wait for EXEC, and then for their turn: as bytes of the wire, so that they take no more memory than is said.

use std::ops::Range;

use xuid_protocol::{Refusal, Status};

use super::parse::{MOST_ARGUMENTS, MOST_COMMAND, Parsed, parse};
use super::reply::{write_bulk, write_length};

/// Commands between MULTI and EXEC.
#[derive(Debug, Default)]
pub(super) struct Queue {
    commands: usize,
    bytes: Vec<u8>,
    /// One of them was refused: EXEC carries none of them out.
    pub(super) is_refused: bool,
}

impl Queue {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.commands
    }

    /// Bytes of memory that they take.
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// Takes one more, if there is room for it.
    pub(super) fn push(&mut self, arguments: &[&[u8]]) -> Result<(), Refusal> {
        let before = self.bytes.len();
        let least: usize = arguments.iter().map(|argument| argument.len()).sum();
        if self.commands < MOST_ARGUMENTS && before + least <= MOST_COMMAND {
            write_length(&mut self.bytes, b'*', arguments.len());
            for argument in arguments {
                write_bulk(&mut self.bytes, argument);
            }
            let fits = self.bytes.len() <= MOST_COMMAND;
            if !fits {
                self.bytes.truncate(before);
            }
            // It may have grown by as much as it was.
            self.bytes.shrink_to(MOST_COMMAND);
            if fits {
                self.commands += 1;
                return Ok(());
            }
        }
        let text =
            format!("MULTI takes {MOST_ARGUMENTS} commands of {MOST_COMMAND} bytes in all: EXEC more often");
        Err(Refusal::new(Status::TOO_LARGE, text))
    }

    /// They are to be carried out.
    pub(super) fn begin(self) -> Script {
        Script { bytes: self.bytes, at: 0 }
    }
}

/// What EXEC has not carried out yet.
#[derive(Debug, Default)]
pub(super) struct Script {
    bytes: Vec<u8>,
    at: usize,
}

impl Script {
    /// Bytes of memory that they take.
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Finds the arguments of the next command; `None` behind the last one. Its memory goes when nothing is left.
    pub(super) fn next(&mut self, places: &mut Vec<Range<usize>>) -> Option<Vec<u8>> {
        let rest = &self.bytes[self.at..];
        let Parsed::Command { consumed } = parse(rest, places) else { return None };
        let command = rest[..consumed].to_vec();
        self.at += consumed;
        if self.at == self.bytes.len() {
            *self = Self::default();
        }
        Some(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_back_as_they_were_and_no_more_than_there_is_room_for() {
        let commands: [&[&[u8]]; 3] =
            [&[b"ECHO", b""], &[b"PING"], &[b"SET", b"a\r\n*1\r\n", b"\xff", b"NX"]];
        let mut queue = Queue::default();
        for command in commands {
            queue.push(command).unwrap();
        }
        assert!(queue.push(&[b"ECHO", &vec![b'x'; MOST_COMMAND - 40]]).is_err());
        assert_eq!(queue.len(), 3);
        let (mut script, mut places, mut found) = (queue.begin(), Vec::new(), Vec::new());
        while let Some(command) = script.next(&mut places) {
            found.push(places.iter().map(|place| command[place.clone()].to_vec()).collect::<Vec<_>>());
        }
        assert_eq!(found, commands);
        assert_eq!(script.bytes.capacity(), 0);
    }

    #[test]
    fn it_takes_no_more_memory_than_it_may_have_bytes() {
        let mut queue = Queue::default();
        while queue.push(&[b"ECHO", &[b'x'; 100]]).is_ok() {}
        assert!(queue.len() > 500 && queue.bytes.capacity() <= MOST_COMMAND);
    }
}
