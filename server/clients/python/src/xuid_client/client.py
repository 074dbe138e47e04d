"""The client for threads, and what it shares with that for tasks."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from typing import Any, Callable

from . import wire
from .errors import Closed
from .link.fleet import Fleet
from .link.threads import Threads, run
from .options import Tls, check
from .prefetch import Prefetch
from .process import own, settle
from .values import Decoded, Layout, Run, Served

#: How long ids may take, in seconds, where a caller says nothing.
WAIT = 0.05

_CLIENT_NAME = "xuid-client-python/0.1.0"


class Base:
    """Options, and what needs no call."""

    def __init__(
        self,
        servers: str | Iterable[str] | None = None,
        *,
        token: str | bytes | None = None,
        cluster: str | None = None,
        tls: Tls | ssl.SSLContext | None = None,
        client_name: str = _CLIENT_NAME,
        timeout: float = 10.0,
        connect_timeout: float = 5.0,
        retry_for: float = 0.0,
        max_in_flight: int = 1_024,
        return_after: float = 180.0,
    ) -> None:
        """Checks the options. It connects at the first call, at :meth:`connect`, or at ``with``.

        :param servers: ``"host:7654,host2:7654"``, or a list; all of one cluster. The client begins at one of them at
            random. Where none are given, the environment variable XUID_SERVER names them (``127.0.0.1:7654`` if there is
            none), and XUID_TOKEN the token.
        :param token: proves the client's right.
        :param cluster: the cluster that the servers must be of, 32 hexadecimal digits. Worth setting wherever it is known: a
            wrong address becomes an error instead of ids of another namespace. Defaults to that of the first server that
            answers.
        :param tls: :class:`Tls`, or a context of :mod:`ssl`. Defaults to plain TCP.
        :param client_name: what the client calls itself in the servers' logs.
        :param timeout: how long a reply may take, in seconds, beyond the wait that the call itself allows. A call that gives
            up ends alone. When nothing at all came for so long, though a reply was due, and a PING after half of it was not
            answered either, the connection ends.
        :param connect_timeout: how long connecting to one server may take, in seconds.
        :param retry_for: how long a call goes on trying, in seconds, after errors that are worth it: refusals that may pass,
            lost connections, timeouts. It never repeats an id. Defaults to 0: the caller sees every error.
        :param max_in_flight: requests in flight at once; more callers wait their turn. The server's own limit holds, too.
        :param return_after: when a client of several servers that had to leave the one it began at tries that one again, in
            seconds: after half of this, and a random part of this besides. New requests then go there, and those in flight
            are finished where they are. Too short, and a server that comes and goes is followed; too long, and load stays
            uneven after a fail-over.
        :raises UsageError: for an option out of range.
        """
        options = check(
            servers,
            token,
            cluster,
            tls,
            client_name,
            timeout,
            connect_timeout,
            retry_for,
            max_in_flight,
            return_after,
        )
        self._fleet = Fleet(options, self._port())

    def _port(self) -> Callable[[], Any]:
        raise NotImplementedError

    @property
    def served(self) -> Served:
        """What the server of the last connection said about itself.

        :raises UsageError: before the first connection.
        """
        return self._fleet.served

    @property
    def layout(self) -> Layout:
        """How the ids of this cluster are put together. As :attr:`served`."""
        return self._fleet.served.layout

    @property
    def is_connected(self) -> bool:
        """Whether a connection stands now. The next call makes one if not."""
        return self._fleet.is_connected

    def time_of(self, number: int) -> Decoded:
        """The time, worker and sequence of an id, without a call. As :attr:`served`."""
        wire.decode_id(number)
        return self.layout.decode(number)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({','.join(self._fleet.options.servers)!r})"

    def __del__(self) -> None:
        try:
            self._fleet.end()
        except (AttributeError, RuntimeError, TypeError):
            # The options were refused; or the interpreter, or the event loop, is over.
            pass


class Client(Base):
    """Ids for threads: any number of them share one connection.

        with Client() as client:
            print(client.next())

    All methods raise :class:`XuidError`, which lists its kinds. Requests for ids are always safe to repeat: at worst ids are
    wasted, and none comes twice. In a forked child the same object connects by itself.
    """

    def _port(self) -> Callable[[], Any]:
        return Threads

    def connect(self) -> Client:
        """Connects now, and says what is wrong with the servers."""
        run(self._fleet.link(max(self._fleet.options.timeout, self._fleet.options.connect_timeout)))
        return self

    def close(self) -> None:
        """Says goodbye and closes, for all threads. Prefetched ids are dropped."""
        run(self._fleet.close())

    def __enter__(self) -> Client:
        return self.connect()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, request: wire.Request, make: Callable[[Any], Any] | None = None) -> Any:
        """What is made of the answer."""
        while True:
            settle()
            process = self._fleet.process
            answer = run(self._fleet.call(request))
            if make:
                answer = make(answer)
            # Last: a signal's handler may have forked, and then it is the parent's.
            if own[0] and process is self._fleet.process:
                return answer

    def next(self, order: str = "any") -> int:
        """One id. The server decides how long it waits for one.

        :param order: ``"any"``, ``"fresh"`` (of a tick of now) or ``"ordered"`` (greater than every ordered id that the same
            server answered with before).
        """
        return self._call(wire.next_id(order))  # type: ignore[no-any-return]

    def array(self, count: int, order: str = "any", wait: float = WAIT) -> list[int]:
        """Exactly ``count`` ids, or an error after ``wait`` seconds."""
        return self._call(wire.array(count, order, wait), list)  # type: ignore[no-any-return]

    def runs(self, count: int, order: str = "any", wait: float = WAIT) -> list[Run]:
        """Exactly ``count`` ids as runs, or an error after ``wait`` seconds. The fastest for many ids."""
        return self._call(wire.runs(count, order, wait), list)  # type: ignore[no-any-return]

    def decode(self, number: int) -> Decoded:
        """The fields of an id, by a call. :meth:`time_of` does without one."""
        return self._call(wire.decode_id(number))  # type: ignore[no-any-return]

    def info(self) -> dict[str, Any]:
        """What the server is."""
        return self._call(wire.info())  # type: ignore[no-any-return]

    def stats(self) -> dict[str, Any]:
        """What the server counted."""
        return self._call(wire.stats())  # type: ignore[no-any-return]

    def provenance(self, number: int) -> dict[str, Any]:
        """What the server knows of where an id came from, and whether it may have been issued."""
        return self._call(wire.provenance(number))  # type: ignore[no-any-return]

    def ping(self, payload: bytes = b"") -> None:
        """Sends up to 1,024 bytes there and back."""
        self._call(wire.ping(payload))

    def sequence(self, name: str) -> Sequence:
        """The sequence of that name. It need not exist, and nothing is sent."""
        return Sequence(self, name)

    def sequences(self, prefix: str = "", after: str = "", limit: int = 1_000) -> list[dict[str, Any]]:
        """Up to ``limit`` (1 to 1,000) sequences whose names begin with ``prefix`` and are greater than ``after``, each as
        of :meth:`Sequence.info`."""
        return self._call(wire.seq_list(prefix, after, limit))  # type: ignore[no-any-return]

    def prefetch(
        self, least: int = 16, most: int = 1 << 20, max_age: float = 2.0, wait: float = 1.0
    ) -> Prefetch:
        """Ids without a round trip, which are asked for ahead of need. Any number of threads may share it.

        :param least: ids that are held ahead at least.
        :param most: and at most, in a hot loop.
        :param max_age: how long after it was asked for an id may still be handed out, in seconds, up to 2. Older ones are
            wasted.
        :param wait: how long a caller waits where none is held, in seconds.
        """
        if self._fleet.is_closed:
            raise Closed
        return Prefetch(self, self._fleet, least, most, max_age, wait)


class Sequence:
    """The numbers of one name, made by :meth:`Client.sequence`.

    The ordered numbers of one server ascend. Those of several servers interleave, except where the sequence is ``strict``.
    """

    def __init__(self, client: Client, name: str) -> None:
        # Says what is wrong with it.
        wire.seq_next(name)
        self._client = client
        self.name = name

    def next(self) -> int:
        """One number, which is an ordered one. The server decides how long it waits for one."""
        return self._client._call(wire.seq_next(self.name))  # type: ignore[no-any-return]

    def array(self, count: int, order: str = "ordered", wait: float = WAIT) -> list[int]:
        """Exactly ``count`` numbers, or an error after ``wait`` seconds.

        :param order: ``"ordered"``, or ``"any"``: the fastest for many numbers.
        """
        return self._client._call(wire.seq_array(self.name, count, order, wait), list)  # type: ignore[no-any-return]

    def runs(self, count: int, order: str = "ordered", wait: float = WAIT) -> list[Run]:
        """Exactly ``count`` numbers as runs, or an error after ``wait`` seconds. Their stride is the increment."""
        return self._client._call(wire.seq_runs(self.name, count, order, wait), list)  # type: ignore[no-any-return]

    def contiguous(self, count: int, order: str = "ordered", wait: float = WAIT) -> Run:
        """Exactly ``count`` numbers in one run. Refused with COUNT where the server cannot put so many into one."""
        request = wire.seq_runs(self.name, count, order, wait, True)
        return self._client._call(request, lambda runs: runs[0])  # type: ignore[no-any-return]

    def info(self) -> dict[str, Any]:
        """What the server knows of it. Numbers are texts."""
        return self._client._call(wire.seq_info(self.name))  # type: ignore[no-any-return]

    def create(self, settings: str | Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        """Begins it. The same once more succeeds and changes nothing; with other settings it is refused with EXISTS.

        :param settings: start, step, increment, remainder, last, strict, description: each may be left out, and be given by
            its own name instead. A text is JSON already.
        :return: as :meth:`info`.
        """
        return self._client._call(wire.seq_create(self.name, merged(settings, fields)))  # type: ignore[no-any-return]

    def alter(self, changes: str | Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        """Changes step, last or description. ``last="retired"`` ends it.

        :return: as :meth:`info`.
        """
        return self._client._call(wire.seq_alter(self.name, merged(changes, fields)))  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"{self._client!r}.sequence({self.name!r})"


def merged(settings: str | Mapping[str, Any] | None, fields: dict[str, Any]) -> str | Mapping[str, Any]:
    """Settings as they may be given: as a text, or as a mapping and fields."""
    return settings if isinstance(settings, str) else {**(settings or {}), **fields}
