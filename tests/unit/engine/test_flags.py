"""One table says which flags are passed, and which field of the spec each of them is."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pydantic.fields import FieldInfo

from fathom.api.models import DraftSpec
from fathom.api.spec import EngineSpec
from fathom.engine.capability_table import EVERY_RELEASE, TABLE
from fathom.engine.flags import FLAGS, KEYS, engine_args
from fathom.engine.replica_layout import Role
from fathom.resource import SpeculativeDeployment, parse

REPOSITORY = Path(__file__).parents[3]
SOURCES = sorted(
    [
        *(REPOSITORY / "tests" / "golden" / "cases").glob("*.yaml"),
        *(REPOSITORY / "examples").glob("*.yaml"),
    ]
)
NO_FLAGS = {
    "engine.image": "the container has it",
    "engine.version": "the operator asks what this release can do",
    "engine.args": "they are flags already",
    "engine.env": "the container has it",
    "engine.resources": "the container has them",
    "engine.sharedMemory": "a volume of the pod",
    "engine.user": "the pod's security context has it",
    "engine.startupMinutes": "the startup probe has it",
}
"""Fields of the engine that no flag of vLLM is made from."""
THAT_REFUSE = {"flags.py", "argument_checks.py"}
"""Modules that name options because no argument may be one of them."""
THAT_READ_PODS = {"report.py"}
"""Modules that read the arguments of pods, among which fields are flags already."""
NO_KEYS = {
    "draft.options": "they are keys already",
    "draft.trial": "it is the draft of the one replica that tries it",
    "draft.training": "a Job trains, and no engine does",
}


def generated() -> tuple[set[str], set[str]]:
    """Flags, and keys of --speculative-config, of all golden commands."""
    flags: set[str] = set()
    keys: set[str] = set()
    for source in SOURCES:
        sd = parse(yaml.safe_load(source.read_text(encoding="utf-8")))
        assert isinstance(sd, SpeculativeDeployment)
        roles = [Role.LEADER, Role.WORKER] if sd.engine.layout.spans_nodes else [Role.LEADER]
        for role in roles:
            args = engine_args(sd.engine, role)
            flags |= {
                each for each in args if each.startswith("--") and each not in sd.spec.engine.args
            }
            if sd.spec.drafts:
                config = json.loads(args[args.index("--speculative-config") + 1])
                keys |= set(config) - set(sd.spec.draft.options)
    return flags, keys


def test_every_flag_and_key_that_may_be_passed_is_in_a_golden_case() -> None:
    flags, keys = generated()

    assert flags == {flag.name for flag in FLAGS if flag.value is not None}
    assert keys == {key.name for key in KEYS}


@pytest.mark.parametrize("field", EngineSpec.model_fields.values(), ids=lambda field: field.alias)
def test_every_field_of_the_engine_is_a_flag_or_is_known_to_be_none(field: FieldInfo) -> None:
    name = f"engine.{field.alias}"

    assert (name in NO_FLAGS) != any(flag.field == name for flag in FLAGS), (
        f"spec.{name} becomes a flag of vLLM by a row of FLAGS in "
        "operator/fathom/engine/flags.py; if it is no flag, say in NO_FLAGS of "
        "this test where it goes."
    )


def looked_for() -> Iterator[tuple[str, str]]:
    """Beginnings of options that the operator looks for in `spec.engine.args`, and where."""
    for module in sorted((REPOSITORY / "operator" / "fathom").rglob("*.py")):
        text = module.read_text(encoding="utf-8")
        # What a bench gives to its load generator is no argument of the engine, and a host's engine
        # has no spec.
        elsewhere = module.parent.name in {"attach", "bench"}
        if '"--' not in text or module.name in THAT_REFUSE | THAT_READ_PODS or elsewhere:
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            if node.value.startswith("--") and len(node.value) > len("--no-"):
                yield node.value, f"{module.relative_to(REPOSITORY)}:{node.lineno}"


def test_what_has_a_field_is_not_looked_for_among_the_arguments() -> None:
    where = [
        f"spec.{flag.field} stands for {flag.name}: {place} looks for {option}, which "
        "spec.engine.args may not have any more; let it read the field"
        for option, place in looked_for()
        for flag in FLAGS
        if flag.field and flag.name.startswith(option)
    ]

    assert not where, "\n".join(where)


@pytest.mark.parametrize("field", DraftSpec.model_fields.values(), ids=lambda field: field.alias)
def test_every_field_of_the_draft_is_a_key_or_is_known_to_be_none(field: FieldInfo) -> None:
    name = f"draft.{field.alias}"

    assert (name in NO_KEYS) != any(key.field == name for key in KEYS), (
        f"spec.{name} becomes a key of --speculative-config by a row of KEYS in "
        "operator/fathom/engine/flags.py; if it is no key, say in "
        "NO_KEYS of this test where it goes."
    )


def test_no_name_stands_twice() -> None:
    names = [name for flag in FLAGS for name in flag.names]

    assert len(names) == len(set(names))


def test_a_flag_that_came_late_has_a_row_among_what_releases_can_do() -> None:
    rows = {row.what: row.capability for row in TABLE}
    late = {f"`{flag.name}`": flag.since for flag in FLAGS if flag.since is not EVERY_RELEASE}

    assert late
    assert late.items() <= rows.items()
