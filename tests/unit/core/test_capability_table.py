"""Whatever the operator passes to vLLM has a place in the table."""

import json
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

from fathom.api.resource import SpeculativeDeployment, parse
from fathom.api.spec import Method
from fathom.core.capability_table import (
    ADAPTIVE_VERIFICATION,
    FLAGS,
    LIVE_DEPTH,
    METHODS,
    SPECULATIVE_CONFIG_KEYS,
    TABLE,
)
from fathom.core.cluster.nodes_per_replica import spans_nodes
from fathom.manifests.group import Role
from fathom.manifests.vllm_args import engine_args

REPOSITORY = Path(__file__).parents[3]
SOURCES = sorted(
    [
        *(REPOSITORY / "tests" / "golden" / "cases").glob("*.yaml"),
        *(REPOSITORY / "examples").glob("*.yaml"),
    ]
)


def generated() -> tuple[set[str], set[str]]:
    """Flags, and keys of --speculative-config, of all golden commands."""
    flags: set[str] = set()
    keys: set[str] = set()
    for source in SOURCES:
        sd = parse(yaml.safe_load(source.read_text(encoding="utf-8")))
        assert isinstance(sd, SpeculativeDeployment)
        roles = [Role.LEADER, Role.WORKER] if spans_nodes(sd.spec) else [Role.LEADER]
        for role in roles:
            args = engine_args(sd.spec, role)
            flags |= {
                each for each in args if each.startswith("--") and each not in sd.spec.engine.args
            }
            if sd.spec.drafts:
                config = json.loads(args[args.index("--speculative-config") + 1])
                keys |= set(config) - set(sd.spec.draft.options)
    return flags, keys


def test_every_flag_and_key_is_in_the_table_and_in_a_golden_case() -> None:
    flags, keys = generated()

    assert flags == set(FLAGS)
    assert keys == set(SPECULATIVE_CONFIG_KEYS)


def test_every_method_is_in_the_table() -> None:
    assert set(METHODS) == set(Method)


def test_no_method_stands_twice_for_adaptive_verification() -> None:
    methods = [method for each in ADAPTIVE_VERIFICATION for method in each.methods]

    assert len(methods) == len(set(methods))


def test_rows_have_names_of_their_own() -> None:
    names = [row.what for row in TABLE]

    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("version", "has"),
    [("0.32.0rc1", False), ("0.32.0", True), ("0.33.1", True), ("0.34.0", False)],
)
def test_a_release_candidate_comes_before_its_release(version: str, has: bool) -> None:  # noqa: FBT001 - see the table above
    assert LIVE_DEPTH.in_version(Version(version)) is has
