"""Options and draft fields that the engine's release does not know: told, with what is meant."""

from typing import Any

import pytest

from fathom.engine.capability_table import known_names, names_of
from fathom.validation.argument_checks import unknown_names
from generators.known_names import known_releases, rows
from manifest_samples import resource
from support.validated import candidate


def doubts(*args: str, **options: str) -> list[str]:
    changes: dict[str, Any] = {"engine.args": list(args), "draft.options": options}
    return [str(each) for each in unknown_names(candidate(resource(changes)))]


UNKNOWN = "vLLM 0.32.0 does not know"


@pytest.mark.parametrize(
    ("args", "unknown", "advice"),
    [
        (
            ["--gpu-memory-utilisation", "0.9"],
            "--gpu-memory-utilisation",
            ". Did you mean --gpu-memory-utilization?",
        ),
        (
            ["--disable-log-requests"],
            "--disable-log-requests",
            "; 0.33.0 does: remove it, or change",
        ),
        (["--completely_different=3"], "--completely_different", ": remove it."),
        (
            ["--compilation-confog.mode=3"],
            "--compilation-confog",
            ". Did you mean --compilation-config?",
        ),
    ],
    ids=str,
)
def test_an_option_that_stops_the_engine_is_told_with_what_is_meant(
    args: list[str], unknown: str, advice: str
) -> None:
    (doubt,) = doubts("--seed", "1", *args)
    said = f"spec.engine.args[2]: {UNKNOWN} {unknown} and would not start"
    assert doubt.startswith(f"{said}{advice}")


@pytest.mark.parametrize(
    "args",
    [
        ("--gpu-memory-utilization", "0.9"),
        ("--gpu_memory_utilization=0.9",),
        ("--gpu-mem", "0.9"),  # argparse takes a beginning
        ("--compilation-config.mode=3",),
        ("-O3", "-dpa", "1", "--max-logprobs", "-1"),
        ("--no-enable-prefix-caching",),
    ],
    ids=str,
)
def test_what_the_parser_takes_is_no_doubt(args: tuple[str, ...]) -> None:
    assert doubts(*args) == []


def test_a_field_of_the_draft_that_stops_the_engine_is_told() -> None:
    foo, near = doubts(foo_bar="1", draft_sampling_method="x", draft_sample_method="x")
    assert foo == f"spec.draft.options.foo_bar: {UNKNOWN} foo_bar and would not start: remove it."
    assert near.startswith("spec.draft.options.draft_sampling_method: ")
    assert near.endswith(" and would not start. Did you mean draft_sample_method?")


def test_where_no_draft_is_loaded_its_options_matter_to_nobody() -> None:
    changes = {"draft.options": {"foo_bar": "1"}, "speculation.drafting": "Disabled"}
    assert list(unknown_names(candidate(resource(changes)))) == []


def test_an_option_of_other_releases_is_told_with_them() -> None:
    """Some option of each release is new, or gone after it."""
    known = known_names()
    (oldest, *_), newest = known.releases, known.releases[-1]
    gone = min(names_of(oldest, known.options) - names_of(newest, known.options))
    sd = resource({"engine.image": f"vllm/vllm-openai:v{newest}", "engine.args": [gone]})
    (doubt,) = unknown_names(candidate(sd))
    assert f"vLLM {newest} does not know {gone} and would not start; {oldest}" in doubt.message
    assert doubt.message.endswith(": remove it, or change spec.engine.image.")
    before = resource({"engine.image": f"vllm:v{oldest}", "engine.args": [gone]})
    assert list(unknown_names(candidate(before))) == []


@pytest.mark.parametrize(
    "image",
    ["vllm/vllm-openai:latest", "vllm/vllm-openai:v0.27.0", "vllm/vllm-openai:v0.99.0"],
)
def test_of_releases_that_nobody_asked_nothing_is_said(image: str) -> None:
    changes = {"engine.image": image, "engine.args": ["--completely-different"]}
    assert list(unknown_names(candidate(resource(changes)))) == []


def test_a_patch_release_knows_what_the_first_does() -> None:
    changes = {"engine.image": "vllm/vllm-openai:v0.32.1", "engine.args": ["--gpu-memory-use", "1"]}
    (doubt,) = unknown_names(candidate(resource(changes)))
    assert doubt.message.startswith("vLLM 0.32.1 does not know --gpu-memory-use ")


def test_every_release_of_the_capability_table_was_asked() -> None:
    assert known_names().releases == known_releases()


def test_names_stand_once_for_all_releases_that_know_them() -> None:
    answers = {"1": ["a", "b"], "2": ["a", "c"], "3": ["a", "b"]}
    found = rows(answers)
    assert [(row.releases, row.names) for row in found] == [
        (("1", "2", "3"), ("a",)),
        (("1", "3"), ("b",)),
        (("2",), ("c",)),
    ]
    assert {each: sorted(names_of(each, found)) for each in answers} == answers
