"""What `check` sees to where --max-num-batched-tokens bounds what a step drafts."""

from typing import Any

import pytest

from fathom.engine.depth import buckets
from fathom.tuning.policy.option import Bounds
from manifest_samples import resource
from support.validated import errors, warnings

EAGER = "--enforce-eager"
"""All depths up to `maxTokens` are there."""


def doubts(*args: str, **changes: Any) -> list[str]:
    sd = resource({"engine.args": list(args), **changes})
    assert errors(sd) == ()
    return [str(each) for each in warnings(sd)]


def test_it_is_told_up_to_which_batch_each_deeper_depth_is_used() -> None:
    tokens = {"speculation.tokens": 2}

    (doubt,) = doubts("--max-num-seqs=256", "--max_num_batched_tokens=2k", **tokens)

    assert doubt == (
        "spec.engine.args: --max-num-batched-tokens lets a step hold 2000 tokens, and a request "
        "with k drafts takes k + 1 of them. Fathom leaves half of them to prompts, so that of "
        "batches up to 256 depth 3 is used up to 224, depth 5 is used up to 160, depth 7 is used "
        "up to 112: raise it to 4096 to have all of them at every batch."
    )


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        (4096, None),  # 2 · 256 · (7 + 1)
        (4095, "depth 7 is used up to 224: raise it to 4096"),
        (3072, "batches up to 256 depth 7 is used up to 192: raise"),
    ],
)
def test_only_what_is_restricted_is_told(budget: int, told: str | None) -> None:
    found = doubts("--max-num-seqs=256", f"--max-num-batched-tokens={budget}")

    assert [told is not None and told in each for each in found] == ([True] if told else [])


def test_what_is_told_holds_for_whole_buckets_of_the_tuner_s() -> None:
    eager = (EAGER, "--max-num-seqs=250")  # in the bucket of 225 to 256

    (doubt,) = doubts(*eager, "--max-num-batched-tokens=4000", **{"speculation.tokens": 6})

    assert "of batches up to 250 depth 7 is used up to 224: raise it to 4096 to have" in doubt
    assert doubts(*eager, "--max-num-batched-tokens=4096", **{"speculation.tokens": 6}) == []


@pytest.mark.parametrize("budget", [*range(256, 2200, 37), 2048, 4000, 4095])
def test_the_tuner_chooses_what_is_told(budget: int) -> None:
    most, depth = 256, 7
    bounds = Bounds(depths=(3, depth), tokens=3, min_gain=0.0, token_budget=budget)
    chosen = [bucket for bucket in buckets(most) if depth in bounds.at(bucket)]
    told = f"is used up to {max(chosen)}: raise" if chosen else "is used at none: raise"

    found = doubts(f"--max-num-seqs={most}", f"--max-num-batched-tokens={budget}")

    assert f"depth {depth} {told} it to 4096 to have" in found[-1]


def test_a_depth_that_has_no_place_at_all_is_told() -> None:
    (doubt,) = doubts(
        EAGER, "--max-num-seqs=2", "--max-num-batched-tokens=15", **{"speculation.tokens": 6}
    )

    assert "of batches up to 2 depth 7 is used at none: raise it to 32 to have" in doubt


@pytest.mark.parametrize(
    "changes",
    [
        {"speculation.tokens": 7},
        {"speculation.maxTokens": 3},
        {"speculation.tuning.mode": "Static"},
        {"engine.dataParallelSize": 2, "engine.tensorParallelSize": 2},
        {"speculation.depths": [1, 3]},
    ],
    ids=str,
)
def test_nothing_is_told_where_no_deeper_depth_can_be_chosen(changes: dict[str, Any]) -> None:
    assert doubts("--max-num-seqs=256", "--max-num-batched-tokens=2048", **changes) == []


@pytest.mark.parametrize("args", [[], ["--max-num-batched-tokens=-1"]], ids=str)
def test_a_budget_that_is_not_known_is_not_judged(args: list[str]) -> None:
    assert doubts(*args) == []


@pytest.mark.parametrize(
    "changes",
    [{"speculation.tuning.mode": "Static"}, {"speculation.maxTokens": 3}],
    ids=["static", "live"],
)
def test_requests_that_wait_at_the_user_s_own_depth_are_told(changes: dict[str, Any]) -> None:
    assert doubts("--max-num-seqs=128", "--max-num-batched-tokens=512", **changes) == []

    (doubt,) = doubts("--max-num-seqs=256", "--max-num-batched-tokens=512", **changes)

    assert doubt == (
        "spec.engine.args: --max-num-batched-tokens lets a step hold 512 tokens, and at "
        "speculation.tokens (3) a request takes 4 of them: vLLM schedules 128 requests in a step "
        "at most, and the others of up to 256 wait: raise it to 1024 or more."
    )


def test_one_request_is_scheduled_whatever_its_drafts() -> None:
    static = {"speculation.tuning.mode": "Static"}

    (doubt,) = doubts("--max-num-seqs=2", "--max-num-batched-tokens=3", **static)

    assert "vLLM schedules 1 request in a step at most, and the others of up to 2 wait" in doubt


def test_without_drafts_a_request_takes_one() -> None:
    off = {"speculation.drafting": "Disabled"}

    assert doubts("--max-num-seqs=256", "--max-num-batched-tokens=512", **off) == []


def test_both_are_told_where_both_hold() -> None:
    own, deeper = doubts("--max-num-seqs=256", "--max-num-batched-tokens=512")

    assert "at speculation.tokens (3)" in own
    assert "depth 7 is used up to 32" in deeper


LORA = ("--enable-lora", "--max-num-seqs=64")


def refusals(*args: str, **changes: Any) -> list[str]:
    image = {"engine.image": "vllm/vllm-openai:v0.32.0"}
    return [str(each) for each in errors(resource({**image, "engine.args": list(args), **changes}))]


def test_with_adapters_a_step_holds_the_drafts_of_all_requests() -> None:
    """Depth 7 is Fathom's own, so that an engine which starts alone would not start with it."""
    (refusal,) = refusals(*LORA, "--max-num-batched-tokens=511", **{"speculation.tokens": 3})
    assert refusal == (
        "spec.engine.args: with --enable-lora vLLM stops at start where a step does not hold the "
        "drafts of all requests: 64 requests with up to 7 take 512 tokens, and "
        "--max-num-batched-tokens is 511: set it to 512, or speculation.maxTokens to 6."
    )
    (refusal,) = refusals(*LORA, "--max-num-batched-tokens=255", **{"speculation.tokens": 3})
    assert refusal.endswith("is 255: set it to 512.")


@pytest.mark.parametrize(
    ("args", "changes"),
    [
        ((*LORA, "--max-num-batched-tokens=512"), {}),
        ((*LORA, "--max-num-batched-tokens=256"), {"speculation.maxTokens": 3}),
        ((*LORA, "--max-num-batched-tokens=256"), {"speculation.tuning.mode": "Static"}),
        ((*LORA, "--max-num-batched-tokens=64"), {"speculation.drafting": "Disabled"}),
        ((*LORA, "--no-enable-lora", "--max-num-batched-tokens=256"), {}),
        (("--max-num-seqs=64", "--max-num-batched-tokens=256"), {}),
        # What vLLM takes where nobody says it depends on the GPU.
        (LORA, {}),
    ],
)
def test_what_holds_them_is_taken(args: tuple[str, ...], changes: dict[str, Any]) -> None:
    assert refusals(*args, **{"speculation.tokens": 3, **changes}) == []


NGRAM = {"draft.method": "ngram", "draft.id": None}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (NGRAM, "method ngram"),
        (
            {"draft.options": {"disable_padded_drafter_batch": "true"}},
            "spec.draft.options.disable_padded_drafter_batch",
        ),
    ],
)
def test_asynchronous_scheduling_that_a_method_cannot_have_is_refused(
    changes: dict[str, Any], why: str
) -> None:
    (refusal,) = refusals("--async-scheduling", **changes)
    assert refusal == (
        f"spec.engine.args[0]: vLLM stops at start: {why} excludes --async-scheduling. Remove it, "
        "and vLLM schedules each step by itself."
    )
    assert refusals("--async-scheduling", "--no-async-scheduling", **changes) == []
    assert refusals(**changes) == []


@pytest.mark.parametrize("method", ["eagle3", "eagle", "dflash", "draft_model"])
def test_a_method_that_can_have_it_is_taken(method: str) -> None:
    assert refusals("--async-scheduling", **{"draft.method": method}) == []


FEW: dict[str, Any] = {"speculation.tokens": 3}


def unnamed(*args: str, **changes: Any) -> list[str]:
    found = warnings(resource({"engine.args": [*args], **FEW, **changes}))
    return [each.message for each in found if each.rule == "depths-named"]


@pytest.mark.parametrize(
    ("most", "changes", "depths"),
    [
        ("2", {}, "depth 7"),
        ("3", {}, "depth 7"),
        ("1", {}, "depths 1, 7"),
        ("1", {"speculation.minTokens": 0}, "depths 0, 1, 7"),
        ("2", {"speculation.tokens": 7}, "depth 7"),
    ],
)
def test_depths_without_a_place_in_the_startup_schedule_are_told(
    most: str, changes: dict[str, Any], depths: str
) -> None:
    (said,) = unnamed("--max-num-seqs", most, **changes)
    assert said.startswith(
        f"--max-num-seqs {most} leaves the startup schedule no place for {depths}, so that "
    )
    assert "raise it to 4," in said


@pytest.mark.parametrize(
    ("args", "changes"),
    [
        (("--max-num-seqs=4",), {}),
        (("--max-num-seqs=3",), {"speculation.depths": [1, 3]}),
        (("--max-num-seqs=2", "--enforce-eager"), {}),
        (("--max-num-seqs=2", "-cc.cudagraph_mode=PIECEWISE"), {}),
        (("--max-num-seqs=2",), {"speculation.tuning.mode": "Static"}),
        (("--max-num-seqs=2",), {"speculation.depths": [3]}),
    ],
)
def test_where_each_depth_has_one_nothing_is_said(
    args: tuple[str, ...], changes: dict[str, Any]
) -> None:
    assert unnamed(*args, **changes) == []
