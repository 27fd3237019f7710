"""What a loop is given: the world, behind protocols."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from fathom.adapters.ports import Clock, KubePort, MetricsPort
from fathom.api.spec import MetricsSpec
from fathom.core.plugin import PluginBundle
from fathom.core.served import ServedApis
from fathom.runtime.telemetry import Telemetry
from fathom.tuning.interface import TuningDecision, TuningSnapshot

Decide = Callable[[TuningSnapshot], TuningDecision]
ReadConfig = Callable[[str], Awaitable[Mapping[str, JsonValue] | None]]


@dataclass(frozen=True, slots=True)
class World:
    """Everything outside a loop's own memory."""

    kube: KubePort
    metrics_for: Callable[[MetricsSpec], MetricsPort]
    clock: Clock
    decide: Decide
    read_config: ReadConfig
    """config.json of a model, where it is at hand."""
    served: Callable[[], Awaitable[ServedApis]]
    bundle: PluginBundle
    version: str
    """This Fathom's."""
    identity: str
    """Who reports events, such as the operator's pod."""
    telemetry: Telemetry
