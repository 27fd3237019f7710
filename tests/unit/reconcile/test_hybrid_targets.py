"""A hybrid target has space for `tokens`, unless its user or what runs has it otherwise."""

from typing import Any

import pytest

from fathom.cluster.kinds import ServedApis
from fathom.engine.profile import StartedAs
from fathom.model_facts import Absence, ModelConfig, ModelFacts
from fathom.model_refs import ModelRef
from fathom.reconcile.checkpoint import Checkpoint
from fathom.reconcile.intent import Intent, JudgedBy, intent_of
from fathom.reconcile.specs import good_spec_text
from fathom.rollout.revision import revision_of
from fathom.validation.candidate import Cluster
from manifest_samples import manifest, resource
from support.hybrid_target import HYBRID

PLAIN = ModelFacts(config=ModelConfig(model_type="deepseek_v3", nextn_predict_layers=1))
UNHEARD = ModelFacts(absence=Absence.NOT_YET)
NOT_HERE = ModelFacts(absence=Absence.NOT_LOCAL)
MTP: dict[str, Any] = {
    "model.id": "org/target",
    "draft.id": None,
    "draft.method": "mtp",
    "speculation.tokens": 2,
}
TARGET = ModelRef("org/target")
AS_WRITTEN = revision_of(resource(MTP))
SIZED = revision_of(resource(MTP | {"speculation.maxTokens": 2}))


def intent(
    facts: ModelFacts,
    *running: str,
    changes: dict[str, Any] | None = None,
    kept: Checkpoint = Checkpoint(),  # noqa: B008 - frozen
    at_rest: bool = False,
) -> Intent:
    by = JudgedBy(
        checkpoint=kept,
        models={TARGET: facts},
        cluster=Cluster(served=ServedApis(), usable=frozenset()),
        running=dict.fromkeys(running, StartedAs.LIVE),
        at_rest=at_rest,
    )
    return intent_of(manifest(MTP | (changes or {})), by)


def deepest(found: Intent) -> int:
    assert found.wanted is not None
    return found.wanted.engine.deepest


def test_a_new_one_has_room_for_tokens() -> None:
    found = intent(HYBRID)
    assert (deepest(found), found.revision) == (2, SIZED)
    # What is kept for bad days is what its pods are made from.
    assert '"maxTokens":2' in found.text


@pytest.mark.parametrize("facts", [PLAIN, UNHEARD, NOT_HERE], ids=lambda each: str(each.absence))
def test_any_other_has_the_usual_room(facts: ModelFacts) -> None:
    found = intent(facts)
    assert (deepest(found), found.revision) == (7, AS_WRITTEN)


@pytest.mark.parametrize(
    ("changes", "cost"),
    [
        ({"speculation.maxTokens": 7}, 7),
        ({"speculation.depths": [2, 5]}, 5),
        ({"speculation.tokens": 9}, 9),
        ({"engine.args": ["--use-replayssm"]}, 7),
    ],
)
def test_what_its_user_says_goes_first(changes: dict[str, Any], cost: int) -> None:
    assert deepest(intent(HYBRID, changes=changes)) == cost


def test_what_runs_with_more_keeps_it_until_an_edit_asks_for_other_pods() -> None:
    kept = Checkpoint(good_spec=good_spec_text(manifest(MTP)), good_revision=AS_WRITTEN)

    found = intent(HYBRID, AS_WRITTEN, kept=kept)
    assert (deepest(found), found.revision) == (7, AS_WRITTEN)
    live = intent(HYBRID, AS_WRITTEN, kept=kept, changes={"speculation.minTokens": 2})
    assert (deepest(live), live.revision) == (7, AS_WRITTEN)

    edited = intent(HYBRID, AS_WRITTEN, kept=kept, changes={"engine.user": 2000})
    assert deepest(edited) == 2
    back = intent(HYBRID, AS_WRITTEN, edited.revision, kept=kept)
    assert (deepest(back), back.revision) == (7, AS_WRITTEN)


@pytest.mark.parametrize("facts", [HYBRID, UNHEARD], ids=["heard", "not heard"])
@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "without a record"])
@pytest.mark.parametrize("at_rest", [True, False])
def test_what_was_started_so_stays_so(facts: ModelFacts, *, recorded: bool, at_rest: bool) -> None:
    first = intent(HYBRID)
    kept = Checkpoint(good_spec=first.text, good_revision=first.revision)

    found = intent(facts, SIZED, kept=kept if recorded else Checkpoint(), at_rest=at_rest)

    assert (deepest(found), found.revision) == (2, SIZED)


def test_pods_of_another_name_without_a_record_keep_theirs() -> None:
    found = intent(HYBRID, "0ld0ld00", at_rest=True)
    assert (deepest(found), found.revision) == (7, "0ld0ld00")


def test_a_bad_spec_falls_back_to_what_was_carried_out() -> None:
    first = intent(HYBRID)
    kept = Checkpoint(good_spec=first.text, good_revision=first.revision)

    found = intent(HYBRID, SIZED, kept=kept, changes={"speculation.tokens": 0})

    assert found.problems
    assert (deepest(found), found.revision) == (2, SIZED)


def test_an_edit_of_tokens_is_a_rollout() -> None:
    first = intent(HYBRID)
    kept = Checkpoint(good_spec=first.text, good_revision=first.revision)
    found = intent(HYBRID, SIZED, kept=kept, changes={"speculation.tokens": 3})
    assert (deepest(found), found.revision) != (3, SIZED)
    assert deepest(found) == 3
