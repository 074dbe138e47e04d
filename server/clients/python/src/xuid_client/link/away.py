"""Which servers were not there when they were dialed last."""

from __future__ import annotations

import time

#: So long behind a dial that failed a server counts as away, in seconds: it may be back since, and nobody looked.
_AWAY = 30.0

#: A server is dialed again before others, or for want of better, when so many times as long as the dial took have passed: what
#: callers wait for one that is silent is a small part of the time. Never later than it counts as away: this process itself
#: may have been stopped while it dialed.
_TIMES = 6


class Away:
    """By their names; times are those of ``time.monotonic()``. Each change is one step, so it needs no lock."""

    def __init__(self) -> None:
        #: When the dial that failed had ended, and how long it took.
        self._failed: dict[str, tuple[float, float]] = {}

    def note(self, server: str, begin: float) -> None:
        """A dial that began then has failed."""
        end = time.monotonic()
        self._failed[server] = (end, end - begin)

    def clear(self, server: str) -> None:
        """It is there."""
        self._failed.pop(server, None)

    def is_away(self, server: str, now: float) -> bool:
        """Whether it was not there a moment ago."""
        failed = self._failed.get(server)
        return failed is not None and now - failed[0] < _AWAY

    def costs(self, server: str, now: float) -> bool:
        """Whether it took long to find that out, and that was not long ago compared with it."""
        failed = self._failed.get(server)
        return failed is not None and now - failed[0] < min(_AWAY, _TIMES * failed[1])
