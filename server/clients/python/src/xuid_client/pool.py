"""What is held ahead of need, and how much to ask for. No threads, no tasks, no connection; it is told the time.

One thread at a time changes it, as a rule, so that nothing is wasted and all figures are right. Where a thread comes in the
middle of another one's change (:class:`.link.mutex.Courtesy`) the invariants hold.

Invariants

- P1 An id is in one place: in the pool, in an opened piece, or handed out. Every move is a take, and nothing is given back.
- P2 Nothing leaves the pool at ``max_age`` or later after it was asked for, and a piece says until when its ids are good.
- P3 A source that nobody takes from is not refilled: a quiet user wastes few ids.
- P4 Once it is void, nothing leaves it that was asked for before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Callable, NamedTuple

from .errors import Closed, UsageError, XuidError
from .values import Run

#: What is held shall last so long, in seconds, though round trips be shorter: in a hot loop a thread that waits for the
#: interpreter gets it after 5 ms, and a reply passes two of them.
_LEAD = 0.05

#: Round trips that it shall last, and the most of time. Half of it is used up when more is asked for.
_ROUND_TRIPS = 4
_LONGEST_LEAD = 1.0

#: How much the level may grow from one refill to the next. One greedy moment must not fetch ids for an hour.
_GROWTH = 4

#: Ids that are opened at once.
PIECE = 1_024

#: No id is handed out later than so many seconds after its reply arrived.
AGE_CAP = 2.0


class Piece(NamedTuple):
    """Ids that any thread may take, one by one: ``pop`` takes one, atomically, and raises IndexError at the end."""

    pop: Callable[[], int]
    good_until: float
    #: Of its source: what was opened in another one is void.
    generation: object = None


class Batch(NamedTuple):
    """Ids that one caller takes."""

    ids: list[int]
    good_until: float


#: Nothing.
EMPTY = Piece(deque().popleft, 0.0)


class _Held(NamedTuple):
    ids: range
    good_until: float
    #: How many ids had been put into the pool with these.
    end: int


class Pool:
    """The ids of one prefetch."""

    def __init__(self, least: int, most: int, max_age: float) -> None:
        if not 1 <= least <= most:
            raise UsageError(f"least is {least!r} and most {most!r}: 1 <= least <= most is allowed")
        if not 0.001 <= max_age <= AGE_CAP:
            raise UsageError(f"max_age is {max_age!r} s, and 0.001 to {AGE_CAP:g} are allowed")
        self.least, self.most, self.max_age = least, most, max_age
        self.closed = False
        #: Why the last refill failed, if none succeeded since.
        self.failure: XuidError | None = None
        #: Oldest first. Another object for what comes after a close, or when all is void: what was taken out before that, and
        #: put back, is not found.
        self._runs: deque[_Held] = deque()
        #: How many ids were ever put in.
        self._end = 0
        self._level = least
        #: Somebody took, and so little is left that it is time for more (P3).
        self._demand = False
        #: The longest list that a caller waits for.
        self._needed = 0
        #: The shortest round trip lately: what waits in line at a busy server is no reason to ask it for more.
        self._round_trip = 0.0
        self._taken = 0
        self._looked: float | None = None
        #: The most ids of one request, which a server that has not so many lowers.
        self._request = most
        #: What was asked for until then is void (P4).
        self._void_until = float("-inf")

    @property
    def held(self) -> int:
        """Ids in the pool. Some of them may be too old. They are counted by what lies there: an exception of a signal's
        handler may come in the middle of a take, and wastes what was on its way."""
        runs = self._runs
        try:
            first, last = runs[0], runs[-1]
        except IndexError:
            return 0
        return len(first.ids) + max(0, last.end - first.end)

    def close(self) -> None:
        """Drops all."""
        self.closed = True
        self._runs = deque()

    def void(self, now: float) -> None:
        """Drops what is held and what is on its way; it goes on with what is asked for from then on (P4)."""
        self._void_until = now
        self._runs = deque()

    def check(self) -> None:
        if self.closed:
            raise Closed

    def open(self, now: float) -> Piece | None:
        """The next piece; None: there is none."""
        self._drop_old(now)
        front, good_until = self._front(PIECE)
        if not front:
            self._demand = True
            return None
        return Piece(deque(front).popleft, good_until)

    def held_now(self, now: float) -> int:
        """How many ids could be taken."""
        self._drop_old(now)
        return self.held

    def take(self, count: int, now: float) -> Batch | None:
        """So many ids; None: there are fewer."""
        if not 1 <= count <= self.most:
            raise UsageError(f"count is {count!r}, and 1 to {self.most} (most) are allowed")
        if not self.holds(count, now):
            return None
        front, good_until = self._front(count)
        ids = list(front)
        while len(ids) < count:
            front, until = self._front(count - len(ids))
            if not front:
                # Another one took, or closed, in the middle. These are wasted.
                return None
            ids.extend(front)
            good_until = min(good_until, until)
        return Batch(ids, good_until)

    def holds(self, count: int, now: float) -> bool:
        """Whether there are so many ids. If not, more are asked for."""
        self._drop_old(now)
        if self.held >= count:
            return True
        # Before the word that the refill waits for.
        self._needed = max(self._needed, count)
        self._demand = True
        return False

    def wants(self) -> bool:
        """Whether it is time for a refill."""
        return self._demand and not self.closed

    def refill(self, now: float, max_count: int) -> int:
        """How many ids to ask for; 0: none."""
        self._drop_old(now)
        if not self.wants():
            return 0
        self._demand = False
        self._look(now)
        # A caller that finds it too little yet says so again.
        needed, self._needed = self._needed, 0
        self._level = min(max(self._level, needed), self.most)
        return max(0, min(self._level - self.held, self._request, max_count))

    @property
    def is_full(self) -> bool:
        return self.held >= self._level

    def put(self, runs: Iterable[Run], asked: float, now: float) -> None:
        """What was asked for then has come."""
        # First: what is closed, or void, behind the looks below is not put into what takes its place.
        held = self._runs
        if self.closed:
            return
        round_trip = now - asked
        # It may get longer, slowly: by an eighth a refill.
        slower = self._round_trip * 1.125 + 1e-6
        self._round_trip = min(round_trip, slower) if self._round_trip else round_trip
        self._request = min(2 * self._request, self.most)
        self.failure = None
        if asked <= self._void_until:
            # Those who wait for it wait on.
            self._demand = True
            return
        for run in runs:
            self._end += run.count
            held.append(_Held(run.ids, asked + self.max_age, self._end))
        if self.held < self._level // 2:
            # The server had fewer, or the demand grew meanwhile.
            self._demand = True

    def fail(self, error: XuidError, count: int) -> None:
        """A refill of so many ids failed."""
        self.failure = error
        # Fewer may be had.
        self._request = max(count // 2, self.least)
        # Where the failure will not pass by itself the next caller that waits asks again.
        self._demand = error.retryable

    def _front(self, most: int) -> tuple[range, float]:
        """Takes ids of the oldest run, and until when they are good; an empty range: there is no run."""
        runs = self._runs
        try:
            ids, good_until, end = runs.popleft()
        except IndexError:
            return range(0), 0.0
        if len(ids) > most:
            runs.appendleft(_Held(ids[most:], good_until, end))
            ids = ids[:most]
        self._taken += len(ids)
        if self.held <= self._level // 2:
            self._demand = True
        return ids, good_until

    def _drop_old(self, now: float) -> None:
        runs = self._runs
        while runs:
            try:
                if runs[0].good_until > now:
                    return
                runs.popleft()
            except IndexError:
                return
            # It was too much.
            self._level = max(self._level // 2, self.least)

    def _look(self, now: float) -> None:
        """The level follows the use."""
        taken, self._taken = self._taken, 0
        looked, self._looked = self._looked, now
        if looked is None:
            return
        # A microsecond at least, so that two looks at once do not make an endless rate.
        rate = taken / max(now - looked, 1e-6)
        lead = min(max(_LEAD, _ROUND_TRIPS * self._round_trip), _LONGEST_LEAD, self.max_age / 4)
        # A user that was away for long is a new one; one that only pauses between bursts is not.
        least = 0 if now - looked >= self.max_age else self._level // 2
        level = min(max(int(rate * lead), least), self._level * _GROWTH)
        self._level = min(max(level, self.least), self.most)
