"""Fields and `draft.options` become keys of --speculative-config, each key from one of them."""

import json
from typing import Any

import pytest

from fathom.engine.flags import KEYS, Key, engine_args, speculative_config
from fathom.engine.profile import profile_of
from fathom.validation.engine_checks import draft_options
from manifest_samples import resource
from support.validated import candidate


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"draft.revision": "main"}, {"revision": "main"}),
        ({"draft.tensorParallelSize": 1}, {"draft_tensor_parallel_size": 1}),
        (
            {"speculation.adaptiveVerification": "Enabled", "speculation.tokens": 5},
            {"enable_adaptive_verification": True, "num_speculative_tokens": 7},
        ),
        ({"draft.method": "mtp", "draft.id": None}, {"method": "mtp"}),
    ],
    ids=str,
)
def test_fields_become_keys_of_the_speculative_config(
    changes: dict[str, Any], keys: dict[str, Any]
) -> None:
    args = engine_args(resource(changes).engine)

    config = json.loads(args[args.index("--speculative-config") + 1])

    assert {key: config.get(key) for key in keys} == keys
    assert ("model" in config) == ("draft.id" not in changes)


def test_draft_options_reach_vllm_as_what_they_say() -> None:
    options = {"draft_sample_method": "probabilistic", "prompt_lookup_max": "4", "x": "true"}
    spec = resource({"draft": {"method": "ngram", "options": options}}).spec
    found = speculative_config(profile_of(spec))
    assert found["draft_sample_method"] == "probabilistic"
    assert (found["prompt_lookup_max"], found["x"]) == (4, True)
    assert found["method"] == "ngram"


def test_a_draft_option_that_is_nested_too_deep_is_refused() -> None:
    sd = resource({"draft.options": {"x": "[" * 200 + "]" * 200}})
    (problem,) = draft_options(candidate(sd))
    assert problem.field == "spec.draft.options.x"
    assert problem.message.endswith("write less of it.")


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_a_draft_option_that_has_a_field_is_refused(key: Key) -> None:
    (problem,) = draft_options(candidate(resource({"draft.options": {key.name: "1"}})))
    assert problem.field == f"spec.draft.options.{key.name}"
    assert f"set spec.{key.field} instead" in problem.message


def test_synthetic_acceptance_is_for_static_engines() -> None:
    options = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": "2.27"}
    tuned = candidate(resource({"draft.options": options}))
    assert "says nothing about the draft" in draft_options(tuned)[0].message
    static = resource({"draft.options": options, "speculation.tuning.mode": "Static"})
    assert draft_options(candidate(static)) == ()
