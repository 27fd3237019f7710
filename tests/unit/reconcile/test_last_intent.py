"""The intent of a pass is the last one's only as long as nothing that it follows from has moved."""

from dataclasses import replace
from typing import Any

import pytest

from fathom.api.conditions import ConditionStatus, Reason
from fathom.cluster.kinds import ALL, LEADER_WORKER_SET, ServedApis
from fathom.cluster.manifest import Manifest
from fathom.engine.profile import StartedAs
from fathom.model_facts import Absence, ModelFacts
from fathom.model_refs import ModelRef
from fathom.reconcile.checkpoint import Checkpoint
from fathom.reconcile.intent import JudgedBy, intent_of
from fathom.reconcile.loop_state import LastIntent
from fathom.reconcile.specs import good_spec_text
from fathom.validation.candidate import Cluster
from fathom.validation.model_verdict import DraftVerdict
from manifest_samples import manifest, resource

MODEL = ModelRef(resource().spec.model.id)
DEPTHS = {"speculation.maxTokens": 5, "speculation.depths": [3, 4, 5]}
STARTED = Checkpoint(good_spec=good_spec_text(manifest(DEPTHS)), good_revision="aaaaaaaa")
RESOURCE = manifest({**DEPTHS, "speculation.tokens": 4})
AS_IT_IS: dict[str, Any] = {
    "resource": RESOURCE,
    "checkpoint": STARTED,
    "models": {MODEL: ModelFacts(absence=Absence.NOT_YET)},
    "cluster": Cluster(served=ALL, usable=frozenset({LEADER_WORKER_SET})),
    "running": {"aaaaaaaa": StartedAs.LIVE},
    "refused": None,
}
REFUSED = DraftVerdict(
    status=ConditionStatus.FALSE, reason=Reason.INCOMPATIBLE, message="it does not fit.", family=""
)
SPANNING = {"resource": manifest({"engine.tensorParallelSize": 8, "nodePool.gpusPerNode": 4})}


def judged(given: dict[str, Any]) -> tuple[Manifest, JudgedBy]:
    return given["resource"], JudgedBy(**{k: v for k, v in given.items() if k != "resource"})


@pytest.mark.parametrize(
    ("before", "moved"),
    [
        ({}, {"resource": manifest({"replicas": 3})}),
        ({}, {"resource": manifest({"engine.args": ["--port", "1"]})}),
        ({}, {"checkpoint": replace(STARTED, good_revision="bbbbbbbb")}),
        ({}, {"models": {MODEL: ModelFacts()}}),
        ({}, {"refused": REFUSED}),
        ({}, {"running": {"aaaaaaaa": StartedAs.STATIC}}),
        (SPANNING, {"cluster": Cluster(served=ServedApis(), usable=frozenset())}),
        (SPANNING, {"cluster": Cluster(served=ALL, usable=frozenset())}),
    ],
)
def test_it_follows_whatever_moves(before: dict[str, Any], moved: dict[str, Any]) -> None:
    as_it_was, then = (judged(AS_IT_IS | before | each) for each in ({}, moved))
    last = LastIntent()
    assert intent_of(*as_it_was) != intent_of(*then), "what moves makes a difference"

    for given in (as_it_was, as_it_was, then, as_it_was):
        assert last.of(*given) == intent_of(*given)


def test_at_rest_nothing_is_judged_again() -> None:
    last = LastIntent()
    before = last.of(*judged(AS_IT_IS))
    read_again = {**RESOURCE, "status": {"replicas": 1}}
    again = judged(AS_IT_IS | {"resource": read_again, "checkpoint": replace(STARTED)})
    assert last.of(*again) is before
