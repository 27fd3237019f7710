"""Keeps one feed of the cache current: list, then watch, then list again.

No kept library does it for asyncio with what a cache has to know: see
docs/design/0033-children-from-watches.md.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import structlog

from fathom.adapters.ports import EventType, KubeError, KubePort
from fathom.api import names
from fathom.cluster.kinds import OPTIONAL_KINDS, SPANNING_KINDS, ObjectKey, ServedApis
from fathom.cluster.manifest import place_of
from fathom.runtime.child_cache import ChildCache, Feed, Place
from fathom.times import Backoff, spread

NOT_SERVED_S: Final = 60.0
"""Until another look whether somebody has installed an API."""
LONGEST_BACKOFF_S: Final = 30.0
BRIEF_S: Final = 1.0
"""A stream that is over sooner has ended at once."""
FIRST_LISTS_S: Final = 30.0
"""For how long nothing else begins, so that a thousand resources need not list for themselves."""

_GONE: Final = 410
_log: Final = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How soon an informer does something again, in seconds."""

    relist_s: float = 180.0
    """A stream may lose an event, and nobody would ever know: so all is listed again."""
    reopen_s: float = 0.2
    """After a stream has ended; twice as long after each further one that ends at once."""
    shortest_backoff_s: float = 1.0
    """After a failure; twice as long after each further one."""


_PACE: Final = Pace()

Served = Callable[[], Awaitable[ServedApis]]
Wake = Callable[[ObjectKey], None]


@asynccontextmanager
async def informed(
    children: ChildCache, kube: KubePort, served: Served, wake: Wake, pace: Pace = _PACE
) -> AsyncIterator["asyncio.Future[None]"]:
    """Keep a cache current for as long as the block runs.

    Args:
        children: the cache.
        kube: what to list from and to watch.
        served: which APIs there are.
        wake: is told whose children have moved.
        pace: of all informers.

    Yields:
        What is done once everything was listed, or could not be, or not in time.
    """
    informers = [Informer(feed, kube, served, wake, pace) for feed in children]
    tasks = [asyncio.create_task(each.run(), name=f"informer of {each}") for each in informers]

    async def listed() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LISTS_S):
                await asyncio.gather(*(each.tried.wait() for each in informers))

    listing = asyncio.create_task(listed(), name="first lists")
    tasks.append(listing)
    try:
        yield listing
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Informer:
    """Follows the children of one kind."""

    def __init__(self, feed: Feed, kube: KubePort, served: Served, wake: Wake, pace: Pace) -> None:
        self._feed = feed
        self._kube = kube
        self._served = served
        self._wake = wake
        self._pace = pace
        self.tried = asyncio.Event()
        """Whether it was listed, or could not be."""

    def __str__(self) -> str:
        return self._feed.kind.plural

    async def run(self) -> None:
        """For ever. Whatever fails is begun again, later each time."""
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            began_s, gone = loop.time(), False
            try:
                if await self._is_served():
                    await self._follow()
                else:
                    self.tried.set()
                    await asyncio.sleep(NOT_SERVED_S)
                failures = 0
                continue
            except KubeError as error:
                if loop.time() - began_s > LONGEST_BACKOFF_S:
                    failures = 0  # it went well in between
                gone = error.status == _GONE
                if not (gone or failures):
                    _log.warning("children not watched", kind=str(self), error=error.message)
            except Exception:  # noqa: BLE001  # the last resort, logged with its traceback
                # Without this feed everything works on, and every pass reads for itself.
                _log.exception("informer failed", kind=str(self))
            self.tried.set()
            if gone and not failures:
                # A version that is too old is no failure of anybody's, once.
                backoff_s = self._pace.reopen_s
            else:
                first_s = self._pace.shortest_backoff_s
                backoff_s = _backoff(first_s).after(failures + 1)
            failures = min(failures + 1, 10)
            await asyncio.sleep(spread(backoff_s, str(self)))

    async def _is_served(self) -> bool:
        optional = self._feed.kind in {*OPTIONAL_KINDS, *SPANNING_KINDS}
        return not optional or (await self._served()).has(self._feed.kind)

    async def _follow(self) -> None:
        """List, and then watch until it is time for another list."""
        loop = asyncio.get_running_loop()
        since = await self._list()
        self.tried.set()
        ends_s, brief = loop.time() + spread(self._pace.relist_s, str(self)), 0
        while (left_s := ends_s - loop.time()) > 0:
            opened_s = loop.time()
            since = await self._watch(since, left_s)
            brief = brief + 1 if loop.time() - opened_s < BRIEF_S else 0
            await asyncio.sleep(_backoff(self._pace.reopen_s).after(brief + 1))

    async def _list(self) -> str:
        """All there is; the version at which it was so."""
        feed, found, version = self._feed, set[Place](), ""
        pages = self._kube.pages(feed.kind, feed.namespace, names.LABEL_NAME)
        async for page in pages:
            if not version:
                feed.begin_list(page.resource_version)
            version = page.resource_version
            for each in page.items:
                found.add(place_of(each))
                self._tell(*feed.put(each))
        self._tell(*feed.listed(found, version))
        return version

    async def _watch(self, since: str, for_s: float) -> str:
        """Follow one stream to its end; the version up to which it has told everything."""
        feed = self._feed
        events = self._kube.watch(feed.kind, feed.namespace, names.LABEL_NAME, since, for_s)
        async with aclosing(events) as stream:
            async for event in stream:
                if event.type is not EventType.BOOKMARK:
                    deleted = event.type is EventType.DELETED
                    # Of what we wrote ourselves, and know already, nobody needs to be told.
                    self._tell(*(feed.gone if deleted else feed.put)(event.object))
                since = event.version or since
                feed.told(since)
        return since

    def _tell(self, *moved: ObjectKey) -> None:
        for resource in moved:
            self._wake(resource)


def _backoff(first_s: float) -> Backoff:
    return Backoff(first_s=first_s, longest_s=LONGEST_BACKOFF_S)
