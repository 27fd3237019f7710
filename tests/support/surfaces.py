"""What people see first of a resource: in `fathom status`, in `kubectl get`, on the page."""

from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from typing import Any, Self

from rich.console import Console

from fathom.api.status import Condition, SpeculativeDeploymentStatus
from fathom.cli.cluster import Reported
from fathom.cli.rollout import paused_in_words
from fathom.cli.status import status_report, status_view
from fathom.cluster.kinds import ObjectKey
from fathom.cluster.manifest import Meta
from fathom.cluster.snapshot import status_in
from fathom.health import cause_of, standing
from fathom.page.resource_view import resource_view
from fathom.page.subject import Subject
from fathom.resource import known_part, parse
from fathom.tuning.learned_state import TuningState


@dataclass(frozen=True, kw_only=True)
class Surfaces:
    """The first words of each."""

    status: str
    exit_code: int
    get: str
    """REASON."""
    top: tuple[str, ...]
    """ALARMS."""
    page: str
    """The first notice; empty: there is none."""
    pause: str

    @classmethod
    def of(cls, resource: Mapping[str, Any], now_s: float) -> Self:
        """As they are at a moment (Unix seconds)."""
        meta = Meta.model_validate(resource["metadata"])
        key = ObjectKey(meta.namespace, meta.name)
        status = status_in(resource, SpeculativeDeploymentStatus) or SpeculativeDeploymentStatus()
        reported = Reported(metadata=meta, status=status)
        report = status_report(reported, now_s)
        text = Console(file=StringIO(), width=10_000, color_system=None)
        text.print(status_view(report))
        assert isinstance(text.file, StringIO)
        subject = Subject(
            key=key,
            resource=parse(known_part(resource).known),
            status=status,
            document=None,
            state=TuningState(),
            history=None,
        )
        alarms = [f"{each.code}: {each.cause}" for each in resource_view(subject, now_s).notices]
        return cls(
            status=text.file.getvalue().splitlines()[0].rstrip(),
            exit_code=0 if report.well else 1,
            get=status.reason,
            top=standing(status, now_s),
            page=alarms[0] if alarms else "",
            pause=paused_in_words(key, reported, now_s),
        )

    def assert_begin_with(self, degraded: Mapping[str, Any]) -> None:
        """The cause of a resource that is not well comes first on each of them."""
        cause = f"{degraded['reason']}: {degraded['message']}"
        assert f" is not well: {cause}" in self.status
        assert self.exit_code == 1
        assert self.get == degraded["reason"]
        assert f"Degraded/{degraded['reason']}" in self.top
        told = cause_of(Condition.model_validate(degraded))
        assert self.page == f"Degraded/{degraded['reason']}: {told}"
