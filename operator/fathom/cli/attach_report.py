"""What `fathom attach` reads of a host and its pods, and says of them."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from fathom.adapters.http import BadAnswerError
from fathom.adapters.metrics_page import PageReader
from fathom.adapters.pod_metrics import CONCURRENCY, ForbiddenPageError
from fathom.adapters.ports import Clock, PodEndpoint
from fathom.adapters.series import NotAnEngine
from fathom.api import names
from fathom.api.tuner import Level
from fathom.attach.evidence import PodEvidence, evidence_of, judged
from fathom.attach.host import Host
from fathom.attach.patch import Attachment
from fathom.attach.startup import COMPUTED, first_problem, graphs_before_and_after
from fathom.attach.status import break_evens, break_evens_in_words
from fathom.cli.documents import Document, Part
from fathom.cluster.observed_pods import ObservedPod
from fathom.engine.start import parsed_version, tagged_version
from fathom.measurement.counters import PodCounters, Unread, UnreadKind
from fathom.measurement.deltas import delta
from fathom.text import counted
from fathom.tuning.estimate.measured import Measured, measure

_WHERE: Final[Mapping[str, str]] = {
    "Helm": "put the patch into the chart's values",
    "Argo CD": "put the patch into Git",
    "Flux": "put the patch into Git",
}


class AttachedPod(Part):
    """How far one pod can be tuned."""

    name: str
    level: Level | None
    """None: nothing is known of it."""
    reason: str | None
    """What is missing first for Live; None: nothing."""
    missing: str | None
    """The same, as a sentence."""


class AttachReport(Document):
    """The document of `fathom attach`."""

    kind: Literal["AttachReport"] = "AttachReport"
    namespace: str
    workload: str
    """Kind and name, or the labels of the pods."""
    managed_by: str | None
    tuner: str
    """Name of the SpeculationTuner that is meant."""
    container: str
    port: int
    pods: tuple[AttachedPod, ...]
    level: Level | None
    """What the pods have by which a tuner would judge."""
    vllm: str | None
    """Its version."""
    method: str | None
    depth: int | None
    """By the arguments, as are the method and the next."""
    max_num_seqs: int | None
    acceptance_length: float | None
    survival: tuple[float, ...]
    """Share of drafts accepted up to each position; none: it is not known."""
    measured: str
    """The same in words, or why it is not known."""
    problem: str | None
    """What would keep the engines from Live after a restart, as far as it is known."""
    graphs_before: int | None
    """CUDA graphs, computed from arguments; null: not known."""
    graphs_after: int | None
    to_do: tuple[str, ...]
    """What the arguments do not say, or the patch cannot write."""


class PageSource(Protocol):
    """Where pages of pods come from."""

    async def page(self, pod: PodEndpoint, path: str = "metrics") -> str:
        """What a pod answers.

        Raises:
            ForbiddenPageError: whoever asks lacks the right.
            BadAnswerError: there is no such page.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A host and its pods."""

    host: Host
    pods: tuple[ObservedPod, ...]
    """That serve and have not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Reads pages of a host's pods."""

    pages: PageSource
    clock: Clock
    pause: Callable[[float], Awaitable[None]]

    async def sample(self, found: Found) -> tuple[dict[str, PodCounters], list[Unread]]:
        """What all pods that are ready show, and why others do not.

        Raises:
            ForbiddenPageError: whoever asks lacks the right.
        """
        slots, reader = asyncio.Semaphore(CONCURRENCY), PageReader()

        async def one(pod: PodEndpoint) -> PodCounters | Unread:
            try:
                async with slots:
                    page = await self.pages.page(pod)
                return reader.read(page.encode(), pod=pod.pod, at_s=self.clock.now_s())
            except ForbiddenPageError:
                raise
            except BadAnswerError as error:
                cause = f"/metrics on port {pod.port} cannot be read: {error}"
                return Unread(pod.pod, cause)
            except NotAnEngine as error:
                cause = f"/metrics on port {pod.port} cannot be used: {error}"
                return Unread(pod.pod, cause, UnreadKind.NOT_VLLM)

        answers = await asyncio.gather(*map(one, _endpoints(found)))
        counters = {each.pod: each for each in answers if isinstance(each, PodCounters)}
        return counters, [each for each in answers if isinstance(each, Unread)]

    async def version(self, found: Found, pods: Sequence[PodEvidence]) -> str:
        """vLLM's, by its plugin, by its own word, or by its image; empty: it is not known."""
        reports = [each.report.version for each in pods if each.counters]
        told = next(filter(None, reports), "")
        for endpoint in _endpoints(found)[:1] if not told else ():
            try:
                answer = json.loads(await self.pages.page(endpoint, "version"))
                told = str(answer["version"])
            except (BadAnswerError, ValueError, LookupError, TypeError):
                told = ""
        image = str(found.host.engine.container.get("image") or "")
        return str(parsed_version(told) or tagged_version(image) or "")

    async def measured(
        self, found: Found, first: Mapping[str, PodCounters], seconds: float
    ) -> tuple[Measured | None, str]:
        """What a second look shows; or why there is nothing."""
        if not any(each.engine.requests_running for each in first.values()):
            return None, "No request runs, so there is no acceptance to measure now."
        if not seconds:
            return None, "Nothing was measured, as --seconds 0 asks."
        await self.pause(seconds)
        second, _ = await self.sample(found)
        both = [delta(first[pod], later) for pod, later in second.items() if pod in first]
        deltas = [each for each in both if each is not None]
        result = measure(deltas, self.clock.now_s(), None) if deltas else None
        if result is None or result.acceptance_length is None:
            return None, f"Nothing was drafted within {seconds:g} s."
        return result, ""


def _endpoints(found: Found) -> list[PodEndpoint]:
    return [
        PodEndpoint(
            namespace=found.host.namespace,
            pod=pod.name,
            ip=pod.status.pod_ip,
            port=found.host.engine.port,
        )
        for pod in found.pods
        if pod.ready
    ]


async def report_of(
    attachment: Attachment, found: Found, reader: Reader, seconds: float | None
) -> AttachReport:
    """Read the pods, and say what they can have.

    Args:
        attachment: what would be added to them.
        found: they and their host.
        reader: of their pages.
        seconds: between two scrapes; None: one is enough.

    Raises:
        ForbiddenPageError: whoever asks lacks the right to read pages.
    """
    host, startup = attachment.host, attachment.startup
    counters, failures = await reader.sample(found)
    pods = evidence_of(
        found.pods,
        counters,
        failures,
        document=names.tuner_depth_config_map(attachment.tuner),
        tokens_given=False,
    )
    best, version = judged(pods), await reader.version(found, pods)
    measured, why = None, ""
    if counters and seconds is not None:
        measured, why = await reader.measured(found, counters, seconds)
    drafting, graphs = startup.drafting, graphs_before_and_after(startup)
    return AttachReport(
        namespace=host.namespace,
        workload=str(host),
        managed_by=host.managed_by or None,
        tuner=attachment.tuner,
        container=host.engine.name,
        port=host.engine.port,
        pods=tuple(
            AttachedPod(
                name=each.pod.name,
                level=each.level,
                reason=each.missing.reason if each.missing else None,
                missing=each.missing.sentence if each.missing else None,
            )
            for each in pods
        ),
        level=best[0].level if best else None,
        vllm=version or None,
        method=(drafting.method or None) if drafting else None,
        depth=drafting.tokens if drafting else None,
        max_num_seqs=host.engine.max_num_seqs,
        acceptance_length=measured.acceptance_length if measured else None,
        survival=measured.survival if measured else (),
        measured=_in_words(measured) if measured else why,
        problem=first_problem(startup, parsed_version(version)) or None,
        graphs_before=graphs[0] if graphs else None,
        graphs_after=graphs[1] if graphs else None,
        to_do=attachment.to_do,
    )


def _in_words(measured: Measured) -> str:
    if measured.survival:
        return break_evens_in_words(measured.survival, break_evens(measured.survival))
    return (
        f"A request gets {measured.acceptance_length:.2f} tokens per step; by position it is not "
        "known, as depth varies."
    )


def lines_of(report: AttachReport, written: str) -> Iterator[str]:
    """The report for people.

    Args:
        report: what was found.
        written: what prints the patch, as the user would type it.
    """
    for label, text in _parts(report, written):
        yield f"{label:<9} {text}"


def _parts(report: AttachReport, written: str) -> Iterator[tuple[str, str]]:
    yield "Found", f"{_found(report)}."
    yield "Engine", _engine(report)
    yield "Now", _now(report)
    if report.measured:
        yield "", report.measured
    yield "Can be", _can_be(report)
    for each in report.to_do:
        yield "To do", each
    if not all_live(report):
        yield "Write", written


def _found(report: AttachReport) -> str:
    where = _WHERE.get(report.managed_by or "", f"{report.managed_by} applies the patch")
    managed = f", managed by {report.managed_by}: {where}" if report.managed_by else ""
    pods = counted(len(report.pods), "pod")
    return (
        f"{pods} of {report.workload} (container {report.container}, port {report.port}){managed}"
    )


def _engine(report: AttachReport) -> str:
    version = f"vLLM {report.vllm}" if report.vllm else "vLLM, of a version that is not known"
    stated = [
        report.method or "",
        "" if report.depth is None else f"depth {report.depth}",
        "" if report.max_num_seqs is None else f"--max-num-seqs {report.max_num_seqs}",
    ]
    arguments = ", ".join(each for each in stated if each) or "nothing of speculation"
    return f"{version}. Its arguments say: {arguments}."


def _now(report: AttachReport) -> str:
    levels = Counter(each.level for each in report.pods)
    if not levels:
        return "There is no pod."
    of_levels = ", ".join(f"{count} {level or 'unknown'}" for level, count in levels.items())
    missing = next((each.missing for each in report.pods if each.missing), None)
    return f"{of_levels}: {missing}" if missing else f"{of_levels}."


def _can_be(report: AttachReport) -> str:
    if all_live(report):
        return "Live already."
    if report.problem is not None:
        return f"Not Live after a restart: {report.problem}"
    price = ""
    if report.graphs_before is not None and report.graphs_after is not None:
        price = (
            f" At its start an engine then captures {report.graphs_after} CUDA graphs in place of "
            f"{report.graphs_before} ({COMPUTED})."
        )
    return f"Live, by one restart of these pods.{price}"


def all_live(report: AttachReport) -> bool:
    """Whether there are pods, and each is Live."""
    return bool(report.pods) and all(each.level is Level.LIVE for each in report.pods)


def pod_lines(report: AttachReport) -> Iterator[str]:
    """A line for each pod: its level, and what is missing first."""
    for each in report.pods:
        level = each.level or "unknown"
        yield (
            f"{each.name}: {level}. {each.reason}: {each.missing}"
            if each.missing
            else (f"{each.name}: {level}")
        )
