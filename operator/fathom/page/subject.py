"""What a page is made of, and all that an operator can show."""

from collections.abc import Iterator
from dataclasses import dataclass

from fathom.api.problem import Problem
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.core.cluster.kinds import ObjectKey
from fathom.core.cluster.manifest import Manifest
from fathom.core.depth_bench import DepthBench
from fathom.engine.depth import DepthDocument
from fathom.page.history import History
from fathom.resource import SpeculativeDeployment, known_part, parse
from fathom.tuning.state import TuningState


@dataclass(frozen=True, slots=True)
class Subject:
    """One SpeculativeDeployment, as it is known at one moment."""

    key: ObjectKey
    resource: SpeculativeDeployment | tuple[Problem, ...]
    """As its user wrote it; or what is wrong with it."""
    status: SpeculativeDeploymentStatus
    document: DepthDocument | None
    """None: there is none."""
    state: TuningState
    history: History | None
    """None: whoever asks has none."""
    bench: DepthBench | None = None
    """What `fathom bench` found last; None: nothing, or whoever asks does not look."""


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass over a resource had to say, as it lay there: nothing is copied."""

    uid: str
    manifest: Manifest
    """The resource as it was read."""
    status: SpeculativeDeploymentStatus
    """As it is reported, whether or not the API server takes it."""
    document: DepthDocument | None
    """In force; None: there is none."""
    state: TuningState

    def subject(self, key: ObjectKey, history: History) -> Subject:
        resource = parse(known_part(self.manifest).known)
        return Subject(key, resource, self.status, self.document, self.state, history)


class ShownResources:
    """The newest of every resource that this operator looks after. Belongs to its event loop."""

    def __init__(self) -> None:
        self._found: dict[ObjectKey, tuple[PassReport, History]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._found

    def saw(self, key: ObjectKey, reported: PassReport, now_s: float) -> None:
        """Take in one pass (Unix seconds); another resource of the same name begins anew."""
        before, history = self._found.get(key, (None, None))
        if history is None or before is None or before.uid != reported.uid:
            history = History(now_s)
        history.saw(reported.status, now_s)
        self._found[key] = reported, history

    def forget(self, key: ObjectKey) -> None:
        """Drop a resource that is gone."""
        self._found.pop(key, None)

    def statuses(self) -> Iterator[tuple[ObjectKey, SpeculativeDeploymentStatus]]:
        """Of each resource."""
        return ((key, reported.status) for key, (reported, _) in self._found.items())

    def subject(self, key: ObjectKey) -> Subject:
        """One resource that is in it."""
        reported, history = self._found[key]
        return reported.subject(key, history)
