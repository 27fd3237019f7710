"""What `fathom explain` tells of a resource in a cluster: how its pods were started decides."""

import pytest

from fathom.api.status import EngineStatus, SpeculativeDeploymentStatus
from fathom.cli.explain import live_view
from fathom.cluster.kinds import ObjectKey
from fathom.page.subject import Subject
from fathom.tuning.learned_state import TuningState
from manifest_samples import resource
from unit.cli.test_explain import NOW_S, shown

NOT_LIVE = {"engine.image": "ghcr.io/llm-d/llm-d-cuda:v0.32.0"}


def told(engine: EngineStatus, *, unreadable: bool = False) -> str:
    sd = resource(NOT_LIVE)
    live = Subject(
        key=ObjectKey("llm", "kimi"),
        resource=sd,
        status=SpeculativeDeploymentStatus(engine=engine),
        document=None,
        state=TuningState(),
        unreadable=unreadable,
    )
    return "\n".join(shown(part, width=300) for part in live_view(live, NOW_S))


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        (
            EngineStatus(actuation="Live", reason="not after the next."),
            "Depth can be changed live: not after",
        ),
        (EngineStatus(actuation="None", reason="it is old."), "cannot be changed live: it is old."),
        (EngineStatus(), "cannot be changed live: the tag of ghcr.io/llm-d"),
    ],
    ids=["live", "not live", "nobody looked yet"],
)
def test_the_operator_knows_whether_depth_is_live_and_else_the_spec_tells(
    engine: EngineStatus, line: str
) -> None:
    assert line in told(engine)


def test_a_live_fleet_of_which_no_reason_speaks_gets_no_line() -> None:
    assert "Depth can" not in told(EngineStatus(actuation="Live"))


@pytest.mark.parametrize("unreadable", [True, False])
def test_a_status_of_another_release_is_said_to_be_one(*, unreadable: bool) -> None:
    said = "cannot read its status: another release wrote it." in told(
        EngineStatus(), unreadable=unreadable
    )
    assert said is unreadable
