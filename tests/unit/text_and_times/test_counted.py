"""A sentence says `1 minute` and `2 minutes`, in every message."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fathom.text import counted

OPERATOR = Path(__file__).parents[3] / "operator"
PACKAGES = ("fathom", "fathom_vllm", "fathom_fetch", "fathom_intake", "fathom_measure")
THINGS = re.compile(
    r" (more |other |ready |surplus )?(bytes|characters|digits|drafts|entries|files|GPUs|hours"
    r"|kinds|levels|minutes|nodes|pods|positions|prompts|reasons|replicas|requests|resources"
    r"|restarts|samples|seconds|steps|times|tokens|windows)\b"
)
NEVER_ONE = {
    "{thousands(first_context(long.index))} tokens": "thousands",
    "{most} minutes": "more than the least, which is 1",
    "{measured.tokens_per_second} tokens": "a rate",
    "{report.tokens_per_second} tokens": "a rate",
    "{summary.tokens_per_second} tokens": "a rate",
    "{self.tokens / self.seconds} tokens": "a rate",
    "{most_bytes} bytes": "what is allowed",
    "{self._largest_page_bytes} bytes": "what is allowed",
    "{len(nodes)} nodes": "one node is said in other words",
    "{layers} tokens": "every depth is a multiple of one",
    "{longest} positions": "every model reads more",
    "{size} GPUs": "every number of heads is a multiple of one",
    "{layout.nodes} nodes": "several",
    "{layout.nodes} pods": "several",
    "{replicas} replicas": "one would not need several nodes",
    "{positions} positions": "every model reads more",
    "{len(found)} characters": "too many",
    "{len(name)} characters": "too many",
    "{pooled.reached[0]} drafts": "fewer tell nothing",
    "{canary.finished} requests": "more than one of them failed",
}
"""What is counted without `counted`, and why it may be."""


def uncounted(source: str) -> Iterator[str]:
    """What an f-string counts in a plural: `{left} more minutes`.

    `1 of 3 replicas` is right as it is; so are constants and what has a fraction.
    """
    for text in ast.walk(ast.parse(source)):
        parts = text.values if isinstance(text, ast.JoinedStr) else []
        for before, shown, after in zip([None, *parts], parts, parts[1:], strict=False):
            if not isinstance(shown, ast.FormattedValue) or not isinstance(after, ast.Constant):
                continue
            of = isinstance(before, ast.Constant) and str(before.value).endswith(" of ")
            fraction = shown.format_spec is not None and ".0f" not in ast.unparse(shown.format_spec)
            names = [each.id for each in ast.walk(shown.value) if isinstance(each, ast.Name)]
            constant = all(name.isupper() or name == "len" for name in names)
            things = THINGS.match(str(after.value))
            if things is not None and not (of or fraction or constant):
                yield f"{{{ast.unparse(shown.value)}}}{things[0]}"


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 minutes"),
        (1, "1 minute"),
        (1.4, "1 minute"),
        (1.6, "2 minutes"),
        (90.0, "90 minutes"),
    ],
)
def test_one_is_not_several(count: float, words: str) -> None:
    assert counted(count, "minute") == words


def test_what_is_said_of_several_may_differ_in_more_than_an_s() -> None:
    assert counted(1, "more pod is", "more pods are") == "1 more pod is"
    assert counted(2, "more pod is", "more pods are") == "2 more pods are"


def test_the_scan_finds_what_is_wrong() -> None:
    assert list(uncounted('f"watched for {left} more minutes"')) == ["{left} more minutes"]
    assert list(uncounted('f"in {n / 60:.0f} minutes"')) == ["{n / 60} minutes"]
    assert list(uncounted('f"{a} of {b} pods, {c:.1f} times, {LIMIT} bytes"')) == []


def test_every_message_counts_so() -> None:
    found = {
        words
        for package in PACKAGES
        for path in (OPERATOR / package).rglob("*.py")
        for words in uncounted(path.read_text(encoding="utf-8"))
    }

    assert found == set(NEVER_ONE), (
        "say a count with `counted` of fathom.text, or say in NEVER_ONE why it is never 1"
    )
