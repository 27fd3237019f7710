"""What tired people write is refused with the field's path, and a cure that they can follow."""

import copy
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from fathom.resource import SpeculationTuner, SpeculativeDeployment, parse, parse_tuner
from manifest_samples import GOOD
from odd_specs import BEYOND_BOUNDS, CHOICES, NAMES, OTHER_TYPES, PLACES

PYTHON = re.compile(
    r"\b(tuple|instance|dict|dictionary|None|True|False|str|int|bool|float|mapping|attribute|"
    r"regex|validation|pydantic)\b|<class|\b[Ii]nput should|\^|\[key\]"
)
NUMBER = re.compile(r"\.(\d+)(?=\.|$)")


def written(path: str, value: object) -> dict[str, Any]:
    """The good manifest with a value at a path."""
    document: dict[str, Any] = copy.deepcopy(dict(GOOD))
    *parents, last = path.split(".")
    place = document
    for parent in parents:
        place = place.setdefault(parent, {})
    place[last] = value
    return document


def refused(document: dict[str, Any]) -> list[str]:
    parsed = parse(document)
    return [] if isinstance(parsed, SpeculativeDeployment) else [str(each) for each in parsed]


def typed(path: str, value: object) -> tuple[dict[str, Any], str]:
    """The manifest, and the path of the value in it."""
    field = re.split(r"\.\d", path)[0]
    return written(f"spec.{field}", value), NUMBER.sub(r"[\1]", f"spec.{path}")


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [(path, *rest) for table in (OTHER_TYPES, BEYOND_BOUNDS) for path, rest in table.items()],
    ids=str,
)
def test_a_value_that_cannot_be_is_refused_where_it_stands(
    path: str, value: object, sentence: str
) -> None:
    document, where = typed(path, value)

    assert refused(document) == [f"{where}: {sentence}"]


def test_no_value_of_a_section_that_must_be_given_is_like_none() -> None:
    for path in ("spec", "spec.model", "spec.engine", "spec.engine.image", "metadata.name"):
        assert refused(written(path, None)) == [f"{path}: required, but missing: set it."]


@pytest.mark.parametrize(("path", "value"), CHOICES, ids=str)
def test_one_of_a_few_suggests_the_nearest(path: str, value: object) -> None:
    shown = repr(value) if isinstance(value, str) else str(value).lower()

    assert refused(written(f"spec.{path}", value)) == [
        f"spec.{path}: {shown} is not one of {CHOICES[path, value]}"
    ]


EFFECTS = "'NoSchedule', 'PreferNoSchedule' or 'NoExecute'"


@pytest.mark.parametrize(
    ("field", "near", "meant"),
    [
        ("operator", "exists", "'Exists' or 'Equal'. Did you mean Exists?"),
        ("effect", "no-schedule", f"{EFFECTS}. Did you mean NoSchedule?"),
    ],
)
def test_so_does_what_is_spelled_as_in_a_pod(field: str, near: str, meant: str) -> None:
    document = written("spec.nodePool.tolerations", [{"key": "a", field: near}])

    assert refused(document) == [
        f"spec.nodePool.tolerations[0].{field}: '{near}' is not one of {meant}"
    ]


@pytest.mark.parametrize("path", PLACES)
def test_a_field_that_is_not_there_says_which_is(path: str) -> None:
    assert refused(written(path, "x")) == [f"{path}: {PLACES[path]}"]


def test_a_field_that_is_not_there_is_no_better_without_a_value() -> None:
    assert refused(written("spec.engine.envFrom", None)) == [
        f"spec.engine.envFrom: {PLACES['spec.engine.envFrom']}"
    ]


@pytest.mark.parametrize(
    ("field", "advice"),
    [
        ("speculation", ". Did you mean tokens?"),
        ("num_speculative_tokens", ". Did you mean tokens?"),
        ("max_depth", ". Did you mean maxTokens?"),
        ("max_num_seqs", ": remove it, or see `kubectl explain spectuner.spec`."),
        ("image", ": remove it, or see `kubectl explain spectuner.spec`."),
        ("bogus", ": remove it, or see `kubectl explain spectuner.spec`."),
        ("model", ": remove it, or see `kubectl explain spectuner.spec`."),
        ("matchLabels", ": set spec.selector.matchLabels instead."),
    ],
)
def test_a_tuner_is_advised_of_its_own_fields(field: str, advice: str) -> None:
    document = {
        "apiVersion": "fathom.dev/v1alpha1",
        "kind": "SpeculationTuner",
        "metadata": {"name": "a"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, field: 3},
    }
    refusal = parse_tuner(document)

    assert not isinstance(refusal, SpeculationTuner)
    assert [str(each) for each in refusal] == [f"spec.{field}: unknown field{advice}"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_cannot_be_offers_one(name: str) -> None:
    (sentence,) = refused(written("metadata.name", name))

    assert sentence.startswith("metadata.name: this ")
    assert sentence.endswith(f". {NAMES[name]} would do.")
    assert refused(written("metadata.name", NAMES[name])) == []


def test_of_a_name_without_a_letter_nothing_is_left_to_offer() -> None:
    (sentence,) = refused(written("metadata.name", "___"))

    assert sentence.endswith("and begin with a letter.")


@pytest.mark.parametrize(("value", "meant"), [("Team_A", "team-a"), ("7.team", "7-team")])
def test_a_namespace_may_begin_with_a_digit(value: str, meant: str) -> None:
    (sentence,) = refused(written("metadata.namespace", value))

    assert sentence.endswith(f". {meant} would do.")


def test_a_name_is_text() -> None:
    (sentence,) = refused(written("metadata.name", 70))

    assert sentence == "metadata.name: 70 is not text: put it in quotes."


def test_the_whole_of_it_is_told_at_once() -> None:
    document = written("spec.engine", {"img": "a", "tensorParallelSize": "4"})

    assert refused(document) == [
        "spec.engine.image: required, but missing: set it.",
        "spec.engine.tensorParallelSize: '4' is text: write 4, without quotes.",
        "spec.engine.img: unknown field. Did you mean image?",
    ]


ANYTHING: Sequence[object] = (
    "x", "", 0, -1, 3, 1.5, True, False, [], [1], ["x"], [None], [[]], [{}], {}, {"a": 1},
    {"a": []}, "x" * 40_000, 10**30,
)  # fmt: skip
PATHS = sorted(
    {"metadata", "metadata.labels", "metadata.labels.a", "kind", "apiVersion", "spec", "status"}
    | {f"spec.{path}" for path in (*OTHER_TYPES, *BEYOND_BOUNDS) if not re.search(r"\d", path)}
    | {f"spec.{path}" for path, _ in CHOICES}
    | set(PLACES)
)


def everything_said() -> Iterator[str]:
    for path in PATHS:
        for value in ANYTHING:
            yield from refused(written(path, value))


def test_nothing_said_is_in_pythons_words() -> None:
    said = set(everything_said())

    assert len(said) > 500
    assert [each for each in said if PYTHON.search(each.partition(": ")[2])] == []
    assert [each for each in said if len(each) > 400 or not each.endswith((".", "?"))] == []
