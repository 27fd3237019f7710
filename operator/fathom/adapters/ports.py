"""The protocols between the operator and the world. Each has a real twin and a fake one."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Protocol

from pydantic import JsonValue

from fathom.api.choices import MetricsSource
from fathom.api.spec import SourceSpec
from fathom.cluster.kinds import Kind, ServedApis
from fathom.cluster.manifest import Manifest, Seen
from fathom.fetch.state import FetchedBytes
from fathom.measurement.counters import PodCounters, Unread
from fathom.model_facts import ModelFacts
from fathom.model_refs import ModelRef
from fathom.quality.comparison import Completion, CompletionRequest, Unanswered


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEndpoint:
    """Where one serving pod answers."""

    namespace: str
    pod: str
    ip: str
    port: int
    uid: str = ""
    """The pod's; empty: whoever asks does not care which pod of this name answers."""

    def url(self, path: str) -> str:
        """URL of what the pod serves at a path."""
        host = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"http://{host}:{self.port}{path}"


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at several pods. A pod that could not be read is absent, never zero."""

    counters: tuple[PodCounters, ...]
    failures: tuple[Unread, ...] = ()
    """The pods that could not be read."""


class MetricsPort(Protocol):
    """Where measurements come from. Never raises for what it cannot read: it says so."""

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        """Read the counters of these pods, each at its own time. Idempotent."""
        ...


class FetchPort(Protocol):
    """How far a fetch of weights is. Never raises for what it cannot read: that is unknown."""

    async def look(self, pod: PodEndpoint) -> FetchedBytes | None:
        """Bytes of all models together; None: not to be had now. Idempotent."""
        ...


class CompletionsPort(Protocol):
    """Greedy completions from one engine. Never raises for what it cannot get: it says so."""

    async def complete(
        self, pod: PodEndpoint, model: str, request: CompletionRequest
    ) -> Completion | Unanswered:
        """Ask one pod's engine. Idempotent.

        Args:
            pod: where it is.
            model: the name under which it serves the model.
            request: what to complete.
        """
        ...


class PodLogPort(Protocol):
    """What containers have written."""

    async def read(self, namespace: str, pod: str, container: str) -> str:
        """All that a container has written so far, bounded; empty: nothing yet. Idempotent.

        Raises:
            KubeError: it cannot be read.
        """
        ...


class ModelHub(Protocol):
    """Where models are published. Never raises for what it cannot read: it says so."""

    async def look_up(self, ref: ModelRef) -> ModelFacts:
        """What is known of a model by its config.json and its files' sizes. Idempotent.

        Never fetches weights.
        """
        ...


class Clock(Protocol):
    """Wall-clock time, injected so that tests own it."""

    def now_s(self) -> float:
        """Unix seconds."""
        ...


class KubeError(Exception):
    """The API server refused, or did not answer.

    Attributes:
        status: HTTP status; 0: no answer.
        message: what the server says, or why there was no answer.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    @property
    def outdated(self) -> bool:
        """Whether what is there is not what the request was made for: look, and decide again."""
        return self.status == HTTPStatus.CONFLICT

    @property
    def gone(self) -> bool:
        """Whether what the request was made for is not there any more."""
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def forbidden(self) -> bool:
        """Whether a right is lacking, as where a role is older than the operator, or is gone."""
        return self.status == HTTPStatus.FORBIDDEN

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later without anything having changed."""
        return self.status in {0, 408, 409, 429} or self.status >= 500  # noqa: PLR2004


class EventType(StrEnum):
    """What a watch tells of an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    """Gone, or without the labels that are selected; the object is as it was last."""
    BOOKMARK = "BOOKMARK"
    """Nothing has happened up to a version: the object has nothing else."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a watch."""

    type: EventType
    object: Manifest
    version: str
    """Everything up to here has been told; empty: not known."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list. All parts show the cluster at one version."""

    items: tuple[Manifest, ...]
    resource_version: str


class KubePort(Protocol):
    """The Kubernetes API, objects as plain manifests. Every call has a timeout.

    A write to an object that exists names the state in which it was seen. If it is another one by
    now, or gone, or another object of the same name, the API server answers 409 (`outdated`) and
    nothing is written: what was decided on an old view never lands on a newer one.

    Raises:
        KubeError: in every method, unless it says otherwise.
    """

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """Read one object; None: there is none."""
        ...

    async def named(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """As `get`, where only the right to list is granted."""
        ...

    async def select(self, kind: Kind, namespace: str, selector: str) -> tuple[Manifest, ...]:
        """Read the objects whose labels match.

        Args:
            kind: of the objects.
            namespace: where they are; empty: anywhere.
            selector: of their labels; empty: all.
        """
        ...

    def pages(self, kind: Kind, namespace: str, selector: str) -> AsyncIterator[Page]:
        """As `select`, in parts that need not be held together; at least one."""
        ...

    def watch(
        self, kind: Kind, namespace: str, selector: str, since: str, for_s: float
    ) -> AsyncGenerator[WatchEvent]:
        """What happens to the objects that `select` would read; ends when the stream does.

        It begins with a bookmark once the server has taken it, and ends after some silence, too.

        Args:
            kind: of the objects.
            namespace: where they are; empty: anywhere.
            selector: of their labels.
            since: the version of a list, or of the last event.
            for_s: seconds after which the server ends it.

        Raises:
            KubeError: 410: `since` is too long ago; 0: no answer, or the connection broke.
        """
        ...

    async def events(self, namespace: str, name: str, reason: str) -> tuple[Manifest, ...]:
        """Read the events that the cluster still has, commonly those of an hour: thousands at most.

        Args:
            namespace: where they are, and what they are about.
            name: of what they are about, whatever kind it is.
            reason: of the events; empty: any.
        """
        ...

    async def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Create one object; 409: there is one of that name, which is not touched.

        `metadata.generateName` is honoured. Not idempotent.

        Returns:
            The object as it is then. Later applies can take back its fields.
        """
        ...

    async def apply(
        self, kind: Kind, manifest: Manifest, seen: Seen, *, subresource: str = ""
    ) -> Manifest:
        """Server-side apply with force, as field manager `fathom`. Never creates.

        Of a subresource, what the schema that is served has no field for is left out.

        Returns:
            The object as it is then.
        """
        ...

    async def merge(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Mapping[str, JsonValue],
        seen: Seen | None,
    ) -> Manifest | None:
        """JSON merge patch as field manager `fathom`; None: there is no such object.

        Args:
            kind: of the object.
            namespace: where it is.
            name: of the object.
            patch: its metadata holds neither uid nor resourceVersion.
            seen: None: whatever state it is in, for what a person asked for.
        """
        ...

    async def delete(self, kind: Kind, namespace: str, name: str, seen: Seen) -> None:
        """Delete one object, and in the background what it owns; nothing if there is none."""
        ...

    async def served(self) -> ServedApis:
        """The APIs that this cluster serves."""
        ...


class DryRunPort(Protocol):
    """What an API server would make of objects, by the rights of whoever asks."""

    async def dry_run(self, kind: Kind, manifest: Manifest) -> None:
        """Ask whether it would take an object. Nothing is written.

        Raises:
            KubeError: it would not; or, with status 0, it does not answer.
        """
        ...

    async def served(self) -> ServedApis:
        """The APIs that this cluster serves."""
        ...


class SystemClock:
    """The machine's own wall clock."""

    def now_s(self) -> float:
        """Unix seconds."""
        return time.time()


def choose(metrics: SourceSpec) -> MetricsSource:
    """Where counters come from, Auto resolved: Prometheus if one is given, else the pods."""
    if metrics.source is not MetricsSource.AUTO:
        return metrics.source
    given = metrics.prometheus_url or metrics.prometheus
    return MetricsSource.PROMETHEUS if given else MetricsSource.PODS
