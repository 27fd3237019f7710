"""What is said of code that a draft's repository brings into the engine."""

from typing import Any

import pytest

from fathom.api.problem import Severity
from fathom.model_facts import ModelConfig, ModelFacts
from fathom.model_refs import draft_ref, target_ref
from fathom.validation.candidate import candidate_of
from fathom.validation.chain import problems_of
from fathom_intake.model_weights import Weights
from manifest_samples import resource

TRUSTED = {"model.trustRemoteCode": True}
OWN = {"auto_map": {"AutoConfig": "cfg.Own"}}


def said(
    spec: dict[str, Any],
    draft: dict[str, Any] | None = None,
    target: dict[str, Any] | None = None,
    *,
    pickled: bool | None = None,
) -> list[str]:
    """What is said of the draft's code, with these changes to both config.json files."""
    sd = resource({"draft.id": "some/draft", **spec})
    models = {
        target_ref(sd.spec): ModelFacts(config=ModelConfig.from_json(target or {})),
        draft_ref(sd.spec): ModelFacts(
            config=ModelConfig.from_json(draft or {}), weights=Weights(pickled=pickled)
        ),
    }
    found = [each for each in problems_of(candidate_of(sd, models)) if each.rule == "draft-code"]
    assert all(each.severity is Severity.WARNING for each in found)
    return [str(each) for each in found]


def test_code_of_a_draft_beside_a_trusted_target_is_said_aloud() -> None:
    (found,) = said(TRUSTED, OWN)
    assert found == (
        "spec.model.trustRemoteCode: some/draft brings code of its own (auto_map in its "
        "config.json), and vLLM trusts a draft as it trusts the target: that code may run in the "
        "engine. Read it and pin spec.draft.revision, or use a copy without auto_map, if vLLM has "
        "a class for this draft."
    )
    for pinned in ({"draft.revision": "abc"}, {"draft.id": "/models/draft"}):
        (found,) = said(TRUSTED | pinned, OWN)
        assert "Read it, or use a copy" in found


@pytest.mark.parametrize(
    ("spec", "draft", "target"),
    [
        # The example's draft.
        (TRUSTED, {}, OWN),
        ({}, OWN, OWN),
        # What speculators writes, and vLLM never loads.
        (TRUSTED, {"auto_map": {"": "config.Eagle3SpeculatorConfig"}}, {}),
        (TRUSTED, {"auto_map": {"AutoTokenizer": ["own.T", None]}}, {}),
        (TRUSTED, {"auto_map": "cfg.Own"}, {}),
        ({**TRUSTED, "draft.id": None, "draft.method": "ngram"}, OWN, {}),
    ],
)
def test_where_none_runs_nothing_is_said(
    spec: dict[str, Any], draft: dict[str, Any], target: dict[str, Any]
) -> None:
    assert said(spec, draft, target) == []


def test_pickles_alone_are_said_aloud() -> None:
    (found,) = said({}, pickled=True)
    assert found.startswith("spec.draft.id: the weights of some/draft are pickles alone")
    assert said({}, pickled=False) == said({}, pickled=None) == []
