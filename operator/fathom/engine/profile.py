"""What one vLLM is: of the pods that a spec asks for. Pure.

Derived once, and carried with the parsed resource: whoever asks what an engine can do asks
its profile (docs/design/0057-an-engine-has-a-profile.md). What runs may be otherwise, since another
Fathom may have rendered it: `fathom.engine.report` reads that.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from packaging.version import Version

from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.added_graph_sizes import added_sizes, live_graphs, sets_graphs, static_graphs
from fathom.engine.argument_parser import EngineArguments
from fathom.engine.cuda_graphs import Captured, Graphs
from fathom.engine.depth import Schedule
from fathom.engine.depth_set import named_depths, startup_schedule
from fathom.engine.live_depth import Refusal, live_depth_refusal, why_not_counted
from fathom.engine.replica_layout import ReplicaLayout, layout_of
from fathom.engine.start import EngineStart, start_of


class StartedAs(StrEnum):
    """How pods are started: what a Fathom makes of the mode and of what it knows of the engine."""

    LIVE = "live"
    """With the plugin, and following the depth document."""
    COUNTED = "counted"
    """With the plugin, at one depth."""
    STATIC = "static"
    """At one depth."""


@dataclass(frozen=True, kw_only=True)
class EngineProfile:
    """Two of equal specs are equal."""

    spec: SpeculativeDeploymentSpec
    """What it is the profile of."""
    start: EngineStart
    not_live: Refusal | None
    """Why depth cannot be changed live, whatever the tuning mode; None: it can."""
    not_counted: str | None
    """Why the plugin does not count steps where depth is not live, as the second half of a
    sentence; None: it does."""
    started_as: StartedAs
    layout: ReplicaLayout
    depths: tuple[int, ...]
    """That the engine is asked for, ascending; 0 and `tokens` are among them."""

    @property
    def live(self) -> bool:
        """Whether the pods are started so that their depth can be changed live."""
        return self.started_as is StartedAs.LIVE

    @property
    def has_plugin(self) -> bool:
        """Whether the pods are started with the plugin: to change depth, or to count at the one."""
        return self.started_as is not StartedAs.STATIC

    @property
    def version(self) -> Version | None:
        """vLLM's, as far as the spec tells."""
        return self.start.version

    @property
    def arguments(self) -> EngineArguments:
        """`spec.engine.args`."""
        return self.start.arguments

    @property
    def max_num_seqs(self) -> int:
        """The last batch of every schedule: the engine's, where depth is live."""
        return self.start.max_num_seqs

    @property
    def deepest(self) -> int:
        """`num_speculative_tokens` that it is started with, where it speculates."""
        speculation = self.spec.speculation
        return speculation.effective_max_tokens if self.live else speculation.tokens

    @property
    def schedule(self) -> Schedule:
        """The startup schedule, where depth is live."""
        return startup_schedule(self.depths, self.max_num_seqs)

    @property
    def sets_graphs(self) -> bool:
        """Whether `engine.args` say which sizes of CUDA graphs are captured."""
        return self.start.captures_graphs and sets_graphs(self.arguments)

    @cached_property
    def added_sizes(self) -> tuple[int, ...]:
        """Sizes of CUDA graphs that the operator asks for, in tokens; none: vLLM's or the user's.

        Only of an engine whose depth is live.
        """
        return added_sizes(self.start, self.depths, self.spec.node_pool) if self.live else ()

    @property
    def graphs(self) -> Graphs:
        """The CUDA graphs of its steps, if it captures any.

        Not kept: they take ten times the memory of all the rest, in each of a thousand resources.
        """
        if not self.live:
            return self.static_graphs
        return live_graphs(self.spec, self.start, self.schedule, self.added_sizes)

    @property
    def static_graphs(self) -> Graphs:
        """Those of the same engine, were its depth not live."""
        return static_graphs(self.spec, self.start)

    @cached_property
    def captured(self) -> Captured | None:
        """How many graphs it captures at its start; None: not known."""
        if not self.start.captures_graphs:
            return Captured(target_full=0, target_piecewise=0, draft_full=0, draft_piecewise=0)
        if sets_graphs(self.arguments) or not self.spec.drafts:
            return None
        return self.graphs.captured


def profile_of(spec: SpeculativeDeploymentSpec) -> EngineProfile:
    """What the pods of a spec run."""
    start = start_of(spec)
    not_live, not_counted = live_depth_refusal(spec, start), why_not_counted(spec, start)
    started_as = _started_as(spec, live=not_live is None, counted=not_counted is None)
    return EngineProfile(
        spec=spec,
        start=start,
        not_live=not_live,
        not_counted=not_counted,
        started_as=started_as,
        layout=layout_of(spec),
        depths=named_depths(
            spec.speculation,
            live=started_as is StartedAs.LIVE,
            captures_graphs=start.captures_graphs,
        ),
    )


def _started_as(spec: SpeculativeDeploymentSpec, *, live: bool, counted: bool) -> StartedAs:
    """How its pods are started.

    Without speculation the plugin counts where there is a draft, so that both can be compared.
    """
    if spec.tunable and live:
        return StartedAs.LIVE
    if spec.tunable and counted and (spec.drafts or spec.has_draft):
        return StartedAs.COUNTED
    return StartedAs.STATIC
