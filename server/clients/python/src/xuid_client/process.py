"""What belongs to one process: its clock, and what it may not share with a child that it forks.

A child has the memory of its parent: the same prefetched ids, and the same connection. So whatever holds either is kept
here, and is told in the child, before the child's own code goes on. Python does that for :func:`os.fork`, and so for
multiprocessing and gunicorn; uWSGI has a hook of its own. A fork that a library makes past Python is not noticed.

What tells them is code of Python, in which a signal's handler would run: one that draws would get an id of the parent, and one
that raises would leave some untold. So the thread that forks has its signals blocked until all are told. Those that come
meanwhile are handled then.

Other code of the child may run before: hooks that the program registered earlier, and the ends of what other threads had in
a threading.local. So before the fork all that is taken without a look here is closed, and what looks (:func:`settle`)
tells all there.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import signal
import sys
import threading
import time
import traceback
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


class _Forking(threading.local):
    """Of a thread that forks."""

    #: What it had blocked before; None: it does not fork.
    blocked: set[Any] | None = None
    #: The process that it forks, until all are told; 0: it does not fork.
    parent = 0
    #: All were told in this child by a look, before its turn came.
    has_settled = False


_forking = _Forking()

#: The threads that fork.
_forks: dict[int, bool] = {}

#: The process that loaded this, and the child that all were told of last.
_loaded, _told = os.getpid(), 0


def is_forking() -> bool:
    """Whether any thread is about to fork: what is opened now would be open in the child."""
    return bool(_forks)


def settle() -> None:
    """In a child that was not told yet: tells all."""
    if _forking.parent and _forking.parent != os.getpid():
        _in_child()
        _forking.has_settled = True


def _hold_signals() -> None:
    if not hasattr(signal, "pthread_sigmask"):
        return
    if _forking.blocked is None:
        # By itself: what a call returns is lost where a handler raises at its end.
        _forking.blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _free_signals() -> None:
    """In parent and child. What came meanwhile is handled in here."""
    if _forking.blocked is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.blocked)
        _forking.blocked = None


def _before() -> None:
    # First: what is opened behind this sees it.
    _forks[threading.get_ident()] = True
    _forking.parent, _forking.has_settled = os.getpid(), False
    with contextlib.ExitStack() as told:
        for holder in _all_holders():
            if hasattr(holder, "before_fork"):
                told.callback(holder.before_fork)


def _in_parent() -> None:
    _forking.parent = 0
    _forks.pop(threading.get_ident(), None)
    with contextlib.ExitStack() as told:
        for holder in _all_holders():
            if hasattr(holder, "forked"):
                told.callback(holder.forked)


def _note_told() -> None:
    global _told
    _forking.parent, _told = 0, os.getpid()


def _in_child() -> None:
    _forks.clear()
    # Not every embedding says before a fork that it will.
    _hold_signals()
    # Each of them, whatever becomes of another one: a thread of the parent may have been in the middle of anything.
    with contextlib.ExitStack() as told:
        # Last: the end of an object that is collected meanwhile may draw.
        told.callback(_note_told)
        for holder in _all_holders():
            told.callback(holder.after_fork)


def _in_forked() -> None:
    """In a child of Python's own. What was begun there behind :func:`settle` is the child's, and goes on."""
    has_settled, _forking.has_settled = _forking.has_settled, False
    if not has_settled:
        _in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_forked)
    # Once more: a signal that another thread took is handled in the one that forks though it has it blocked, and may raise there.
    os.register_at_fork(after_in_parent=_in_parent)
    # Of those for before, the last one is called first.
    os.register_at_fork(before=_hold_signals)
    for _ in range(2):
        # Once more, for what a handler that raises in the first one keeps it from.
        os.register_at_fork(after_in_child=_free_signals, after_in_parent=_free_signals)


def _in_worker() -> None:
    """In a child of an embedding that says nothing before it forks, nor in the parent. It is called as well in a process
    that was not forked: without a master process the first worker is the one that loaded the program. With one each was
    forked, also one of the same number, as the first process of a namespace is."""
    process = os.getpid()
    if process == _told or (process == _loaded and not sys.modules["uwsgi"].masterpid()):
        return
    try:
        _in_child()
    except Exception:
        # The other hooks of the chain are the program's.
        traceback.print_exc()
    finally:
        _free_signals()


def _tell_of_workers() -> None:
    """uWSGI tells Python of its forks only where it is asked to. What it calls in each worker it always calls."""
    # Within uWSGI it is there from the beginning. Elsewhere that is the name of a stranger's module.
    uwsgi: Any = sys.modules.get("uwsgi")
    if not hasattr(uwsgi, "masterpid"):
        return
    had = {name: getattr(uwsgi, name, None) for name in ("post_fork_hook", "spooler", "mule_msg_hook")}
    is_new = "uwsgidecorators" not in sys.modules
    before = had.pop("post_fork_hook")
    try:
        chain = importlib.import_module("uwsgidecorators").postfork_chain
    except Exception:
        # That module wants a master process. Where it is imported later it has a list of its own, and this is lost.
        def hook() -> None:
            _in_worker()
            if before is not None:
                before()

        uwsgi.post_fork_hook = hook
        return
    # First: what others have there may draw, may raise, and does not return in a mule.
    chain.insert(0, _in_worker)
    if is_new:
        # It has put its own in their place.
        if before is not None:
            chain.append(before)
        for name, value in had.items():
            if value is not None:
                setattr(uwsgi, name, value)


_tell_of_workers()
