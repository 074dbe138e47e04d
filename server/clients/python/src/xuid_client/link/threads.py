"""What waits, for threads: it blocks."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..errors import Closed, Unreachable, XuidError
from ..options import Options
from .fleet import STRAGGLERS
from .thread_link import LONGEST_WAIT, ThreadLink, dial

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Drives a coroutine none of whose awaits suspends, because all that waits in it blocks instead."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("something suspended where it should have blocked")


class Threads:
    """What waits, for threads."""

    def __init__(self) -> None:
        self.turn = _Turn()

    def is_current(self) -> bool:
        return True

    async def dial(self, server: str, options: Options, limit: float) -> ThreadLink:
        return dial(server, options, limit)

    async def dial_all(self, options: Options, limit: float) -> dict[str, ThreadLink | XuidError]:
        outcomes: queue.SimpleQueue[tuple[str, ThreadLink | XuidError]] = queue.SimpleQueue()
        is_over = threading.Event()

        def begin(server: str) -> None:
            try:
                outcome: ThreadLink | XuidError = dial(server, options, limit)
            except XuidError as error:
                outcome = error
            outcomes.put((server, outcome))
            if is_over.is_set() and isinstance(outcome, ThreadLink):
                outcome.end(Closed())

        for server in options.servers:
            try:
                threading.Thread(target=begin, args=(server,), name="xuid-dial", daemon=True).start()
            except RuntimeError as error:
                outcomes.put((server, Unreachable(server, str(error))))
        found: dict[str, ThreadLink | XuidError] = {}
        deadline = time.monotonic() + limit + STRAGGLERS
        while len(found) < len(options.servers):
            try:
                server, outcome = outcomes.get(timeout=max(0.0, min(deadline - time.monotonic(), LONGEST_WAIT)))
            except queue.Empty:
                break
            found[server] = outcome
            if isinstance(outcome, ThreadLink):
                deadline = min(deadline, time.monotonic() + STRAGGLERS)
        is_over.set()
        # Those that came between the last look and the word.
        while not outcomes.empty():
            _, outcome = outcomes.get()
            if isinstance(outcome, ThreadLink):
                outcome.end(Closed())
        return found

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        try:
            threading.Thread(target=run, args=(coroutine,), name=name, daemon=True).start()
        except RuntimeError:
            coroutine.close()
            raise


class _Turn:
    """A lock, as coroutines take it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class Gate:
    """A lock, and news for those that wait."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: Whether a refill runs that its news come from.
        self.is_fed = False

    def is_current(self) -> bool:
        return True

    def __enter__(self) -> None:
        self._changed.acquire()

    def __exit__(self, *_: object) -> None:
        self._changed.release()

    async def wait(self, limit: float | None = None) -> None:
        """Until there is news, or so many seconds are over, an hour at most. With the lock held, which is free meanwhile."""
        self._changed.wait(None if limit is None else min(limit, LONGEST_WAIT))

    def notify(self) -> None:
        self._changed.notify_all()
