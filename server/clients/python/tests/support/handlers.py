"""A signal's handler at a certain place of a call."""

import signal
import sys

from xuid_client import XuidError


class Interrupt(TimeoutError):
    """Of a signal's handler. It may land after any call into C, and where a function of Python begins. It is an OSError, as
    that of many an alarm."""


def handled_at(place, handler, call):
    """What a call returns, with a handler run at that place of it as if a signal came there; and whether there was one."""
    seen, ran = 0, False

    def look(_, event, __):
        nonlocal seen, ran
        if event in ("call", "c_return"):
            seen += 1
            if seen == place:
                sys.setprofile(None)
                ran = True
                handler()

    sys.setprofile(look)
    try:
        found = call()
    except XuidError:
        found = None
    finally:
        sys.setprofile(None)
    return found, ran


def interrupted_at(place, call):
    """Whether the call had so many places where a handler may raise, and was interrupted at the last of them."""

    def handler():
        raise Interrupt

    try:
        handled_at(place, handler, call)
    except Interrupt:
        return True
    return False


def handles(test, handler):
    """Has SIGUSR1 handled by that until the test ends."""
    test.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, handler))
