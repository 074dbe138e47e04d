"""What belongs to one process: its clock, and what it may not share with a child that it forks.

A child has the memory of its parent: the same prefetched ids, and the same connection. So whatever holds either is kept
here, and is told in the child, before the child's own code goes on. Python does that for :func:`os.fork`, and so for
multiprocessing, gunicorn and uWSGI; a fork that a library makes past Python is not noticed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
import weakref
from typing import Any, Callable

#: Seconds, for the age of ids. On Linux it counts the time in which the machine was suspended.
now: Callable[[], float]
if hasattr(time, "CLOCK_BOOTTIME"):
    now = functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
else:
    now = time.monotonic

_holders: weakref.WeakSet[Any] = weakref.WeakSet()


def tell_of_forks(holder: Any) -> None:
    """Calls ``holder.after_fork()`` in a forked child. No other thread runs there yet, and locks may be held by threads
    that are not there any more."""
    _holders.add(holder)


def _in_child() -> None:
    # Each of them, whatever becomes of another one: a thread of the parent may have been in the middle of anything.
    with contextlib.ExitStack() as told:
        for holder in list(_holders):
            told.callback(holder.after_fork)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
