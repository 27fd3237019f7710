"""What many resources ask for and one reads: models, nodes, served APIs, parsed objects.

And what passes over them found last, which the page shows.

As large as what is in use: whoever needs a model asks for it at every pass, and what nobody has
asked for in a while goes.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog
from pydantic import BaseModel, ValidationError

from fathom.adapters.model_files import is_directory, local_facts
from fathom.adapters.ports import Clock, KubeError, KubePort, ModelHub
from fathom.api.status import ReportedStatus
from fathom.cluster.kinds import ObjectKey, ServedApis
from fathom.cluster.manifest import Manifest, Meta, ObservedModel
from fathom.cluster.observed import ObservedNode
from fathom.engine.depth import DepthDocument
from fathom.model_facts import Absence, ModelFacts
from fathom.model_refs import ModelRef
from fathom.page.history import History
from fathom.page.subject import AnySubject, subject_in
from fathom.times import Backoff, is_over
from fathom.tuning.learned_state import TuningState

KNOWN_FOR_S: Final = 6 * 3600.0
"""How long what the hub said counts."""
TRIED_FOR_S: Final = 300.0
"""How long a look at a directory, or one of many failures, keeps the next one away."""
RETRY_S: Final = 10.0
"""The same of a first failure, each further one doubling it: a new revision waits for 40 s."""
UNUSED_S: Final = 900.0
"""How long what nobody asks for is remembered. Passes are never further apart than 300 s."""
_AT_ONCE: Final = 4

NOT_YET: Final = ModelFacts(absence=Absence.NOT_YET, explanation="it is being asked for")

_BACKOFF: Final = Backoff(first_s=RETRY_S, longest_s=TRIED_FOR_S)
REFRESH_S: Final = 600.0
SERVED_RETRY_S: Final = 15.0
"""While there is something that a busy server could not show."""
LASTS_S: Final = 30.0
Nodes = tuple[ObservedNode, ...]
_log: Final = structlog.get_logger(__name__)
_Model = TypeVar("_Model", bound=BaseModel)
_Read = dict[tuple[int, type[BaseModel]], tuple[Manifest, BaseModel | None]]
"""By the object itself: what has changed is another one. It stays here, so that its id stays its
own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    facts: ModelFacts
    at_s: float
    """Unix seconds of the look-up."""
    lasts_s: float
    """Seconds until the next one."""
    failures: int = 0
    """Look-ups in a row that told nothing."""


class ModelCache:
    """Looks each model up at most once at a time, in the background.

    All methods belong to one event loop's thread.
    """

    def __init__(self, hub: ModelHub, clock: Clock) -> None:
        self._hub = hub
        self._clock = clock
        self._known: dict[ModelRef, _Known] = {}
        self._asked_at_s: dict[ModelRef, float] = {}
        self._running: dict[ModelRef, asyncio.Task[None]] = {}
        self._waiting: defaultdict[ModelRef, set[Callable[[], None]]] = defaultdict(set)
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def __len__(self) -> int:
        return len(self._known)

    async def facts(self, ref: ModelRef, changed: Callable[[], None]) -> ModelFacts:
        """What is known of a model now.

        Args:
            ref: the model. A directory is read here and now; the hub is asked in the background.
            changed: called once, as soon as something else is known.
        """
        now_s = self._clock.now_s()
        self._asked_at_s[ref] = now_s
        known = self._known.get(ref)
        if known is not None and not is_over(known.at_s, known.lasts_s, now_s):
            return known.facts
        if is_directory(ref):
            facts = await asyncio.to_thread(local_facts, ref)
            self._keep(ref, _Known(facts=facts, at_s=now_s, lasts_s=TRIED_FOR_S))
            return facts
        self._waiting[ref].add(changed)
        if ref not in self._running:
            task = asyncio.create_task(self._look_up(ref), name=f"lookup of {ref.id}")
            self._running[ref] = task
        return known.facts if known is not None else NOT_YET

    async def stop(self) -> None:
        """End every look-up where it stands."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_up(self, ref: ModelRef) -> None:
        before = self._known.get(ref)
        try:
            async with self._slots:
                facts = await self._hub.look_up(ref)
        finally:
            del self._running[ref]
            waiting = self._waiting.pop(ref, set())
        after = self._after(facts, before)
        self._keep(ref, after)
        if before is None or before.facts != after.facts:
            for changed in waiting:
                changed()

    def _after(self, facts: ModelFacts, before: _Known | None) -> _Known:
        """What is known after a look-up. A hub that is down for a while takes nothing back."""
        now_s = self._clock.now_s()
        if facts.config is not None:
            return _Known(facts=facts, at_s=now_s, lasts_s=KNOWN_FOR_S)
        failures = before.failures + 1 if before is not None else 1
        lasting_s = _BACKOFF.after(failures)
        if before is not None and before.facts.config is not None:
            facts, lasting_s = before.facts, TRIED_FOR_S
        return _Known(facts=facts, at_s=now_s, lasts_s=lasting_s, failures=failures)

    def _keep(self, ref: ModelRef, known: _Known) -> None:
        """Remember, and forget what is not in use any more."""
        self._known[ref] = known
        since_s = self._clock.now_s() - UNUSED_S
        for each in [each for each, at_s in self._asked_at_s.items() if at_s < since_s]:
            del self._asked_at_s[each]
            self._known.pop(each, None)


class ServedCache:
    """Discovery, at most every ten minutes as long as it is answered in full."""

    def __init__(self, kube: KubePort, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock
        self._served = ServedApis()
        self._asked_at_s = float("-inf")
        self._asking = asyncio.Lock()

    async def get(self) -> ServedApis:
        """The APIs that the cluster serves.

        Raises:
            KubeError: it could not be asked.
        """
        # A thousand loops begin at once, and one of them asks for all.
        async with self._asking:
            now_s = self._clock.now_s()
            rest_s = SERVED_RETRY_S if self._served.unknown else REFRESH_S
            if is_over(self._asked_at_s, rest_s, now_s):
                self._served = (await self._kube.served()).or_before(self._served)
                self._asked_at_s = now_s
            return self._served


class NodeCache:
    """At most one list of all nodes in half a minute, and only while somebody asks."""

    def __init__(self, read: Callable[[], Awaitable[Nodes]], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._nodes: Nodes = ()
        self._read_at_s = float("-inf")
        self._reading = asyncio.Lock()

    async def get(self) -> Nodes:
        """The nodes, as they were last seen where they cannot be read; none: they never were.

        Never raises: they explain why a pod finds no place, and nothing is decided on them.
        """
        async with self._reading:
            if is_over(self._read_at_s, LASTS_S, self._clock.now_s()):
                try:
                    self._nodes = await self._read()
                except KubeError as error:
                    _log.warning("nodes not read", error=error.message, status=error.status)
                # A failure lasts as long: a thousand resources would each wait for the next one.
                self._read_at_s = self._clock.now_s()
            return self._nodes


class Named(ObservedModel):
    """An object of whatever kind."""

    metadata: Meta


class ReadOnce:
    """What one look has read, for the next look at the same resource. One look at a time."""

    def __init__(self) -> None:
        self._before: _Read = {}
        self._now: _Read = {}

    @contextmanager
    def look(self) -> Iterator[None]:
        """For the length of a look; what the whole of it has not met again is forgotten."""
        self._before, self._now = {**self._before, **self._now}, {}
        try:
            yield
        except BaseException:
            # Looks that fail again and again must not keep what each of them has read.
            self._now = {}
            raise
        self._before = {}

    def model(self, model: type[_Model], manifest: Manifest) -> _Model | None:
        """An object as a model; None: it is none, as when a person mangled it."""
        key = id(manifest), model
        known = self._now.get(key) or self._before.get(key)
        if known is None:
            try:
                read = model.model_validate(manifest)
                known = manifest, self._shared(read)
            except ValidationError:
                known = manifest, None
        self._now[key] = known
        return known[1]  # type: ignore[return-value]  # its class is part of the key

    def _shared(self, read: _Model) -> _Model:
        """With those parts that are equal in the last one of its class, such as pods' specs."""
        read_last = (each for _, each in reversed(self._now.values()) if type(each) is type(read))
        like = next(read_last, None)
        if like is None:
            return read
        fields = type(read).model_fields
        parts = {name: getattr(like, name) for name in fields}
        return read.model_copy(
            update={name: part for name, part in parts.items() if part == getattr(read, name)}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PassReport:
    """What one pass over a resource had to say, as it lay there: nothing is copied."""

    uid: str
    manifest: Manifest
    """The resource as it was read."""
    status: ReportedStatus
    """As it is reported, whether or not the API server takes it."""
    document: DepthDocument | None
    """In force; None: there is none."""
    state: TuningState

    def subject(self, key: ObjectKey, history: History) -> AnySubject:
        return subject_in(
            key,
            self.manifest,
            self.status,
            document=self.document,
            state=self.state,
            history=history,
        )


class ShownResources:
    """The newest of every resource that this operator looks after. Belongs to its event loop."""

    def __init__(self) -> None:
        self._found: dict[ObjectKey, tuple[PassReport, History]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._found

    def saw(self, key: ObjectKey, reported: PassReport, now_s: float) -> None:
        """Take in one pass (Unix seconds); another resource of the same name begins again."""
        before, history = self._found.get(key, (None, None))
        if history is None or before is None or before.uid != reported.uid:
            history = History(now_s)
        history.saw(reported.status, now_s)
        self._found[key] = reported, history

    def forget(self, key: ObjectKey) -> None:
        """Drop a resource that is gone."""
        self._found.pop(key, None)

    def statuses(self) -> Iterator[tuple[ObjectKey, ReportedStatus]]:
        """Status of each resource."""
        return ((key, reported.status) for key, (reported, _) in self._found.items())

    def subject(self, key: ObjectKey) -> AnySubject:
        """One resource that is in it."""
        reported, history = self._found[key]
        return reported.subject(key, history)
