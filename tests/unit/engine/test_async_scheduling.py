"""What turns asynchronous scheduling off; vLLM's own answers are asked in the engine tier."""

from typing import Any

import pytest

from manifest_samples import resource

NEWER = {"engine.image": "vllm/vllm-openai:v0.33.0"}
V1 = {"engine.env": [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"}]}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"engine.args": ["--no_async_scheduling"]}, "--no_async_scheduling in spec.engine.args"),
        ({"engine.args": ["--no-async-scheduling", "--async-scheduling"]}, ""),
        ({"engine.args": ["--async-s", "--no-async-s"]}, "--no-async-s in spec.engine.args"),
        ({"draft": {"method": "ngram"}}, "method ngram"),
        ({"draft": {"method": "ngram_gpu"}}, ""),
        ({"engine.args": ["--async-scheduling"], "draft": {"method": "ngram"}}, "method ngram"),
        (
            {
                "engine.args": ["--async-scheduling"],
                "draft.options": {"disable_padded_drafter_batch": "true"},
            },
            "spec.draft.options.disable_padded_drafter_batch",
        ),
        (
            {"draft.options": {"disable_padded_drafter_batch": "true"}},
            "spec.draft.options.disable_padded_drafter_batch",
        ),
        ({"draft.options": {"disable_padded_drafter_batch": "false"}}, ""),
        ({**NEWER, "draft": {"method": "ngram"}}, ""),
        ({**NEWER, **V1, "draft": {"method": "ngram"}}, "method ngram"),
        ({**NEWER, "draft": {"method": "suffix"}}, "method suffix"),
        ({**NEWER, "draft.options": {"disable_padded_drafter_batch": "true"}}, ""),
        (
            {**NEWER, "engine.args": ["--no-async-scheduling"]},
            "--no-async-scheduling in spec.engine.args",
        ),
    ],
    ids=str,
)
def test_what_turns_it_off_is_named_as_the_user_wrote_it(changes: dict[str, Any], why: str) -> None:
    assert resource(changes).engine.start.synchronous == why


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"engine.args": ["--no_async_scheduling"]}, "remove --no_async_scheduling"),
        ({"draft": {"method": "ngram"}}, "choose another method, such as ngram_gpu"),
        (
            {**V1, "draft.options": {"disable_padded_drafter_batch": "true"}},
            "remove spec.draft.options.disable_padded_drafter_batch",
        ),
    ],
    ids=str,
)
def test_what_turns_it_off_is_what_has_to_go(changes: dict[str, Any], remedy: str) -> None:
    assert resource(changes).engine.start.remedy_of_synchronous == remedy
