import json
from collections.abc import Sequence

import pytest

from fathom.rollout.value_changes import OptionChange, changed_options

CONFIG = {"method": "eagle3", "num_speculative_tokens": 3}
SCHEDULE = "num_speculative_tokens_per_batch_size"


def spec(**keys: object) -> list[str]:
    return ["--speculative-config", json.dumps(CONFIG | keys)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["m", "--a", "1", "--b"], ["m", "--b", "--a", "1"]),
        (["--max-num-seqs=16"], ["--max_num_seqs", "16"]),
        (["--config.key", "1"], ["--config.key=1"]),
        (["--c", '{"a": 1, "b": [2]}'], ["--c", '{"b":[2],"a":1}']),
        (["--seed", "-1"], ["--seed=-1"]),
        ([], []),
    ],
)
def test_what_means_the_same_is_no_difference(before: Sequence[str], after: Sequence[str]) -> None:
    assert changed_options(before, after) == ()


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        (["m"], ["n"], [("", "m", "n")]),
        (["--a", "1"], ["--a=2"], [("--a", "1", "2")]),
        (["--a"], ["--no-a"], [("--no-a", None, ""), ("--a", "", None)]),
        (["--sizes", "1", "2"], ["--sizes", "1", "4"], [("--sizes", "1 2", "1 4")]),
        (
            ["--a", "1", "--b", "1"],
            ["--b", "2", "--a", "2"],
            [("--b", "1", "2"), ("--a", "1", "2")],
        ),
        (["--a", "1"], ["--a", "1", "--a", "2"], [("--a", "1", "1 2")]),
        (["--c.x", "1"], ["--c.y", "1"], [("--c.y", None, "1"), ("--c.x", "1", None)]),
        (["--seed", "-1"], ["--seed", "-2"], [("--seed", "-1", "-2")]),
        (["--c", '{"a":{"b":1}}'], ["--c", '{"a":{"b":2}}'], [("--c: a.b", "1", "2")]),
        (
            ["--c", '{"a":1}'],
            ["--c", '{"b":null}'],
            [("--c: b", None, "null"), ("--c: a", "1", None)],
        ),
        (["--c", '{"a":1}'], ["--c", "none"], [("--c", '{"a":1}', "none")]),
        (
            ["--c", '{"auth_token":"x"}', "--api-key", "x", "--max-tokens", "1"],
            ["--c", '{"auth_token":"y"}', "--api-key", "y", "--max-tokens", "2"],
            [
                ("--c: auth_token", "(hidden)", "(hidden)"),
                ("--api-key", "(hidden)", "(hidden)"),
                ("--max-tokens", "1", "2"),
            ],
        ),
        (
            ["--c", '{"list":[{"token":"x"}]}'],
            ["--c", '{"list":[]}'],
            [("--c: list", '[{"token":"(hidden)"}]', "[]")],
        ),
    ],
)
def test_each_difference_is_named(
    before: Sequence[str], after: Sequence[str], changes: Sequence[tuple[str, str, str]]
) -> None:
    assert changed_options(before, after) == tuple(OptionChange(*change) for change in changes)


def test_the_startup_schedule_comes_last() -> None:
    """It follows from `--max-num-seqs`, which the user did change."""
    before = [*spec(**{SCHEDULE: [[1, 16, 3]]}), "--max-num-seqs", "16"]
    after = [*spec(**{SCHEDULE: [[1, 32, 3]]}), "--max-num-seqs", "32"]

    names = [change.name for change in changed_options(before, after)]

    assert names == ["--max-num-seqs", f"--speculative-config: {SCHEDULE}"]
