"""What a loop is given: the world, behind protocols, and who reads what pods show."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

import aiohttp

from fathom.adapters.http import Room
from fathom.adapters.pod_metrics import PodMetrics
from fathom.adapters.ports import (
    Clock,
    CompletionsPort,
    FetchPort,
    KubePort,
    MetricsPort,
    PodEndpoint,
    Sample,
    choose,
)
from fathom.adapters.prometheus_metrics import ROOM_BYTES, PrometheusMetrics
from fathom.adapters.prometheus_query import Login
from fathom.adapters.prometheus_sources import (
    NO_SOURCES,
    NotGrantedError,
    PrometheusSources,
    SecretLogin,
)
from fathom.api.choices import MetricsSource
from fathom.api.spec import PrometheusSpec, SourceSpec
from fathom.cluster.kinds import ServedApis
from fathom.cluster.observed import ObservedNode
from fathom.cluster.observed_pods import ObservedPod
from fathom.cluster.snapshot import Objects
from fathom.engine.plugin import PluginBundle
from fathom.fetch.state import FetchProgram, FetchProgress, FetchStanding
from fathom.manifests.intake_job import IntakeProgram
from fathom.measurement.counters import Unread, UnreadKind
from fathom.model_facts import ModelFacts
from fathom.model_refs import ModelRef
from fathom.reconcile.fetching import FetchFindings, asks_a_pod, fetch_findings
from fathom.reconcile.loop_state import Decide
from fathom.runtime.caches import ShownResources
from fathom.runtime.child_cache import ChildCache
from fathom.runtime.telemetry import Telemetry
from fathom_fetch.metrics import PORT

LookUp = Callable[[ModelRef, Callable[[], None]], Awaitable[ModelFacts]]
_Where = tuple[str, Login | None, frozenset[tuple[str, str]]]
"""URL, login, and labels."""
SHORTEST_SLEEP_S: Final = 1.0
"""Between two passes, whatever happens: a resource that is edited, or whose pods move, many times a
second is worth a look a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything outside a loop's own memory."""

    kube: KubePort
    children: ChildCache
    """What watches have told of all children."""
    nodes: Callable[[], Awaitable[tuple[ObservedNode, ...]]]
    """The cluster's; empty: none may be seen."""
    metrics_for: Callable[[SourceSpec, str], MetricsPort]
    """By what a spec asks for, and its namespace."""
    completions: CompletionsPort
    fetches: FetchPort
    clock: Clock
    decide: Decide
    models: LookUp
    """What is known of a model now, and whom to tell when that changes. Never waits for a hub."""
    served: Callable[[], Awaitable[ServedApis]]
    bundle: PluginBundle
    program: FetchProgram
    intake: IntakeProgram
    identity: str
    """Who reports events, such as the operator's pod."""
    telemetry: Telemetry
    shown: ShownResources = field(default_factory=ShownResources)
    """What people are shown of each resource."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How soon a loop that is woken begins a pass, in seconds."""

    settle_s: float = 0.2
    """After it is woken, so that a burst of that costs one pass."""
    apart_s: float = SHORTEST_SLEEP_S
    """After its last pass, so that who never stops waking it does not keep it busy."""


PACE: Final = Pace()


class MetricsSources:
    """One reader for each place where measurements come from, shared by all loops.

    It opens one when a spec asks for it; one that nobody uses any more is gone.
    """

    def __init__(
        self,
        *,
        pods: aiohttp.ClientSession,
        prometheus: aiohttp.ClientSession,
        clock: Clock,
        kube: KubePort,
        sources: PrometheusSources = NO_SOURCES,
    ) -> None:
        """Borrow sessions; the caller closes them.

        Args:
            pods: to read the pods' own pages with.
            prometheus: to ask every Prometheus with; another one, since who may name a URL must
                not use up the connections that pods are read with.
            clock: stamps what pods show.
            kube: reads logins of namespaces' own.
            sources: that have a login.
        """
        self._pods = PodMetrics(pods, clock)
        self._session = prometheus
        self._clock = clock
        self._kube = kube
        self._sources = sources
        self._room = Room(ROOM_BYTES)
        self._prometheus: WeakValueDictionary[_Where, PrometheusMetrics] = WeakValueDictionary()
        self._logins: WeakValueDictionary[tuple[str, str], SecretLogin] = WeakValueDictionary()
        """By namespace, and what its resources ask for: kept by the readers that use them."""

    def of(self, spec: SourceSpec, namespace: str) -> MetricsPort:
        """The reader that a spec's `metrics` asks for, in a namespace."""
        if choose(spec) is MetricsSource.PODS:
            return self._pods
        if spec.prometheus is None:
            return self._reader(spec.prometheus_url, spec.prometheus_labels, None)
        try:
            login = self._login(spec.prometheus, namespace)
        except NotGrantedError as error:
            return NotGranted(str(error))
        return self._reader(login.url, spec.prometheus.labels, login)

    def _login(self, spec: PrometheusSpec, namespace: str) -> Login:
        if spec.source:
            return self._sources.login(spec, namespace)
        where = (namespace, spec.model_dump_json(exclude={"labels"}))
        login = self._logins.get(where)
        if login is None:
            login = SecretLogin(spec, namespace, self._kube, self._clock)
            self._logins[where] = login
        return login

    def _reader(
        self, url: str, labels: Mapping[str, str], login: Login | None
    ) -> PrometheusMetrics:
        where = (url.rstrip("/"), login, frozenset(labels.items()))
        reader = self._prometheus.get(where)
        if reader is None:
            reader = PrometheusMetrics(
                self._session, url, room=self._room, labels=labels, login=login
            )
            self._prometheus[where] = reader
        return reader


@dataclass(frozen=True, slots=True)
class NotGranted:
    """In place of a source that a resource may not use. A `MetricsPort`: nothing is asked."""

    cause: str
    """Why, as half a sentence."""

    async def sample(self, pods: Sequence[PodEndpoint]) -> Sample:
        """None of them is read."""
        return Sample((), tuple(Unread(pod.pod, self.cause, UnreadKind.REFUSED) for pod in pods))


async def look_at_fetch(
    port: FetchPort, standing: FetchStanding, objects: Objects, seen: FetchProgress
) -> FetchFindings:
    """See how far a fetch is; at rest it asks nobody.

    Args:
        port: reads a pod that fetches.
        standing: where the fetch stands.
        objects: what the cluster holds.
        seen: what earlier passes saw of it.
    """
    endpoint = _endpoint(standing.pod) if asks_a_pod(standing) else None
    look = await port.look(endpoint) if endpoint else None
    seen = seen if look is None else seen.after(look)
    return fetch_findings(standing, objects, seen, answered=look is not None)


def _endpoint(pod: ObservedPod | None) -> PodEndpoint | None:
    if pod is None or not pod.ready or not pod.status.pod_ip:
        return None
    return PodEndpoint(
        namespace=pod.metadata.namespace, pod=pod.name, ip=pod.status.pod_ip, port=PORT
    )
