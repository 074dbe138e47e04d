"""What waits, for threads: it blocks."""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Callable, TypeVar

from ..errors import Closed, ConnectionLost, Timeout, Unreachable, XuidError
from ..options import Options
from ..process import tell_of_forks
from .fleet import STRAGGLERS
from .mutex import Courtesy
from .thread_link import LONGEST_WAIT, ThreadLink, Waiter, dial

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Drives a coroutine none of whose awaits suspends, because all that waits in it blocks instead."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("something suspended where it should have blocked")


def start(name: str, work: Callable[..., object], *args: Any) -> None:
    """A thread for that; a RuntimeError: none is to be had."""
    try:
        threading.Thread(target=work, args=args, name=name, daemon=True).start()
    except RuntimeError as error:
        # It waits until the thread has begun. An exception of a signal's handler that comes in the middle of that ends in
        # another one, of a lock.
        raise error.__context__ or error from None


class Threads:
    """What waits, for threads."""

    def __init__(self) -> None:
        self._turns = _Turns()
        self._closing = News()
        self._is_open = self._closing.last

    def is_current(self) -> bool:
        # Else a handler has forked while it was made, and it pauses for nobody.
        return not self._closing.is_abandoned

    async def in_turn(self, servers: str, work: Callable[[], Coroutine[Any, Any, T]], limit: float) -> T:
        return self._turns.run(servers, work, limit)

    async def dial(self, server: str, options: Options, limit: float) -> ThreadLink:
        # Not by this thread: a name may be looked up for longer.
        outcome = _dial_each([server], options, limit).get(server)
        if isinstance(outcome, ThreadLink):
            return outcome
        raise outcome or Unreachable(server, f"no answer within {limit:.3g} s")

    async def dial_all(self, options: Options, limit: float) -> dict[str, ThreadLink | XuidError]:
        return _dial_each(options.servers, options, limit)

    async def sleep(self, seconds: float) -> None:
        await self._closing.wait(self._is_open, seconds)

    def wake(self) -> None:
        self._closing.tell()

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        try:
            start(name, run, coroutine)
        except RuntimeError:
            coroutine.close()
            raise


def _dial_each(servers: Sequence[str], options: Options, limit: float) -> dict[str, ThreadLink | XuidError]:
    """Dials them at once, each in a thread of its own; what came of it in time."""
    outcomes: queue.SimpleQueue[tuple[str, ThreadLink | XuidError]] = queue.SimpleQueue()
    is_over = threading.Event()

    def begin(server: str) -> None:
        try:
            outcome: ThreadLink | XuidError = dial(server, options, limit)
        except XuidError as error:
            outcome = error
        outcomes.put((server, outcome))
        if is_over.is_set():
            end_rest()

    def end_rest() -> None:
        """Of what came too late. Each outcome is either taken out here, or in time below."""
        with contextlib.suppress(queue.Empty):
            while True:
                _, outcome = outcomes.get_nowait()
                if isinstance(outcome, ThreadLink):
                    outcome.end(Closed())

    for server in servers:
        try:
            start("xuid-dial", begin, server)
        except RuntimeError as error:
            outcomes.put((server, Unreachable(server, str(error))))
    found: dict[str, ThreadLink | XuidError] = {}
    deadline = time.monotonic() + limit + STRAGGLERS
    while len(found) < len(servers):
        try:
            server, outcome = outcomes.get(timeout=max(0.0, min(deadline - time.monotonic(), LONGEST_WAIT)))
        except queue.Empty:
            break
        found[server] = outcome
        if isinstance(outcome, ThreadLink):
            deadline = min(deadline, time.monotonic() + STRAGGLERS)
    is_over.set()
    # Those that came between the last look and the word.
    end_rest()
    return found


class _Turns:
    """Work that is done one at a time, by a thread that is there as long as there is some.

    No caller does it by itself: a signal's handler that comes in the middle may call, and have to wait for it; and the
    exception that one raises would leave it half done, with the others waiting.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, Callable[[], Coroutine[Any, Any, Any]], Waiter]] = deque()
        #: Whether a thread will look at what waits; and held by that thread.
        self._is_served = False
        self._serves = threading.Lock()
        #: The caller whose work is being done.
        self._served: tuple[str, Waiter] | None = None
        tell_of_forks(self)

    def run(self, servers: str, work: Callable[[], Coroutine[Any, Any, T]], limit: float) -> T:
        """What it returns, if that comes until then. Else the work goes on, for those behind it."""
        begin, waiter = time.monotonic(), Waiter()
        self._waiting.append((servers, work, waiter))
        if not self._is_served:
            # Two that come at once begin two; the second one finds nothing.
            try:
                start("xuid-turn", self._serve)
            except RuntimeError as error:
                raise Unreachable(servers, str(error)) from None
        if not waiter.wait(limit):
            raise Timeout(servers, max(0.0, limit - begin))
        return waiter.outcome()  # type: ignore[no-any-return]

    def after_fork(self) -> None:
        """In a child: the thread is the parent's."""
        waiting = [(servers, waiter) for servers, _, waiter in self._waiting]
        for servers, waiter in ([self._served] if self._served else []) + waiting:
            waiter.reject(ConnectionLost(servers, "this process was forked"))

    def _serve(self) -> None:
        with self._serves:
            try:
                while self._waiting:
                    self._is_served = True
                    while self._waiting:
                        self._serve_one()
                    # Before the last look: a caller that comes after it begins another thread.
                    self._is_served = False
            finally:
                self._is_served = False

    def _serve_one(self) -> None:
        servers, work, waiter = self._waiting.popleft()
        try:
            self._served = servers, waiter
            waiter.resolve(run(work()))
        except BaseException as error:
            # Whatever it is: the caller's, and not this thread's.
            waiter.reject(error)
        self._served = None


class News:
    """What threads wait for. It has no lock that the handler of a signal could keep from the others, in the middle of it."""

    def __init__(self) -> None:
        #: Another object with each news.
        self.last = object()
        #: Those that wait; a dict for its order.
        self._waiters: dict[Waiter, None] = {}
        self.is_abandoned = False
        tell_of_forks(self)

    async def wait(self, seen: object, limit: float | None = None) -> None:
        """Until there is news behind those, or so many seconds are over."""
        waiter = Waiter()
        try:
            # Before the look: news that come after it are told.
            self._waiters[waiter] = None
            if self.last is seen and not self.is_abandoned:
                waiter.wait(math.inf if limit is None else time.monotonic() + limit)
        finally:
            self._waiters.pop(waiter, None)

    def tell(self) -> None:
        self.last = object()
        for waiter in list(self._waiters):
            waiter.resolve(None)
            self._waiters.pop(waiter, None)

    def after_fork(self) -> None:
        """In a child: others take their place. A caller that waits here, and whose handler forked, goes there."""
        self.is_abandoned = True
        self.tell()


class Gate:
    """Where callers and the refill of a prefetch meet."""

    def __init__(self) -> None:
        self.under = Courtesy().under
        #: For the callers: ids, or why there are none. For the refill: that more are wanted.
        self.news, self.demand = News(), News()
        #: Held by the refill: one at a time.
        self._fed = threading.Lock()

    def is_current(self) -> bool:
        # A part of a parent's pauses for nobody.
        return not (self.news.is_abandoned or self.demand.is_abandoned)

    @property
    def is_fed(self) -> bool:
        """Whether a refill runs."""
        return self._fed.locked()

    def feed(self, spawn: Callable[[], None]) -> None:
        """Begins one. Of two callers at once each does, and one of the two ends at once."""
        spawn()

    def begin_refill(self) -> bool:
        """Whether it is the only one. None begins for a gate of the parent in a child."""
        return not self.demand.is_abandoned and self._fed.acquire(False)

    def end_refill(self) -> None:
        self._fed.release()
        self.news.tell()
