"""What `fathom check` found, as a person reads it and as a program does."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Final, Literal

from fathom.api.problem import Problem, Severity
from fathom.cli.documents import Document, Part
from fathom.cli.engine_check import RULE, EngineAnswer, RoleAnswer
from fathom.cli.resources import ModelRole
from fathom.engine.start import engine_version, parsed_version
from fathom.text import counted, shortened
from fathom.validation.candidate import Candidate

MOST_LINES: Final = 30
"""Lines of one resource, without `-v`."""
COLUMNS: Final = 100
_NOT_WITHOUT_A_GPU: Final = (
    "Not known without a GPU: whether memory suffices, which kernels and attention backends there "
    "are, and whether the weights load."
)
_NOTHING: Final = ("", "")
_LONGEST: Final = 800
"""Characters of what another program says."""
_OF_FACTS: Final = 8
"""Lines that findings leave for what is known."""

Verdict = Literal["valid", "unknown", "refused"]
Found = Literal["error", "unknown", "warning"]
_SEVERITIES: Final[Mapping[Severity, Found]] = MappingProxyType(
    {Severity.ERROR: "error", Severity.UNKNOWN: "unknown", Severity.WARNING: "warning"}
)
_ORDER: Final = tuple(_SEVERITIES.values())


class Finding(Part):
    """One error, one warning, or one thing that could not be checked."""

    rule: str = ""
    """Its id in docs/rules.md; empty: the schema or a rule of the API."""
    severity: Found
    """Unknown: it could not be checked."""
    field: str
    """Path as the user writes it."""
    message: str
    silenced: str = ""
    """The reason of whoever silenced it, which no error can be; empty: it counts."""

    @property
    def line(self) -> str:
        rule = f" [{self.rule}]" if self.rule else ""
        return f"{self.severity}{rule} {self.field}: {self.message}"


class Fact(Part):
    """What is known of a resource, whether it is well or not."""

    label: str
    text: str


class CheckReport(Part):
    """What was found of one resource."""

    file: str
    name: str = ""
    """Empty: it does not parse."""
    verdict: Verdict
    """Unknown: the spec is sound, and not all could be checked."""
    revision: str = ""
    """The one of its pods; empty: it is refused."""
    unread: tuple[ModelRole, ...] = ()
    """Models of which no config.json was read."""
    findings: tuple[Finding, ...] = ()
    """Errors first."""
    facts: tuple[Fact, ...] = ()
    bill: tuple[str, ...] = ()
    """Sentences: what it takes in GPUs, APIs of the cluster and time."""

    @property
    def doubts(self) -> tuple[Finding, ...]:
        """Warnings, and what could not be checked, unless silenced."""
        return tuple(
            each for each in self.findings if each.severity != "error" and not each.silenced
        )


class CheckList(Document):
    """The document of `-o json`."""

    kind: Literal["CheckList"] = "CheckList"
    items: tuple[CheckReport, ...] = ()


def findings(problems: Iterable[Problem]) -> tuple[Finding, ...]:
    """Problems as they are printed."""
    return tuple(
        Finding(
            rule=each.rule,
            severity=_SEVERITIES[each.severity],
            field=each.field,
            message=each.message,
            silenced=each.silenced,
        )
        for each in problems
    )


def verdict_of(found: Iterable[Finding]) -> Verdict:
    """What findings come to. What is unknown is not valid, whoever silenced it."""
    severities = {each.severity for each in found}
    return "refused" if "error" in severities else "unknown" if "unknown" in severities else "valid"


def lines_of(report: CheckReport, *, in_full: bool) -> Iterator[str]:
    """The verdict first, then errors, warnings, what is known, and the bill.

    Args:
        report: of one resource.
        in_full: `-v`: every finding and every fact, however many there are.
    """
    refused = report.verdict == "refused"
    head = textwrap.wrap(_headline(report), COLUMNS, subsequent_indent="    ")
    found = [_wrapped(each.line) for each in report.findings if not each.silenced]
    silenced = [each for each in report.findings if each.silenced]
    quiet = counted(len(silenced), "finding is silenced", "findings are silenced")
    named = ", ".join(f"{each.rule} {each.field} ({each.silenced})" for each in silenced)
    ends = [_wrapped(f"{quiet}: {named}.")] if silenced else []
    # What is wrong comes first: of a spec that is refused the rest is for `-v`.
    facts = [_wrapped(f"{each.label}: {each.text}") for each in report.facts]
    facts = facts if in_full or not refused else []
    bill = [] if refused else [_wrapped(each) for each in report.bill]
    kept, cut = found, facts
    if not in_full:
        left = MOST_LINES - 1 - sum(map(len, (head, *ends, *bill)))
        kept = _fitting(found, left - min(_OF_FACTS, sum(map(len, facts))))
        cut = _fitting(facts, left - sum(map(len, kept)))
    more = len(found) - len(kept)
    if more or len(cut) < len(facts):
        ends = [[f"  and {more} more (-v)" if more else "  and more (-v)"], *ends]
    for block in (head, *kept, *ends, *cut, *bill):
        yield from block


def _headline(report: CheckReport) -> str:
    name = report.name or report.file
    if report.verdict == "refused":
        return f"✘ {name}: refused"
    mark = "✔" if report.verdict == "valid" and not report.doubts else "!"
    state = f"{mark} {name}: {report.verdict}, revision {report.revision}"
    if report.verdict == "valid":
        return state
    unread = " and the ".join(report.unread)
    was = "were" if len(report.unread) > 1 else "was"
    why = f"the {unread} {was} not read" if unread else "not all could be checked"
    return f"{state}: the spec is sound; {why}"


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


def with_found(report: CheckReport, found: Iterable[Finding], facts: Iterable[Fact]) -> CheckReport:
    """The same, with what somebody else found of it, errors first.

    Args:
        report: of a resource.
        found: what is added; an error refuses it.
        facts: all that is known now.
    """
    findings = sorted((*report.findings, *found), key=lambda each: _ORDER.index(each.severity))
    return report.model_copy(
        update={
            "verdict": verdict_of(findings),
            "findings": tuple(findings),
            "facts": tuple(facts),
        }
    )


def with_engine(
    report: CheckReport, candidate: Candidate, answer: EngineAnswer, *, own_image: bool
) -> CheckReport:
    """The same, with what vLLM says of it.

    Args:
        report: of a resource that is not refused.
        candidate: the resource.
        answer: vLLM's.
        own_image: whether it is the vLLM of the engine's image, and so the one that the pods run.
    """
    other = _other_version(candidate, answer.vllm, own_image=own_image)
    certain = own_image or (not other and candidate.vllm_decides)
    found = [_doubt(candidate, other)] if other else []
    for (by_what, error), whose in _alike(answer, lambda each: (each.refused_by, each.error)):
        message = (
            f"vLLM {answer.vllm} refuses {whose} (its {by_what}): "
            f"{_sentence(error)} Change it, or the engine ends when it starts."
        )
        error_of = Finding(rule=RULE, severity="error", field="spec.engine.args", message=message)
        found.append(error_of if certain else _doubt(candidate, message))
    for (unknown, _), whose in _alike(answer, lambda each: (each.unknown, "")):
        message = (
            f"the parser of vLLM {answer.vllm} takes {whose}; what its configuration says is not "
            f"known: {_sentence(unknown)}"
        )
        found.append(_doubt(candidate, message, "unknown"))
    facts = (Fact(label=RULE, text=text) for text in _facts(answer))
    # First, as the last ones are cut off where there are many.
    return with_found(report, found, (*facts, *report.facts))


def _doubt(candidate: Candidate, message: str, severity: Found = "warning") -> Finding:
    return Finding(
        rule=RULE,
        severity=severity,
        field="spec.engine.args",
        message=message,
        silenced=candidate.silenced(RULE),
    )


def _other_version(candidate: Candidate, asked: str, *, own_image: bool) -> str:
    """That the pods run, or get the arguments of, another vLLM than was asked; empty: they do not.

    A build (`0.32.0+cpu`) makes no difference.
    """
    runs, found = engine_version(candidate.spec.engine), parsed_version(asked)
    if runs is not None and found is not None and runs.public == found.public:
        return ""
    if own_image:
        known = f"is taken for {runs}" if runs else "is of no release that Fathom knows of"
        return f"the image has vLLM {asked}, and {known}: set spec.engine.version."
    known = f"the pods run {runs}" if runs else "which one the pods run, the spec does not say"
    return f"asked vLLM {asked}; {known}, so nothing that it refuses is an error."


def _facts(answer: EngineAnswer) -> Iterator[str]:
    takes = [r for r, each in answer.answers.items() if not (each.refused_by or each.unknown)]
    if takes:
        yield (
            f"vLLM {answer.vllm} takes {_whose(takes, answer)} (its parser and its configuration). "
            f"{_NOT_WITHOUT_A_GPU}"
        )


def _alike(
    answer: EngineAnswer, said: Callable[[RoleAnswer], tuple[str, str]]
) -> Iterator[tuple[tuple[str, str], str]]:
    """Each thing that is said of some pods, and of whose arguments."""
    found: dict[tuple[str, str], list[str]] = {}
    for role, each in answer.answers.items():
        found.setdefault(said(each), []).append(role)
    for text, roles in found.items():
        if text != _NOTHING:
            yield text, _whose(roles, answer)


def _whose(roles: Sequence[str], answer: EngineAnswer) -> str:
    return f"the arguments of {' and '.join(roles)}" if len(answer.answers) > 1 else "the arguments"


def _sentence(text: str) -> str:
    flat = shortened(" ".join(text.split()), _LONGEST)
    return flat if flat.endswith(".") else f"{flat}."
