"""Ids that are there before they are asked for.

    server --- RUNS ---> refill (a thread or a task of its own, one request at a time)
                           |
                         pool: runs, oldest first, as a rule for one thread at a time (:class:`.link.mutex.Courtesy`)
                           |  a piece of up to 1,024 ids is opened
                         piece: the next id is taken without the lock, by any thread
                           |  then the clock is looked at, and whose process it is: an id that is too old is wasted, and so
                           |  is one of a parent
                         caller

A forked child drops the pool and the piece, and fills its own. A signal's handler may fork, or close, in the middle of
anything, and what it interrupted goes on behind it. So each piece says of which generation it is, and that is looked at
last: what was opened before a fork, a close or a stranger is never handed out after it.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Iterator
from typing import Any, Callable

from . import wire
from .errors import Closed, Timeout, UsageError, XuidError
from .link import tasks, threads
from .link.fleet import Fleet
from .pool import EMPTY, Batch, Piece, Pool
from .process import now, own, settle, tell_of_forks

#: How long the server may wait for the ids of a refill, in seconds: one that lives on what its clock brings has the largest
#: refill together in 32 ms.
_WAIT = 0.05


class Source:
    """What the prefetches of threads and tasks share: its coroutines wait at a gate (:class:`.link.threads.Gate`,
    :class:`.link.tasks.Gate`)."""

    def __init__(self, fleet: Fleet, make_gate: Callable[[], Any], least: int, most: int, max_age: float, wait: float):
        if not wait >= 0:
            raise UsageError(f"wait is {wait!r}, and 0 or more seconds are allowed")
        self._fleet = fleet
        self._make_gate = make_gate
        self._wait = wait
        self._pool = Pool(least, most, max_age)
        tell_of_forks(self)
        self._begin()
        fleet.add_source(self)

    def _begin(self) -> None:
        #: Another object whenever what is held becomes void.
        self.generation = object()
        self.piece = EMPTY
        #: That of tasks is of an event loop, and made in it. Another one takes its place where it is not current.
        self._gate: Any = None if self._make_gate is tasks.Gate else self._make_gate()

    def after_fork(self) -> None:
        """In a child: what is held is the parent's."""
        self.generation = object()
        parents = self._pool
        pool = Pool(parents.least, parents.most, parents.max_age)
        pool.closed = parents.closed
        # Whole: it may be told twice.
        self._pool = pool
        self._begin()

    def close(self) -> None:
        """Drops what is held. May be called from any thread, of tasks from that of their loop."""
        settle()
        self.generation = object()
        gate = self._gate
        if gate is None:
            self._pool.close()
            return
        gate.under(self._close, gate)

    def _close(self, gate: Any) -> None:
        self._pool.close()
        # Again: one may have been opened meanwhile.
        self._drop_piece()
        gate.news.tell()
        gate.demand.tell()

    def void(self) -> None:
        """Drops what is held, opened or on its way; it goes on with what is asked for from then on. From any thread, of
        tasks from that of their loop."""
        gate = self._gate
        if gate is not None:
            # Else nothing was asked for yet.
            gate.under(self._void)

    def _void(self) -> None:
        self._pool.void(now())
        self._drop_piece()

    def _drop_piece(self) -> None:
        self.generation = object()
        self.piece = EMPTY

    @property
    def held(self) -> int:
        gate, pool = self._current_gate(), self._pool
        return gate.under(pool.held_now, now())  # type: ignore[no-any-return]

    def take_from(self, piece: Piece) -> int | None:
        """An id of a piece; None: it is at its end, or too old, or void."""
        try:
            number = piece.pop()
        except IndexError:
            return None
        if now() < piece.good_until and own[0] and piece.generation is self.generation:
            return number
        return None

    def take_held(self) -> int | None:
        """An id, if one is held."""
        while True:
            piece = self.piece
            number = self.take_from(piece)
            if number is not None:
                return number
            gate = self._current_gate()
            if not gate.under(self._open_held, piece, gate):
                return None

    async def next(self, piece: Piece) -> int:
        """An id of a piece behind that one, which is used up; waits for one if none is held."""
        deadline: float | None = None
        while True:
            deadline = await self._until(functools.partial(self._open_next, piece), deadline)
            piece = self.piece
            number = self.take_from(piece)
            if number is not None:
                return number
            # Others took all of it. The time of this caller goes on.

    async def take(self, count: int) -> list[int]:
        """So many ids, and waits for them if they are not held."""
        deadline: float | None = None
        while True:
            ids = self.take_list(count)
            if ids is not None:
                return ids
            deadline = await self._until(functools.partial(self._holds, count), deadline)

    def take_list(self, count: int) -> list[int] | None:
        """So many ids, if they are held."""
        gate = self._current_gate()
        generation, pool = self.generation, self._pool
        batch: Batch | None = gate.under(self._take_of, pool, count, gate)
        # Last, as with one by one: the process may have been stopped, or forked.
        if batch is None or now() >= batch.good_until or not own[0] or generation is not self.generation:
            return None
        return batch.ids

    # In turn, as a rule (:class:`.link.mutex.Courtesy`).

    def _take_of(self, pool: Pool, count: int, gate: Any) -> Batch | None:
        pool.check()
        batch = pool.take(count, now())
        self._ask(gate)
        return batch

    def _holds(self, count: int, gate: Any) -> bool:
        holds = self._pool.holds(count, now())
        self._ask(gate)
        return holds

    def _open_held(self, used_up: Piece, gate: Any) -> bool:
        self._pool.check()
        return self._open_next(used_up, gate)

    def _open_next(self, used_up: Piece, gate: Any) -> bool:
        if self.piece is not used_up:
            # Another caller has opened one.
            return True
        # First: what is opened of another pool than that of this generation is void.
        generation = self.generation
        piece = self._pool.open(now())
        self._ask(gate)
        if piece and self.piece is used_up:
            self.piece = Piece(piece.pop, piece.good_until, generation)
        return self.piece is not used_up

    def _current_gate(self) -> Any:
        settle()
        if sys.is_finalizing():
            # No thread would bring any.
            raise Closed
        gate = self._gate
        if gate is None or not gate.is_current():
            # An event loop that is over took its tasks along; or a handler has forked while it was made.
            gate = self._gate = self._make_gate()
        return gate

    async def _until(self, look: Callable[[Any], bool], deadline: float | None) -> float | None:
        """Looks until it is there, as often as there is news, for as long as a caller waits; until when that is, if it has
        waited already."""
        while True:
            # Another one in a child that a signal's handler forked meanwhile.
            gate = self._current_gate()
            seen = gate.news.last
            if gate.under(self._look, look, gate, deadline is None):
                return deadline
            if deadline is None:
                deadline = time.monotonic() + self._wait
            failure = self._pool.failure
            left = deadline - time.monotonic()
            if failure and (left <= 0 or not failure.retryable):
                raise failure.again()
            if left <= 0:
                raise Timeout(",".join(self._fleet.options.servers), self._wait, "wait")
            await gate.news.wait(seen, left)

    def _look(self, look: Callable[[Any], bool], gate: Any, is_first: bool) -> bool:
        self._pool.check()
        if is_first and self._pool.failure and not self._pool.failure.retryable:
            # A failure of before is no answer to this caller: it is tried anew.
            self._pool.failure = None
        return look(gate)

    def _ask(self, gate: Any) -> None:
        """Wakes the refill if it is time for more."""
        if not self._pool.wants():
            return
        if not gate.is_fed:
            # Without this object: one that is dropped ends its refill.
            refill = _refill(self._fleet, self._pool, gate)
            gate.feed(functools.partial(self._fleet.current_port().spawn, refill, "xuid-prefetch"))
        gate.demand.tell()


async def _refill(fleet: Fleet, pool: Pool, gate: Any) -> None:
    """Keeps the pool filled until it is closed."""
    if not gate.begin_refill():
        return
    try:
        await _keep_filled(fleet, pool, gate)
    finally:
        # Whatever ended it, as a stranger that cancels all tasks: those that wait have another one begun.
        gate.end_refill()


async def _keep_filled(fleet: Fleet, pool: Pool, gate: Any) -> None:
    retries = fleet.retries()
    while True:
        seen = gate.demand.last
        count = gate.under(pool.refill, now(), fleet.max_count)
        if pool.closed or not gate.is_current():
            return
        if not count:
            if pool.is_full:
                # Who asked met another one's change, and found none.
                gate.news.tell()
            await gate.demand.wait(seen)
            continue
        asked = now()
        pause = 0.0
        try:
            # Waiting for a connection makes no id older.
            await fleet.link(fleet.options.timeout)
            asked = now()
            runs = await fleet.attempt(wire.runs(count, "any", _WAIT), min(pool.max_age, fleet.options.timeout))
        except XuidError as error:
            pause = fleet.pause(retries, error)
            gate.under(pool.fail, error, count)
        else:
            retries = fleet.retries()
            gate.under(pool.put, runs, asked, now())
        gate.news.tell()
        if pause:
            await fleet.current_port().sleep(pause)


def _drop(prefetch: Any) -> None:
    """At the end of an object that was not closed, and may not have been made."""
    try:
        prefetch.close()
    except (AttributeError, RuntimeError, TypeError):
        # The interpreter, or the event loop, is over.
        pass


class Prefetch(Iterator[int]):
    """Ids without a round trip, for any number of threads; made by :meth:`Client.prefetch`.

    It is an iterator without an end: ``next(ids)`` hands out an id, and waits for one only where none is held. How many are
    held follows the use: ``least`` at first, up to ``most`` in a hot loop, and none are fetched while none are taken.

    A process that forks need not care: the child drops what its parent held, connects by itself, and goes on drawing from
    this object, whoever forked it (multiprocessing, gunicorn; uWSGI and other forks past Python while nobody draws: else Python
    itself may stand still there). A virtual machine, or a process, that is resumed twice from one snapshot of its memory hands
    out the same held ids in both: close the prefetch before the snapshot.
    """

    def __init__(self, client: Any, fleet: Fleet, least: int, most: int, max_age: float, wait: float):
        # A client that is dropped is closed.
        self._client = client
        self._source = Source(fleet, threads.Gate, least, most, max_age, wait)

    def __next__(self) -> int:
        source = self._source
        # As Source.take_from, without the cost of a call.
        piece = source.piece
        try:
            number = piece[0]()
            if now() < piece[1] and own[0] and piece[2] is source.generation:
                return number
        except IndexError:
            pass
        return threads.run(source.next(piece))

    def try_next(self) -> int | None:
        """An id if one is held, without waiting. None asks for more in the background."""
        return self._source.take_held()

    def take(self, count: int) -> list[int]:
        """So many ids at once, up to ``most``: the fastest for many."""
        ids = self._source.take_list(count)
        return threads.run(self._source.take(count)) if ids is None else ids

    @property
    def held(self) -> int:
        """How many ids are held, without those of the piece in use."""
        return self._source.held

    def close(self) -> None:
        """Drops what is held. The client goes on."""
        self._source.close()

    def __enter__(self) -> Prefetch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        _drop(self)


class AsyncPrefetch:
    """Ids without a round trip, for the tasks of one event loop; made by :meth:`AsyncClient.prefetch`. As
    :class:`Prefetch`, with ``await ids.next()`` and ``async for``."""

    def __init__(self, client: Any, fleet: Fleet, least: int, most: int, max_age: float, wait: float):
        # A client that is dropped is closed.
        self._client = client
        self._source = Source(fleet, tasks.Gate, least, most, max_age, wait)

    async def next(self) -> int:
        """An id. A caller that is cancelled loses none."""
        piece = self._source.piece
        number = self._source.take_from(piece)
        return await self._source.next(piece) if number is None else number

    def __aiter__(self) -> AsyncPrefetch:
        return self

    async def __anext__(self) -> int:
        return await self.next()

    def try_next(self) -> int | None:
        """An id if one is held, without waiting: in a loop without an await the refill gets no turn."""
        return self._source.take_held()

    async def take(self, count: int) -> list[int]:
        """So many ids at once, up to ``most``."""
        return await self._source.take(count)

    @property
    def held(self) -> int:
        """How many ids are held, without those of the piece in use."""
        return self._source.held

    def close(self) -> None:
        """Drops what is held. The client goes on."""
        self._source.close()

    async def __aenter__(self) -> AsyncPrefetch:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        _drop(self)
