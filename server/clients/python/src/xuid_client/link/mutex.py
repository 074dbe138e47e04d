"""A lock that stays whole in a thread where handlers of signals run."""

from __future__ import annotations

import sys
import threading
from typing import Any, Callable, TypeVar

from ..process import tell_of_forks

T = TypeVar("T")

#: How long it is waited for at once, in seconds: a wait that a fork interrupts goes on in the child for as long.
_TURN = 0.1

#: How long a courtesy is waited for, in seconds: while so many threads that compute take the interpreter in turn.
_MOMENT = 0.02


class Mutex:
    """A lock that no exception leaves locked.

    One that a signal's handler raises may land after any call: also between that which takes a lock and the block that gives
    it back. Here taking lies within that block, and giving back is the first call of its end. The lock knows by its thread
    whether it was taken.

    Reentrant: the collector of cycles ends a client that was dropped in whatever thread it runs, and a handler may call.

    In a forked child it is abandoned: whoever holds what it guards has a new one made. It may be held for ever by a thread
    that is not there, so what a handler's fork interrupted goes on without it. No other thread uses what it guards there.
    The same holds at the end of the interpreter, which stops daemon threads wherever they are.
    """

    def __init__(self) -> None:
        lock = threading.RLock()
        self._acquire, self._release = lock.acquire, lock.release
        self.is_abandoned = False
        tell_of_forks(self)

    def after_fork(self) -> None:
        self.is_abandoned = True

    def under(self, act: Callable[..., T], *args: Any) -> T:
        """What that returns, with the lock held."""
        try:
            self._take()
            return act(*args)
        finally:
            try:
                self._release()
            except RuntimeError as error:
                # It was not taken; or a signal's handler raised this one, which has a frame, behind it.
                if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                    raise

    def _take(self) -> None:
        while not self._acquire(True, _TURN):
            if self.is_abandoned or sys.is_finalizing():
                break


class Courtesy(Mutex):
    """A lock that is waited for a moment, and gone on without then.

    A signal's handler that comes where its thread has the lock may take long, or wait for one that wants it. So what this one
    guards is right without it, too: it spares waste, as when two callers take what is enough for one.
    """

    #: The one that has it took longer than a moment.
    _is_kept = False

    def _take(self) -> None:
        if self._acquire(False) or (not self._is_kept and self._acquire(True, _MOMENT)):
            self._is_kept = False
        else:
            # Those that come until it is given back wait no moment each.
            self._is_kept = True
