"""The servers that a client may use: one link at a time, dialed on demand, and the attempts of a call.

The coroutines of this module serve threads and tasks alike. All that may wait is behind the port (:class:`Port`): a link's
``exchange``, ``in_turn``, ``dial``, ``dial_all``, ``sleep``. With tasks they suspend; with threads they block and are done
when they return, and :func:`.threads.run` drives a coroutine to its end in one step.

Invariants

- F1 Every link is of the cluster of the first one.
- F2 One dial at a time, whatever the number of callers; those that waited for it share its outcome. Besides it one may
  try whether the first choice is there again.
- F3 In a forked child no link of the parent is used.
- F4 When a server turns out to be of another cluster, what is held ahead of before is void before any caller is told.
- F5 A close ends every link that is not over, also one that was left with calls in flight.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import time
import weakref
from collections.abc import Coroutine
from typing import Any, Callable, Protocol, TypeVar

from .. import wire
from ..errors import WRONG_CLUSTER, Closed, ConnectionLost, Refused, Timeout, UsageError, WrongCluster, XuidError
from ..options import Options
from ..process import settle, tell_of_forks
from ..values import Served
from .away import Away
from .conversation import NotSent
from .mutex import Mutex
from .retry import RANDOM, Backoff, Retries, leads_elsewhere

T = TypeVar("T")

#: How often all servers are tried before a call that needs a connection fails. The next call tries again.
_ROUNDS = 6

#: How often a request that was not sent, or that a leaving server did not answer, is repeated elsewhere in one attempt.
_REPEATS = 6

#: After a refusal a server is left for another one that was not dialed for so long, or for as long as the refusal says to
#: wait, up to the most; in seconds; and that costs no long dial in vain. Else, where all servers refuse, a caller that asks for
#: what none of them has would take the others along from server to server.
_LEAST_STAY = 1.0
_MOST_STAY = 10.0

#: How long other servers may still take to answer when the first connection stands, in seconds.
STRAGGLERS = 1.0


class Link(Protocol):
    """A greeted connection."""

    served: Served
    is_over: bool
    is_serving: bool
    was_sent_away: bool

    async def exchange(self, request: wire.Request, deadline: float) -> Any: ...

    def is_silent_since(self, time: float) -> bool: ...

    def retire(self) -> None: ...

    def end(self, error: XuidError) -> None: ...


class Port(Protocol):
    """What waits."""

    def is_current(self) -> bool:
        """Whether the caller may use what was made here: an event loop that is over took its connections along."""

    async def in_turn(self, servers: str, work: Callable[[], Coroutine[Any, Any, T]], limit: float) -> T:
        """Does that while no other caller does (F2), and waits for it until the limit."""

    async def dial(self, server: str, options: Options, limit: float) -> Link: ...

    async def dial_all(self, options: Options, limit: float) -> dict[str, Link | XuidError]:
        """Dials all servers at once; the outcomes that came in time. When the first connection stands, the others have
        :data:`STRAGGLERS` more: which is later counts as away, and is checked when it is first used."""

    async def sleep(self, seconds: float) -> None: ...

    def wake(self) -> None:
        """Ends all sleeps, those that begin later as well: the client is closed."""

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None: ...


class Fleet:
    """Serves any number of callers."""

    def __init__(self, options: Options, make_port: Callable[[], Port]) -> None:
        self.options = options
        #: What ends with it, and is void where two clusters are met (F4): prefetched ids. Under the mutex.
        self.sources: weakref.WeakSet[Any] = weakref.WeakSet()
        self._make_port = make_port
        #: The first server that answered; it made the cluster ours (F1).
        self._pinned: Served | None = None
        self.is_closed = False
        self._begin()
        tell_of_forks(self)

    def _begin(self) -> None:
        """Anew: nothing is connected."""
        #: Another object in a forked child.
        self.process = object()
        self.port: Port | None = None
        self._link: Link | None = None
        #: Those that are not over, and some that are (F5).
        self._links: list[Link] = []
        self._mutex = Mutex()
        #: The first choice, at random, so that clients spread over the servers; and the one that is dialed next. That moves
        #: before each dial, not after it: a caller may give up half way, and the next one must not begin at the same silent
        #: server.
        self._home = self._next = RANDOM.randrange(len(self.options.servers))
        self._comeback_at = 0.0
        #: When each server was dialed last.
        self._dialed: dict[str, float] = {}
        #: Which were not there when they were dialed last.
        self._away = Away()
        self._failures = 0
        self._last_failure: XuidError | None = None

    def after_fork(self) -> None:
        """The links are told themselves (F3)."""
        self._begin()

    def add_source(self, source: Any) -> None:
        # A thread of the parent may have the mutex for ever.
        settle()
        self._mutex.under(self.sources.add, source)

    @property
    def served(self) -> Served:
        link = self._link
        served = link.served if link else self._pinned
        if served is None:
            raise UsageError("no server was connected to yet: connect, or call anything, before that")
        return served

    @property
    def is_connected(self) -> bool:
        settle()
        link = self._link
        return link is not None and link.is_serving

    @property
    def max_count(self) -> int:
        """The most ids of one request; before a connection stands, what every server allows."""
        link = self._link
        served = link.served if link else self._pinned
        return served.max_count if served else 131_072

    async def call(self, request: wire.Request) -> Any:
        """Attempts until one succeeds, fails for good, or the time for retries is over."""
        retry_until = time.monotonic() + self.options.retry_for
        retries = self.retries()
        while True:
            try:
                return await self.attempt(request, self.options.timeout)
            except XuidError as error:
                pause = self.pause(retries, error) if error.retryable else 0.0
                if not error.retryable or time.monotonic() + pause >= retry_until:
                    raise
            await self.current_port().sleep(pause)

    def retries(self) -> Retries:
        return Retries(len(self.options.servers))

    def pause(self, retries: Retries, error: XuidError) -> float:
        """How long the caller of these retries waits after a failure."""
        link = self._link
        stays = link is not None and link.is_serving and link.served.server == getattr(error, "server", None)
        return retries.pause(error, leads_elsewhere(error) and not stays)

    async def attempt(self, request: wire.Request, patience: float) -> Any:
        """One request, answered within so many seconds beyond the wait that it asks for itself. It is repeated on another
        link, at once, if it could not be sent, or if the server said GOAWAY and closed without an answer."""
        limit = request.wait + patience
        begin = time.monotonic()
        backoff = Backoff()
        server = self.options.servers[0]
        # A link can end between getting it and using it, but a server that always does so is as good as lost.
        for repeat in range(_REPEATS + 1):
            if repeat > 1:
                await self.current_port().sleep(backoff.pause())
            # A search has its whole time, however little this one has left: those that wait for the same one share its outcome
            # (F2). What the server may take by the request's own wait is no reason to wait for less long.
            waited = min(time.monotonic() - begin, request.wait)
            end = begin + waited + self.options.timeout if repeat else math.inf
            try:
                link = await self.link(self.options.timeout, end)
            except Timeout as error:
                if not repeat:
                    raise
                # What was left says less than what the call had.
                raise Timeout(error.server, limit) from None
            server = link.served.server
            if time.monotonic() >= begin + limit:
                raise Timeout(server, limit)
            begun_here = time.monotonic()
            has_time = begin + limit - begun_here >= request.wait + patience / 2
            try:
                return await link.exchange(request, begin + limit)
            except NotSent:
                continue
            except ConnectionLost:
                if not link.was_sent_away:
                    raise
            except Timeout:
                # The caller ends alone: the link judges for itself whether it was silent for too long. If it was since the
                # request, and there are other servers, they are asked from now on. Not where none of them was there a moment
                # ago: all calls would wait for that. Nor by one that was repeated here with little time left: that is no lateness.
                if has_time and link.is_silent_since(begun_here) and self._is_other_there(link):
                    link.retire()
                raise Timeout(server, limit) from None
            except Refused as error:
                if leads_elsewhere(error):
                    self._leave(link, error)
                raise
        raise ConnectionLost(server, "it takes no requests")

    async def link(self, seconds: float, end: float = math.inf) -> Link:
        """A link that takes requests. If there is none, a search of so many seconds is begun, which others may share; who has
        an end waits for it until then."""
        port = self.current_port()
        link = self._current()
        if link:
            self._maybe_come_back(port, link)
            return link
        renew = functools.partial(self._renew, port, seconds, self._failures)
        # A search ends by itself, but for a resolver of names that takes longer.
        most = time.monotonic() + seconds + 2 * STRAGGLERS
        return await port.in_turn(",".join(self.options.servers), renew, min(end, most))

    async def close(self) -> None:
        """Ends at once what is held, what pauses and what looks for a server; then says BYE, waits for the answer, and ends the
        rest. Callers that wait are told :class:`Closed`."""
        self._end_all_but_links()
        link = self._link
        try:
            # At the end of the interpreter no thread is there that could read the answer.
            if link and link.is_serving and self.port and not sys.is_finalizing() and self.port.is_current():
                await link.exchange(wire.bye(), time.monotonic() + self.options.timeout)
        except (XuidError, NotSent):
            # Closed it is in any case, also where this is cancelled.
            pass
        finally:
            self.end()

    def end(self) -> None:
        """Closes without a word."""
        self._end_all_but_links()
        for link in self._mutex.under(self._take_links):
            link.end(Closed())

    def _end_all_but_links(self) -> None:
        settle()
        self.is_closed = True
        sources: list[Any] = self._mutex.under(list, self.sources)
        # Without the mutex: who holds the gate of a source may wait for it.
        for source in sources:
            source.close()
        port = self.port
        if port:
            port.wake()

    def _take_links(self) -> list[Link]:
        self._link = None
        return list(self._links)

    def current_port(self) -> Port:
        """What waits for this caller. Links of an event loop that is over are left to it."""
        settle()
        port = self.port
        if port is None or not port.is_current():
            port = self._mutex.under(self._renew_port, port)
        return port

    def _renew_port(self, before: Port | None) -> Port:
        if self.port is before or self.port is None:
            self._link, self._links = None, []
            self.port = self._make_port()
        return self.port

    def _current(self) -> Link | None:
        if self.is_closed or sys.is_finalizing():
            raise Closed
        link = self._link
        return link if link and link.is_serving else None

    async def _renew(self, port: Port, seconds: float, failures: int) -> Link:
        """Dials, unless a caller that came before did; ``failures``: how often that had failed when this one came."""
        link = self._current()
        if link:
            return link
        if self._failures != failures and self._last_failure:
            raise self._last_failure.again()
        limit = time.monotonic() + seconds
        try:
            link = await (self._redial(port, limit) if self._pinned else self._connect(port, limit))
        except XuidError as error:
            self._failures += 1
            self._last_failure = error.again()
            raise
        return self._use(link)

    def _use(self, link: Link) -> Link:
        """Makes it the one for all calls; what is in flight on the one before is still answered."""
        if self._mutex.under(self._put_in_use, link):
            return link
        link.end(Closed())
        raise Closed

    def _put_in_use(self, link: Link) -> bool:
        if self.is_closed:
            return False
        before, self._link = self._link, link
        self._links = [other for other in self._links if not other.is_over] + [link]
        self._plan_comeback()
        self._pinned = self._pinned or link.served
        if before:
            before.retire()
        return True

    async def _connect(self, port: Port, limit: float) -> Link:
        """Greets all servers and compares their clusters; the first one that answers, in turn from the first choice. Each
        is tried once, so that a wrong address is an error at once."""
        servers = self._turns()
        begin = time.monotonic()
        patience = min(limit - begin, self.options.connect_timeout)
        if len(servers) == 1:
            return await port.dial(servers[0], self.options, patience)
        outcomes = await port.dial_all(self.options, patience)
        for server in servers:
            outcome = outcomes.get(server)
            if outcome is None or isinstance(outcome, XuidError):
                self._note_away(server, begin, patience)
            else:
                self._away.clear(server)
        found = [outcomes[server] for server in servers if server in outcomes]
        links: list[Any] = [outcome for outcome in found if not isinstance(outcome, XuidError)]
        failures = [outcome for outcome in found if isinstance(outcome, XuidError)]
        try:
            for link in links[1:]:
                _same_cluster(links[0].served, link.served)
        except WrongCluster:
            for link in links:
                link.end(Closed())
            raise
        for link in links[1:]:
            link.end(Closed())
        if links:
            self._next = self.options.servers.index(links[0].served.server) + 1
            return links[0]  # type: ignore[no-any-return]
        if not failures:
            raise Timeout(", ".join(servers), patience)
        # What will not pass by waiting says more than "not reached".
        raise next((error for error in failures if not error.retryable), failures[0])

    async def _redial(self, port: Port, limit: float) -> Link:
        """Tries the servers, each once a round, for as many rounds as allowed."""
        backoff = Backoff()
        failure: XuidError | None = None
        for _ in range(_ROUNDS):
            hopeless: XuidError | None = None
            waits = False
            now = time.monotonic()
            # Those that cost a long dial in vain come last.
            for server in sorted(self._turns(), key=lambda server: self._away.costs(server, now)):
                if self.is_closed:
                    raise Closed
                left = limit - time.monotonic()
                if left <= 0:
                    raise failure or Timeout(server, self.options.timeout)
                self._next = self.options.servers.index(server) + 1
                try:
                    return await self._dial_pinned(port, server, min(left, self.options.connect_timeout))
                except XuidError as error:
                    failure = error
                    waits = waits or error.retryable
                    hopeless = hopeless if error.retryable else error
            if not waits:
                break
            await port.sleep(max(0.0, min(backoff.pause(), limit - time.monotonic())))
        raise hopeless or failure or ConnectionLost(self.options.servers[0])

    def _turns(self) -> list[str]:
        """The servers from the one whose turn it is."""
        servers = self.options.servers
        first = self._next % len(servers)
        return [*servers[first:], *servers[:first]]

    async def _dial_pinned(self, port: Port, server: str, limit: float) -> Link:
        begin = self._dialed[server] = time.monotonic()
        try:
            link = await port.dial(server, self.options, limit)
            try:
                if self._pinned:
                    _same_cluster(self._pinned, link.served)
            except WrongCluster:
                link.end(Closed())
                raise
        except XuidError as error:
            self._note_away(server, begin, limit)
            if _is_stranger(error):
                self._void()
            raise
        self._away.clear(server)
        return link

    def _note_away(self, server: str, begin: float, limit: float) -> None:
        """A dial that began then has failed. One that came to the end of a time that was short says nothing of the server: it was
        what a caller had left."""
        enough = min(self.options.connect_timeout, STRAGGLERS) / 2
        if limit >= enough or time.monotonic() - begin < limit:
            self._away.note(server, begin)

    def _is_other_there(self, link: Link) -> bool:
        """Whether there is another server than that of the link, and one that was not away a moment ago."""
        now = time.monotonic()
        others = (server for server in self.options.servers if server != link.served.server)
        return any(not self._away.is_away(other, now) for other in others)

    def _void(self) -> None:
        """Nothing tells which of the two clusters is the one that ids are meant to be of (F4)."""
        sources: list[Any] = self._mutex.under(list, self.sources)
        # Without the mutex: who holds the gate of a source may wait for it.
        for source in sources:
            source.void()

    def _leave(self, link: Link, error: Refused) -> None:
        """A server has refused with what may take it long. Leaves it, if there is another server that was not dialed of
        late; what is in flight is still answered."""
        pause = min(max(error.retry_after_ms / 1_000, _LEAST_STAY), _MOST_STAY)
        now = time.monotonic()
        before = now - pause
        others = (server for server in self.options.servers if server != link.served.server)
        if any(self._dialed.get(other, before) <= before and not self._away.costs(other, now) for other in others):
            link.retire()

    def _maybe_come_back(self, port: Port, link: Link) -> None:
        """After some time away from its first choice a client tries it again, beside its calls."""
        if link.served.server == self.options.servers[self._home] or time.monotonic() < self._comeback_at:
            return
        if not self._mutex.under(self._begins_comeback):
            return
        # Where no thread is to be had, the next time.
        with contextlib.suppress(RuntimeError):
            port.spawn(self._come_back(port), "xuid-comeback")

    def _begins_comeback(self) -> bool:
        """Whether it is time, and no other caller has noticed."""
        if time.monotonic() < self._comeback_at:
            return False
        self._plan_comeback()
        return True

    def _plan_comeback(self) -> None:
        """At random, so that the clients of a restarted server do not all come back at once."""
        self._comeback_at = time.monotonic() + self.options.return_after * RANDOM.uniform(0.5, 1.5)

    async def _come_back(self, port: Port) -> None:
        # Where that fails, the one in use goes on, and the time of the next try is set.
        with contextlib.suppress(XuidError):
            home = self.options.servers[self._home]
            self._use(await self._dial_pinned(port, home, self.options.connect_timeout))
            self._next = self._home + 1


def _is_stranger(error: XuidError) -> bool:
    """Whether a server is of another cluster: by this client's comparison, or by its own refusal."""
    return isinstance(error, WrongCluster) or (isinstance(error, Refused) and error.status == WRONG_CLUSTER)


def _same_cluster(known: Served, new: Served) -> None:
    if new.cluster != known.cluster:
        raise WrongCluster(new.server, new.cluster, known.cluster, f"by {known.server}")
