"""The intent of a pass is that of the last one only as long as nothing that it follows from moves."""

from dataclasses import replace
from typing import Any

import pytest

from fathom.api.conditions import ConditionStatus, Reason
from fathom.core.cluster.kinds import POD_MONITOR
from fathom.core.cluster.served import ServedApis
from fathom.core.models.facts import Absence, ModelFacts, ModelRef
from fathom.core.revision import revision_of
from fathom.preflight.verdict import DraftVerdict
from fathom.reconcile.checkpoint import Checkpoint
from fathom.reconcile.intent import good_spec_text, intent_of
from fathom.reconcile.memory import LastIntent
from manifest_samples import manifest, resource

SPEC = resource().spec
MODEL = ModelRef(SPEC.model.id, SPEC.model.revision)
AS_IT_IS: dict[str, Any] = {
    "resource": manifest(),
    "checkpoint": Checkpoint(),
    "models": {MODEL: ModelFacts(absence=Absence.NOT_YET)},
    "served": ServedApis(),
    "usable": (),
    "running": (),
    "refused": None,
}
REFUSED = DraftVerdict(ConditionStatus.FALSE, Reason.INCOMPATIBLE, "it does not fit.", family="")


@pytest.mark.parametrize(
    "moved",
    [
        {"resource": manifest({"replicas": 3})},
        {"resource": manifest({"engine.args": ["--port", "1"]})},
        {"checkpoint": Checkpoint(good_spec=good_spec_text(manifest()), good_revision="aaaaaaaa")},
        {"models": {MODEL: ModelFacts()}},
        {"refused": REFUSED},
        {"running": (revision_of(SPEC),), "usable": (POD_MONITOR,)},
    ],
)
def test_it_follows_whatever_moves(moved: dict[str, Any]) -> None:
    last = LastIntent()
    for given in (AS_IT_IS, AS_IT_IS, AS_IT_IS | moved, AS_IT_IS):
        assert last.of(**given) == intent_of(**given)


def test_at_rest_nothing_is_judged_again() -> None:
    last = LastIntent()
    before = last.of(**AS_IT_IS)
    read_again = {**manifest(), "status": {"replicas": 1}}
    seen = replace(AS_IT_IS["checkpoint"])
    assert last.of(**AS_IT_IS | {"resource": read_again, "checkpoint": seen}) is before
