"""What `fathom check` found, as a person reads it and as a program does.

`-o json` and `-o yaml` print a `CheckList`. Its `apiVersion` changes where a field changes its
meaning or goes; fields may be added without that.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import accumulate
from typing import Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from fathom.api.problem import Problem, Severity
from fathom.text import counted


class Output(StrEnum):
    """How it is printed."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


MOST_LINES: Final = 30
"""Lines of one resource, without `-v`."""
COLUMNS: Final = 100
_OF_FACTS: Final = 8
"""Lines that findings leave for what is known."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class Finding(_Model):
    """One error or warning."""

    rule: str = ""
    """Its id in docs/rules.md; empty: the schema or a rule of the API."""
    severity: Literal["error", "warning"]
    field: str
    """Path as the user writes it."""
    message: str
    silenced: str = ""
    """The reason of whoever silenced this warning; empty: it counts."""

    @property
    def line(self) -> str:
        rule = f" [{self.rule}]" if self.rule else ""
        return f"{self.severity}{rule} {self.field}: {self.message}"


class Fact(_Model):
    """What is known of a resource, whether it is well or not."""

    label: str
    text: str


class CheckReport(_Model):
    """What was found of one resource."""

    file: str
    name: str = ""
    """Empty: it does not parse."""
    verdict: Literal["valid", "refused"]
    revision: str = ""
    """The one of its pods; empty: it is refused."""
    findings: tuple[Finding, ...] = ()
    """Errors first."""
    facts: tuple[Fact, ...] = ()
    bill: tuple[str, ...] = ()
    """Sentences: what it takes in GPUs, APIs of the cluster and time."""

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Warnings that count."""
        return tuple(
            each for each in self.findings if each.severity == "warning" and not each.silenced
        )


class CheckList(_Model):
    """The document of `-o json`."""

    api_version: Literal["cli.fathom.dev/v1alpha1"] = "cli.fathom.dev/v1alpha1"
    kind: Literal["CheckList"] = "CheckList"
    items: tuple[CheckReport, ...] = ()


def findings(problems: Iterable[Problem]) -> tuple[Finding, ...]:
    """Problems as they are printed."""
    return tuple(
        Finding(
            rule=each.rule,
            severity="error" if each.severity is Severity.ERROR else "warning",
            field=each.field,
            message=each.message,
            silenced=each.silenced,
        )
        for each in problems
    )


def written(found: CheckList, output: Output) -> str:
    """The document."""
    if output is Output.JSON:
        return found.model_dump_json(by_alias=True, indent=2)
    document = found.model_dump(mode="json", by_alias=True)
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True).rstrip()


def lines_of(report: CheckReport, *, in_full: bool) -> Iterator[str]:
    """The verdict first, then errors, warnings, what is known, and the bill.

    Args:
        report: of one resource.
        in_full: `-v`: every finding and every fact, however many there are.
    """
    refused = report.verdict == "refused"
    mark = "✘" if refused else "!" if report.warnings else "✔"
    name = report.name or report.file
    state = "refused" if refused else f"valid, revision {report.revision}"
    found = [_wrapped(each.line) for each in report.findings if not each.silenced]
    silenced = [each for each in report.findings if each.silenced]
    quiet = counted(len(silenced), "warning is silenced", "warnings are silenced")
    named = ", ".join(f"{each.rule} ({each.silenced})" for each in silenced)
    ends = [_wrapped(f"{quiet}: {named}.")] if silenced else []
    # What is wrong comes first: of a spec that is refused the rest is for `-v`.
    facts = [_wrapped(f"{each.label}: {each.text}") for each in report.facts]
    facts = facts if in_full or not refused else []
    bill = [] if refused else [_wrapped(each) for each in report.bill]
    kept, cut = found, facts
    if not in_full:
        left = MOST_LINES - 2 - sum(map(len, (*ends, *bill)))
        kept = _fitting(found, left - min(_OF_FACTS, sum(map(len, facts))))
        cut = _fitting(facts, left - sum(map(len, kept)))
    more = len(found) - len(kept)
    if more or len(cut) < len(facts):
        ends = [[f"  and {more} more (-v)" if more else "  and more (-v)"], *ends]
    yield f"{mark} {name}: {state}"
    for block in (*kept, *ends, *cut, *bill):
        yield from block


def _fitting(blocks: Sequence[list[str]], most: int) -> list[list[str]]:
    """The first blocks that fit into so many lines."""
    ends = accumulate(map(len, blocks))
    return [block for block, end in zip(blocks, ends, strict=True) if end <= most]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        COLUMNS,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
