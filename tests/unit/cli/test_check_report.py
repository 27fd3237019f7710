"""How `fathom check` prints what it found."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fathom.api.problem import Problem, Severity, warning
from fathom.cli.check_report import COLUMNS, MOST_LINES, CheckList, CheckReport, Fact, findings
from fathom.cli.check_report import lines_of as lines
from fathom.cli.main import app
from support.pages import REPOSITORY

LONG = (
    "this option is not known to this release of vLLM, which would stop at start because of it. "
    * 3
)


def report(problems: int, *, facts: int = 5, errors: bool = False) -> CheckReport:
    severity = Severity.ERROR if errors else Severity.WARNING
    found = [
        Problem(
            field=f"spec.engine.args[{n}]", message=LONG, severity=severity, rule="option-names"
        )
        for n in range(problems)
    ]
    return CheckReport(
        file="kimi.yaml",
        name="kimi",
        verdict="refused" if errors else "valid",
        revision="" if errors else "d991f159",
        findings=findings(found),
        facts=tuple(Fact(label=f"fact {n}", text="known. " * 30) for n in range(facts)),
        bill=("GPUs: 2 replicas × 4 GPUs (GB200) = 8",),
    )


@pytest.mark.parametrize("problems", [0, 1, 3, 40])
@pytest.mark.parametrize("facts", [0, 5, 30])
@pytest.mark.parametrize("errors", [False, True])
def test_it_fits_a_screen(problems: int, facts: int, *, errors: bool) -> None:
    printed = list(lines(report(problems, facts=facts, errors=errors), in_full=False))
    assert len(printed) <= MOST_LINES
    assert max(map(len, printed)) <= COLUMNS


def test_what_is_left_out_is_counted_and_shown_in_full() -> None:
    given = report(40)
    printed = list(lines(given, in_full=False))
    shown = sum("warning [option-names]" in line for line in printed)
    assert f"  and {40 - shown} more (-v)" in printed
    in_full = "\n".join(lines(given, in_full=True))
    assert in_full.count("warning [option-names]") == 40
    assert "more (-v)" not in in_full


def test_the_verdict_comes_first_and_the_bill_last() -> None:
    printed = list(lines(report(1), in_full=False))
    assert printed[0] == "! kimi: valid, revision d991f159"
    assert printed[1].startswith("  warning [option-names] spec.engine.args[0]: ")
    assert printed[-1] == "  GPUs: 2 replicas × 4 GPUs (GB200) = 8"
    assert next(lines(report(0), in_full=False)).startswith("✔ kimi")
    assert next(lines(report(1, errors=True), in_full=False)) == "✘ kimi: refused"


def test_a_silenced_warning_is_named_with_its_reason_and_does_not_count() -> None:
    quiet = Problem(
        field="spec.engine.args[0]",
        message="slow.",
        severity=Severity.WARNING,
        rule="option-names",
        silenced="our fork has it",
    )
    given = report(0).model_copy(update={"findings": findings([quiet])})
    printed = list(lines(given, in_full=False))
    assert printed[0].startswith("✔")
    assert (
        printed[1] == "  1 finding is silenced: option-names spec.engine.args[0] (our fork has it)."
    )


def test_the_document_says_its_version() -> None:
    given = report(0).model_copy(update={"findings": findings([warning("spec", "slow.")])})
    document = json.loads(CheckList(items=(given,)).model_dump_json(by_alias=True))
    assert (document["apiVersion"], document["kind"]) == ("cli.fathom.dev/v1alpha1", "CheckList")
    assert document["items"][0]["findings"][0] == {
        "rule": "",
        "severity": "warning",
        "field": "spec",
        "message": "slow.",
        "silenced": "",
    }


EXAMPLES = [
    path
    for path in sorted((REPOSITORY / "examples").rglob("*.yaml"))
    if "\nkind: SpeculativeDeployment\n" in path.read_text(encoding="utf-8")
]


def by_resource(printed: Sequence[str]) -> Iterator[Sequence[str]]:
    """The lines of each resource, of which the first begins with its verdict."""
    starts = [at for at, line in enumerate(printed) if line[0] in "✔!✘"]
    for start, end in zip(starts, [*starts[1:], len(printed)], strict=True):
        yield printed[start:end]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_each_example_fits_a_screen(example: Path) -> None:
    result = CliRunner().invoke(app, ["check", "--offline", "-f", str(example)])
    printed = result.stdout.splitlines()
    of_one = list(by_resource(printed))
    assert of_one
    assert max(map(len, of_one)) <= MOST_LINES
    assert max(map(len, printed)) <= COLUMNS


def test_it_takes_few_processor_seconds() -> None:
    before = os.times()
    example = REPOSITORY / "examples" / "kimi-k2.6-gb200.yaml"
    fathom = Path(sys.executable).parent / "fathom"
    subprocess.run([fathom, "check", "--offline", "-f", example], check=True, capture_output=True)
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    assert used < 20
