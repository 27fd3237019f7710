"""What engines tell of themselves, beside what their arguments ask for."""

import json
from collections.abc import Mapping

import pytest

from fathom.engine.argument_parser import EngineArguments
from fathom.engine.flags import engine_args
from fathom.engine.profile import profile_of
from fathom.engine.report import (
    NOTHING_TOLD,
    Difference,
    EngineReport,
    ServedPair,
    asked_by,
    device_in,
    differences,
    report_in,
    served_by,
    served_by_all,
)
from manifest_samples import resource


@pytest.mark.parametrize(
    ("label", "value"),
    [
        ("max_num_seqs", ""),
        ("max_num_seqs", "many"),
        ("max_num_seqs", "-1"),
        ("max_num_seqs", "9" * 400),
        ("depths", "0,,3"),
        ("depths", "0,1000000"),
        ("capture_sizes", "1," * 5000 + "1"),
        ("method", "a sentence with spaces"),
        ("vllm_version", "x" * 1000),
        ("graph_mode", "NONE\nfathom_live_depth 1"),
        ("asynchronous", "perhaps"),
        ("of_a_later_plugin", "1"),
    ],
)
def test_what_cannot_be_read_is_not_told(label: str, value: str) -> None:
    assert report_in({label: value}) == NOTHING_TOLD


def test_lists_are_told_number_by_number_and_depths_in_order() -> None:
    assert report_in({"capture_sizes": "1,2,4", "depths": "3,0,1"}) == EngineReport(
        capture_sizes=(1, 2, 4), depths=(0, 1, 3)
    )


@pytest.mark.parametrize("labels", [{}, {"device": "x" * 65}, {"device": "two\nlines"}])
def test_a_device_has_a_name_of_one_short_line(labels: Mapping[str, str]) -> None:
    assert device_in(labels) == ""


def test_a_rendered_command_asks_for_what_the_spec_says() -> None:
    args = ["--max-num-seqs", "64", "--max-num-batched-tokens", "2k", "--no-async-scheduling"]
    spec = resource(
        {
            "speculation": {"tokens": 3, "depths": [1, 3, 7]},
            "engine.args": args,
        }
    ).spec

    assert asked_by(EngineArguments.of(engine_args(profile_of(spec)))) == EngineReport(
        depths=(0, 1, 3, 7),
        method=spec.draft.method.value,
        max_num_seqs=64,
        token_budget=2000,
        asynchronous=False,
    )


@pytest.mark.parametrize(
    ("args", "asked"),
    [
        ((), NOTHING_TOLD),
        (("--speculative-config", "not JSON"), NOTHING_TOLD),
        (("--speculative-config", "[1]"), NOTHING_TOLD),
        (
            ("--speculative-config", json.dumps({"num_speculative_tokens": 3})),
            EngineReport(depths=(3,)),
        ),
        (
            (
                "--speculative-config",
                '{"num_speculative_tokens_per_batch_size": [[1, 2, "x"], []]}',
            ),
            NOTHING_TOLD,
        ),
        (("--async-scheduling",), EngineReport(asynchronous=True)),
    ],
)
def test_what_arguments_leave_open_is_not_asked_for(
    args: tuple[str, ...], asked: EngineReport
) -> None:
    assert asked_by(EngineArguments.of(args)) == asked


ASKED = EngineReport(
    version="0.32.0", depths=(0, 1, 3, 7), method="eagle3", max_num_seqs=256, token_budget=8192,
    asynchronous=True, tensor_parallel=4,
)  # fmt: skip


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (NOTHING_TOLD, []),
        (ASKED, []),
        (EngineReport(version="0.32.1.dev4+g1a2b3c"), []),
        (EngineReport(version="nobody's number"), []),
        (EngineReport(version="0.28.0"), [("vLLM", "0.28", "0.32")]),
        (EngineReport(method="mtp"), [("method", "mtp", "eagle3")]),
        (EngineReport(depths=(7,)), [("depths", "7", "0, 1, 3, 7")]),
        (
            EngineReport(max_num_seqs=128, token_budget=2048),
            [("max_num_seqs", "128", "256"), ("max_num_batched_tokens", "2048", "8192")],
        ),
        (EngineReport(asynchronous=False), [("async_scheduling", "false", "true")]),
        (EngineReport(tensor_parallel=8), [("tensor_parallel_size", "8", "4")]),
        (EngineReport(runner="V1", graph_mode="NONE", devices=8), []),
    ],
)
def test_only_what_both_know_can_differ(
    told: EngineReport, found: list[tuple[str, str, str]]
) -> None:
    assert [*differences(told, ASKED)] == [Difference(*each) for each in found]
    assert [*differences(told, NOTHING_TOLD)] == []


@pytest.mark.parametrize(
    "config",
    [
        '{"num_speculative_tokens": [3]}',
        '{"num_speculative_tokens_per_batch_size": [[1, 4, [3]]]}',
    ],
)
def test_depths_that_are_no_numbers_are_not_told(config: str) -> None:
    """A webhook may have written anything."""
    assert asked_by(EngineArguments.of(("--speculative-config", config))).depths == ()


# What is served


COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = COMMIT[::-1]


def pair(*words: str, image: str = "vllm:1", name: str = "main", **sidecars: str) -> ServedPair:
    others = {each: (found, ("run",)) for each, found in sidecars.items()}
    found = served_by({**others, name: (image, words)})
    assert found is not None
    return found


def drafting(model: str = "org/draft", revision: str = COMMIT) -> str:
    return json.dumps({"method": "eagle3", "model": model, "revision": revision})


KNOWN = ("vllm", "serve", "org/target", "--revision", COMMIT, "--speculative-config", drafting())


@pytest.mark.parametrize(
    "words",
    [
        KNOWN[2:],
        ("--model", "org/target", *KNOWN[3:]),
        ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model=org/target", *KNOWN[3:]),
        (*KNOWN, "--max-num-seqs", "64"),
        (
            *("vllm", "serve", "org/target", f"--revision={COMMIT}", "-sc.model", "org/draft"),
            *("-sc.revision", COMMIT, "-sc.method", "eagle3", "-sc.num_speculative_tokens", "5"),
        ),
    ],
    ids=["the image serves", "by an option", "by the old server", "more arguments", "key by key"],
)
def test_the_same_models_are_the_same_however_they_are_written(words: tuple[str, ...]) -> None:
    assert pair(*words).has_models_of(pair(*KNOWN))
    assert pair(*words).engine != pair(*KNOWN).engine
    assert pair(*words).commits


@pytest.mark.parametrize(
    "other",
    [
        (*KNOWN[:2], "org/other", *KNOWN[3:]),
        (*KNOWN[:4], OTHER, *KNOWN[5:]),
        (*KNOWN[:6], drafting("org/other")),
        (*KNOWN[:6], drafting(revision=OTHER)),
        (*KNOWN[:6], json.dumps({"method": "mtp"})),
    ],
    ids=["target", "its commit", "draft", "its commit", "method"],
)
def test_other_models_are_told_from_them(other: tuple[str, ...]) -> None:
    assert not pair(*other).has_models_of(pair(*KNOWN))


@pytest.mark.parametrize(
    ("words", "commits"),
    [
        ((*KNOWN[:4], "main", *KNOWN[5:]), False),
        ((*KNOWN[:6], drafting(revision="main")), False),
        ((*KNOWN[:6], drafting(revision="")), False),
        ((*KNOWN[:6], json.dumps({"method": "mtp"})), True),
    ],
    ids=["a branch", "a draft's branch", "nothing", "a draft that comes with its target"],
)
def test_only_commits_fix_weights(words: tuple[str, ...], *, commits: bool) -> None:
    assert pair(*words).commits is commits


def test_where_no_draft_can_be_read_any_change_may_be_one() -> None:
    script = pair("sh", "-c", "vllm serve org/target --speculative-config '{}'")
    assert not script.has_models_of(pair("sh", "-c", "vllm serve org/target"))
    assert not script.has_models_of(pair("sh", "-c", script.target, image="vllm:2"))
    assert not script.commits


def test_another_image_runs_the_same_models() -> None:
    assert pair(*KNOWN, image="vllm:2").has_models_of(pair(*KNOWN))
    assert pair(*KNOWN, image="vllm:2").engine != pair(*KNOWN).engine


def test_sidecars_are_not_the_engine() -> None:
    assert pair(*KNOWN, proxy="envoy:1") == pair(*KNOWN, proxy="envoy:2")
    by_name = pair("sh", "-c", "serve", name="vllm", proxy="envoy:1")
    assert by_name == pair("sh", "-c", "serve", name="vllm")
    assert served_by({"one": ("a", ("x",)), "two": ("b", ("y",))}) is None
    assert served_by({}) is None


def test_several_pods_serve_a_pair_only_where_all_serve_the_same_models() -> None:
    one, more, other = pair(*KNOWN), pair(*KNOWN, "--seed", "1"), pair("org/other", *KNOWN[3:])
    assert served_by_all([one, one]) == one
    mixed = served_by_all([one, more])
    assert mixed == served_by_all([more, one, one])
    assert mixed is not None
    assert mixed.has_models_of(one)
    assert mixed.engine not in {one.engine, more.engine}
    assert served_by_all([one, other]) is None
    assert served_by_all([one, None]) is None
    assert served_by_all([]) is None
