"""What belongs to one process: its clock, and what it may not share with a child that it forks.

A child has the memory of its parent: the same prefetched ids, and the same connection. So whatever holds either is kept
here, and is told in the child. Python says that it has forked (:func:`os.fork`, multiprocessing, gunicorn); a library that
forks past it, as uWSGI does, says nothing, and other code of a child may run before this one: hooks that the program
registered earlier, and the ends of what other threads had in a threading.local. So each id that is handed out, and each
call, looks at a word first (:data:`own`), which is lost in a child, whoever forked it.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import signal
import sys
import threading
import time
import weakref
from typing import Any, Callable

#: Seconds, for the age of ids. On Linux it counts the time in which the machine was suspended.
now: Callable[[], float]
if hasattr(time, "CLOCK_BOOTTIME"):
    now = functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
else:
    now = time.monotonic

#: Linux from 4.14 on. Python has no name for it.
_MADV_WIPEONFORK = 18

#: How long another thread that tells all is waited for, in seconds: it may be one of the parent's.
_MOMENT = 0.2


class _Number:
    """In place of the word where no page is wiped: the number of the process, which costs a call to the system."""

    _process = 0

    def __getitem__(self, _: int) -> bool:
        return self._process == os.getpid()

    def __setitem__(self, _: int, is_own: bool) -> None:
        self._process = os.getpid()

    def lose(self) -> None:
        self._process = 0


def _refuses(page: Any) -> bool:
    """Whether what no advice is, is refused: an emulator takes all of it for hints, and does nothing (qemu-user before 8)."""
    try:
        page.madvise(-1)
    except OSError:
        return True
    return False


def _word() -> Any:
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            page.madvise(_MADV_WIPEONFORK)
            if _refuses(page):
                return page
    return _Number()


#: ``own[0]`` is true in the process in which all were told last: the system wipes that page in a child.
own: Any = _word()
own[0] = True

#: The number of that process: a sandbox may not wipe what it is asked to.
_told = os.getpid()
_telling = threading.RLock()

_holders: weakref.WeakSet[Any] = weakref.WeakSet()


def tell_of_forks(holder: Any) -> None:
    """Calls ``holder.after_fork()`` in a forked child. Locks may be held there by threads that are not there any more."""
    _holders.add(holder)


def _are_told() -> bool:
    return bool(own[0]) and _told == os.getpid()


def settle() -> None:
    """In a child that was not told yet: tells all."""
    if _are_told():
        return
    is_alone = _telling.acquire(timeout=_MOMENT)
    try:
        # Else another thread did it meanwhile.
        if not _are_told():
            _tell()
    finally:
        if is_alone:
            _telling.release()


def _tell() -> None:
    """A signal's handler that raises would leave some untold, so it waits until all are."""
    masks = hasattr(signal, "pthread_sigmask")
    # By itself: what a call returns is lost where a handler raises at its end.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ()) if masks else None
    try:
        if masks:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        _tell_all()
    finally:
        if blocked is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _tell_all() -> None:
    """What goes past this has left some untold, so the next look tells all again: a RecursionError, since that is less deep;
    no memory; what a handler raises whose signal another thread took."""
    global _told
    wrong: Exception | None = None
    for holder in _all_holders():
        # A thread of the parent may have been in the middle of anything, so whatever becomes of one the others are told. Once
        # more: an error of a handler's comes once.
        for _ in range(2):
            try:
                holder.after_fork()
                break
            except (RecursionError, MemoryError):
                raise
            except Exception as error:
                wrong = error
    # Last: the end of an object that is collected meanwhile may draw.
    _told, own[0] = os.getpid(), True
    if wrong is not None:
        raise wrong


def _all_holders() -> list[Any]:
    while True:
        try:
            return list(_holders)
        except RecursionError:
            # A RuntimeError as well, and it would come again and again.
            raise
        except RuntimeError:
            # Another thread has added to them meanwhile.
            continue


#: The number of the process that forked last.
_forking = os.getpid()


def _forks() -> None:
    global _forking
    _forking = os.getpid()


def _forked() -> None:
    """In a child of Python's own, which may have the number of its parent in another namespace. One of another number may have
    been told already, by a look of what came before: what was begun there goes on."""
    if isinstance(own, _Number) and _forking == os.getpid():
        own.lose()
    settle()


if hasattr(os, "register_at_fork"):
    # At once, so that the child's copy of the connection is closed.
    os.register_at_fork(before=_forks, after_in_child=_forked)
