"""What a loop is given: the world, behind protocols."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from fathom.adapters.ports import Clock, CompletionsPort, FetchPort, KubePort, MetricsPort
from fathom.api.spec import MetricsSpec
from fathom.cluster.kinds import ServedApis
from fathom.cluster.observed import ObservedNode
from fathom.engine.plugin import PluginBundle
from fathom.fetch.state import FetchProgram
from fathom.model_facts import ModelFacts, ModelRef
from fathom.page.subject import ShownResources
from fathom.reconcile.step import (
    Decide,
)
from fathom.runtime.child_cache import ChildCache
from fathom.runtime.telemetry import Telemetry

LookUp = Callable[[ModelRef, Callable[[], None]], Awaitable[ModelFacts]]
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


@dataclass(frozen=True, slots=True)
class Pace:
    """How soon a loop that is woken begins a pass, in seconds."""

    settle_s: float = 0.2
    """After it is woken, so that a burst of that costs one pass."""
    apart_s: float = SHORTEST_SLEEP_S
    """After its last pass, so that who never stops waking it does not keep it busy."""


PACE: Final = Pace()
