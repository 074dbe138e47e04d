"""A lock that stays whole in a thread where handlers of signals run."""

from __future__ import annotations

import threading
from typing import Any, Callable, TypeVar

T = TypeVar("T")


class Mutex:
    """A lock that no exception leaves locked.

    One that a signal's handler raises may land after any call: also between that which takes a lock and the block that gives
    it back. Here taking lies within that block, and giving back is the first call of its end. The lock knows by its thread
    whether it was taken.

    Reentrant: the collector of cycles ends a client that was dropped in whatever thread it runs, and a handler may call.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._acquire, self._release = self.lock.acquire, self.lock.release

    def under(self, act: Callable[..., T], *args: Any) -> T:
        """What that returns, with the lock held."""
        try:
            self._acquire()
            return act(*args)
        finally:
            try:
                self._release()
            except RuntimeError:
                # It was not taken.
                pass
