"""Options and draft fields that the engine's release does not know: told, with what is meant."""

from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from fathom.engine import known_options
from fathom.engine.known_options import KnownNames, Takes, known_names, names_in, names_of
from fathom.validation.release_checks import unknown_names
from generators.known_names import known_names as table
from generators.known_names import known_releases, option_rows, rows, value_rows, written
from manifest_samples import resource
from support.validated import candidate


def doubts(*args: str, **options: str) -> list[str]:
    changes: dict[str, Any] = {"engine.args": list(args), "draft.options": options}
    return [str(each) for each in unknown_names(candidate(resource(changes)))]


FILE = Path(known_options.__file__).with_name("known_names.json")
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
    assert gone.startswith("--")
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


def test_options_stand_once_for_all_releases_in_which_they_take_the_same() -> None:
    text, whole = {"takes": "text"}, {"takes": "whole number", "none": True}
    found = option_rows({"1": {"--a": text, "--b": text}, "2": {"--a": text, "--b": whole}})
    assert [(row.names, row.releases, row.takes, row.none) for row in found] == [
        (("--b",), ("1",), Takes.TEXT, False),
        (("--a",), ("1", "2"), Takes.TEXT, False),
        (("--b",), ("2",), Takes.WHOLE, True),
    ]


def test_values_stand_once_for_all_names_of_an_option() -> None:
    found = value_rows(
        {"1": {"--a": ["x"], "-a": ["x"]}, "2": {"--a": ["x", "y"], "-a": ["y", "x"]}}
    )
    assert [(row.of, row.releases, row.names) for row in found] == [
        (("--a", "-a"), ("1", "2"), ("x",)),
        (("--a", "-a"), ("2",), ("y",)),
    ]


def test_what_is_written_is_read_back() -> None:
    answer = {
        "options": {"--a": {"takes": "text"}, "-a": {"takes": "text"}},
        "draft": ["model"],
        "values": {"--a": ["x"]},
        "keys": {},
        "aliases": {"--a": ["-a"]},
    }
    known = table({"0.32.0": answer})
    assert KnownNames.model_validate_json(written(known)) == known
    assert written(known_names()) == FILE.read_text(encoding="utf-8")


def test_a_release_knows_an_option_by_all_its_names() -> None:
    names = names_in(Version("0.32.1"))
    assert names is not None
    assert names.first["-dcp"] == "--decode-context-parallel-size"
    assert names.meant("-n2") == ("-n",)
    assert names.meant("-O3") == ("-O",)
    assert names.meant("--max-num-b") == ("--max-num-batched-tokens",)
    assert len(names.meant("--max-num-s")) == 2
    assert names.meant("--nothing-of-the-kind") == names.meant("-xyz") == ()
    assert names_in(None) is names_in(Version("0.27.0")) is None
