"""A spec's engine is derived once, however many checks ask for it."""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest
import yaml

from fathom.cli.check import report_of
from fathom.cli.resources import judged
from fathom.resource import SpeculativeDeployment, parse
from golden.rendering import SOURCES

FACTS = (
    "argument_parser.py:EngineArguments.of",
    "depth_set.py:named_depths",
    "cuda_graphs.py:stated_mode",
    "live_depth.py:live_depth_refusal",
    "live_depth.py:why_not_counted",
    "profile.py:profile_of",
    "replica_layout.py:layout_of",
    "start.py:start_of",
    "argument_parser.py:max_num_seqs",
    "start.py:engine_version",
)
"""Functions of `fathom.engine` that derive one."""


def derivations(resource: SpeculativeDeployment) -> Counter[str]:
    found: Counter[str] = Counter()

    def called(frame: FrameType, event: str, _: object) -> None:
        _, in_engine, name = frame.f_code.co_filename.rpartition("/fathom/engine/")
        if event == "call" and in_engine:
            found[f"{name}:{frame.f_code.co_qualname}"] += 1

    sys.setprofile(called)
    try:
        report_of("", resource, judged(resource, {}))
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_each_fact_of_an_engine_is_derived_once(source: Path) -> None:
    resource = parse(yaml.safe_load(source.read_text(encoding="utf-8")))
    assert isinstance(resource, SpeculativeDeployment)

    found = derivations(resource)

    compared = 1 if resource.spec.compares is None else 2
    assert {fact: found[fact] for fact in FACTS} == dict.fromkeys(FACTS, compared)
