"""What a loop is given: the world, behind protocols."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from fathom.adapters.ports import Clock, CompletionsPort, FetchPort, KubePort, MetricsPort
from fathom.api.spec import MetricsSpec
from fathom.core.cluster.observed import ObservedNode
from fathom.core.cluster.served import ServedApis
from fathom.core.models.facts import ModelFacts, ModelRef
from fathom.core.plugin import PluginBundle
from fathom.fetch.program import FetchProgram
from fathom.page.subject import ShownResources
from fathom.reconcile.step import Decide
from fathom.runtime.child_cache import ChildCache
from fathom.runtime.telemetry import Telemetry

LookUp = Callable[[ModelRef, Callable[[], None]], Awaitable[ModelFacts]]


@dataclass(frozen=True, slots=True)
class World:
    """Everything outside a loop's own memory."""

    kube: KubePort
    children: ChildCache
    """What watches have told of all children."""
    nodes: Callable[[], Awaitable[tuple[ObservedNode, ...]]]
    """The cluster's; empty: none may be seen."""
    metrics_for: Callable[[MetricsSpec], MetricsPort]
    completions: CompletionsPort
    fetches: FetchPort
    clock: Clock
    decide: Decide
    models: LookUp
    """What is known of a model now, and whom to tell when that changes. Never waits for a hub."""
    served: Callable[[], Awaitable[ServedApis]]
    bundle: PluginBundle
    program: FetchProgram
    identity: str
    """Who reports events, such as the operator's pod."""
    telemetry: Telemetry
    shown: ShownResources = field(default_factory=ShownResources)
    """What people are shown of each resource."""
