"""What a server answers with, as values."""

from __future__ import annotations

import datetime
from typing import NamedTuple

from .errors import UsageError

#: No id is above: ids have 63 bits.
LARGEST_ID = (1 << 63) - 1

#: The face of a layout whose ids are sealed with a key.
OPAQUE = 2

_UNIX_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


class Run(NamedTuple):
    """``count`` ids: first, first + stride, first + 2 * stride, ..."""

    first: int
    count: int  # type: ignore[assignment]  # not the method of a tuple
    stride: int

    @property
    def ids(self) -> range:
        """The ids themselves, which take no memory until they are looked at."""
        # A run of one id may say any stride, and a range takes none of 0.
        stride = self.stride or 1
        return range(self.first, self.first + self.count * stride, stride)


class Decoded(NamedTuple):
    """The fields of an id."""

    #: Beginning of its tick, in milliseconds since the Unix epoch.
    unix_ms: int
    worker: int
    sequence: int

    @property
    def time(self) -> datetime.datetime:
        """The beginning of its tick, at UTC."""
        return _UNIX_EPOCH + datetime.timedelta(milliseconds=self.unix_ms)


class Layout(NamedTuple):
    """How an id is put together: from the highest bit down a tick, and below it a worker and a sequence."""

    #: Tick 0, in milliseconds since the Unix epoch.
    epoch_ms: int
    #: A tick, in microseconds.
    tick_us: int
    time_bits: int
    worker_bits: int
    sequence_bits: int
    #: 0 where the sequence lies lowest, 1 where the worker does, 2 where ids are opaque.
    face: int = 0

    def decode(self, number: int) -> Decoded:
        """The fields of an id. It is arithmetic, and says nothing about whether the id was ever issued.

        :raises UsageError: the ids are opaque, and only the server, which has the key, can take them apart.
        """
        if self.face == OPAQUE:
            raise UsageError("the ids of this cluster are opaque: take them apart by a call (decode)")
        tick = number >> (self.worker_bits + self.sequence_bits)
        worker_at, sequence_at = (0, self.worker_bits) if self.face else (self.sequence_bits, 0)
        worker = number >> worker_at & ((1 << self.worker_bits) - 1)
        sequence = number >> sequence_at & ((1 << self.sequence_bits) - 1)
        return Decoded(tick * self.tick_us // 1_000 + self.epoch_ms, worker, sequence)


class Served(NamedTuple):
    """What a server says about itself in its reply to HELLO."""

    #: Its address, as it was given.
    server: str
    #: Its version, for people.
    version: str
    #: Its cluster, 32 hexadecimal digits.
    cluster: str
    layout: Layout
    #: The longest body of a request, in bytes.
    max_body: int
    #: The most ids of one ``array`` or ``runs``.
    max_count: int
    #: Requests of one connection that are not answered yet.
    max_in_flight: int
    #: A connection this long without a byte is closed, in milliseconds.
    idle_ms: int
