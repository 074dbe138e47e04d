"""When to try again after a failure: at once where another server is next, after a pause where all had their turn."""

from __future__ import annotations

import random

from ..errors import ConnectionLost, Refused, XuidError

#: The pauses in a row are random up to these, in seconds: the first, doubled each time, up to the longest.
FIRST_PAUSE = 0.02
LONGEST_PAUSE = 2.0

#: The longest that a server's word is believed, in seconds. Asking once more a minute harms no server, and a wrong number
#: of milliseconds would stop a client for weeks.
LONGEST_WORD = 60.0

#: A clock that is behind by no more than so many milliseconds is waited for; ticks last one.
_CLOCK_PATIENCE_MS = 100

#: NOT_READY, WINDOW_LOST, SHUTTING_DOWN, INTERNAL, STORE_AWAY, STORE_BEHIND.
_LACKS_ITSELF = frozenset({0x8010, 0x8013, 0x8014, 0x8015, 0x8016, 0x8017})
_CLOCK_BEHIND = 0x8012

#: The system's: what Python makes up by itself comes the same in all children that were forked past it.
RANDOM = random.SystemRandom()


def leads_elsewhere(error: XuidError) -> bool:
    """Whether another server, if there is one, is asked next: the connection is gone, or what the server lacks is its own
    and may take long. A server that is merely busy is stayed with: its clients would carry the load to the next one."""
    if isinstance(error, Refused):
        if error.status == _CLOCK_BEHIND:
            return error.retry_after_ms > _CLOCK_PATIENCE_MS
        return error.status in _LACKS_ITSELF
    return isinstance(error, ConnectionLost)


class Backoff:
    """Pauses that grow, and that no two clients share."""

    def __init__(self) -> None:
        self._longest = FIRST_PAUSE

    def pause(self) -> float:
        """The next pause, in seconds: anything up to a bound that doubles."""
        pause = RANDOM.uniform(0, self._longest)
        self._longest = min(2 * self._longest, LONGEST_PAUSE)
        return pause


class Retries:
    """The pauses between the attempts of one caller, who has so many servers."""

    def __init__(self, servers: int) -> None:
        self._backoff = Backoff()
        self._others = servers - 1
        self._left = self._others

    def pause(self, error: XuidError, moves: bool) -> float:
        """How long to wait before the next attempt, in seconds; ``moves``: at another server. What a server says about
        itself does not hold for another one, so a failure that leads there costs no pause until all of them failed."""
        if moves and self._left > 0:
            self._left -= 1
            return 0.0
        self._left = self._others
        # The server's word, and a random part on top, so that its clients do not all come back at once.
        return min(error.retry_after_ms / 1_000, LONGEST_WORD) + self._backoff.pause()
