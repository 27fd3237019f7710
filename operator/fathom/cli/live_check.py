"""What `fathom check` asks a cluster, with the rights of whoever runs it.

`--live` asks for a quality check, and waits for what comes of it: it writes one annotation, and all
else is the operator's work, which alone holds replicas at depths. `--server` writes nothing: it
asks the API server for dry runs of all that a resource becomes.
"""

import asyncio
import re
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import typer
from rich.console import Console
from rich.table import Table

from fathom.adapters import kube_config
from fathom.adapters.kube import Kube
from fathom.adapters.ports import Clock, DryRunPort, KubeError, KubePort, SystemClock
from fathom.api import names
from fathom.api.status import QualityResult, QualityStatus, SpeculativeDeploymentStatus
from fathom.cli.check_report import CheckReport, Fact, Finding, with_found
from fathom.cli.cluster import connected, placed
from fathom.cli.options import annotate, refuse, refusing
from fathom.cli.resources import REFUSED, Judgement
from fathom.cluster.kinds import (
    CONFIG_MAP,
    SPANNING_KINDS,
    SPECULATIVE_DEPLOYMENT,
    ObjectKey,
    kind_of,
)
from fathom.cluster.manifest import Meta, place_of
from fathom.cluster.observed import ObservedConfigMap
from fathom.cluster.snapshot import status_in
from fathom.engine.plugin import plugin_bundle
from fathom.fetch.state import fetch_program
from fathom.health import UNKNOWN
from fathom.manifests.render import children, single_pods
from fathom.quality.check import QUALITY_KEY, QualityCheck
from fathom.text import counted
from fathom.validation.candidate import Candidate, Cluster
from fathom.validation.placement_checks import needed_apis

WAIT_S: Final = 1500.0
"""Longer than all deadlines of a check together."""
EVERY_S: Final = 1.0
_NO_RIGHT: Final = re.compile(r'User ".*" cannot |by this account')
"""Where whoever asks may not; a quota, or Pod Security, is forbidding as well."""
_EXIT_CODES: Final = {
    QualityResult.LOSSLESS: 0,
    QualityResult.DIFFERS: 1,
    QualityResult.NOT_CHECKED: REFUSED,
}


def result_table(found: QualityStatus) -> Table:
    """One row. What was not checked is a dash: it is not zero."""
    table = Table(box=None, pad_edge=False)
    table.add_column("RESULT", no_wrap=True)
    for column in ("PROMPTS", "TOKENS", "TIES"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("AT", no_wrap=True)
    checked = found.result is not QualityResult.NOT_CHECKED
    counts = (found.prompts, found.tokens, found.ties)
    cells = (str(count) if checked else UNKNOWN for count in counts)
    table.add_row(found.result, *cells, found.at)
    return table


class NoResultError(Exception):
    """The request came to nothing; the message is a sentence."""


def live_check(
    name: str, *, namespace: str, context: str, kubeconfig: Path | None, wait_s: float
) -> int:
    """Ask for a check of one SpeculativeDeployment, wait for it, and print what it found.

    Returns:
        Exit code: 0, lossless; 1, it differs; 2, it could not be checked.

    Raises:
        typer.Exit: with exit code 2; stderr says why.
    """
    with refusing():
        key = ObjectKey(namespace or kube_config.namespace(kubeconfig, context), name)

        async def check() -> QualityStatus:
            async with connected(kubeconfig, context) as kube:
                return await result_of(
                    kube,
                    key,
                    request_id=uuid.uuid4().hex[:12],
                    wait_s=wait_s,
                    clock=SystemClock(),
                    pause=asyncio.sleep,
                    tell=lambda sentence: typer.echo(sentence, err=True),
                )

        try:
            result = asyncio.run(check())
        except NoResultError as error:
            refuse(str(error))
    return shown(result, Console())


@dataclass(frozen=True, slots=True)
class Refused:
    """One object that an API server would not take."""

    what: str
    """Such as `Service kimi`, or the field that asks for what the cluster lacks."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAnswer:
    taken: int
    """Objects that it would take."""
    refused: tuple[Refused, ...]
    not_asked: tuple[str, ...]
    """Objects, such as `Service kimi`, that whoever asks may not ask about."""


def server_answer(
    judgement: Judgement, *, namespace: str, context: str, kubeconfig: Path | None
) -> ServerAnswer:
    """Have the API server of a cluster judge what a resource becomes.

    Args:
        judgement: on a resource that is not refused.
        namespace: for a manifest that names none; empty: the context's.
        context: of the kubeconfig; empty: its current one.
        kubeconfig: None: as kubectl finds it.

    Raises:
        typer.Exit: the cluster cannot be asked; stderr says why.
    """
    with refusing():
        candidate = judgement.candidate
        resource = placed(
            candidate.resource, namespace=namespace, context=context, kubeconfig=kubeconfig
        )
        candidate = replace(candidate, resource=resource)

        async def asked() -> ServerAnswer:
            configuration = await kube_config.load(kubeconfig, context)
            async with kube_config.client(configuration) as api:
                return await answer_of_server(Kube(api), candidate)

        return asyncio.run(asked())


def with_answer(report: CheckReport, answer: ServerAnswer) -> CheckReport:
    """The same, with what an API server said to dry runs of it."""
    rule, why = "api-server", "it was not checked, as you may not create it."
    refused = [
        Finding(rule=rule, severity="error", field=each.what, message=each.why)
        for each in answer.refused
    ]
    unknown = [
        Finding(rule=rule, severity="unknown", field=what, message=why) for what in answer.not_asked
    ]
    facts = report.facts
    if not refused:
        every = "" if unknown else "all "
        taken = f"it would take {every}{counted(answer.taken, 'object')} (dry run)."
        facts = (*facts, Fact(label="server", text=taken))
    return with_found(report, (*refused, *unknown), facts)


async def answer_of_server(kube: DryRunPort, candidate: Candidate) -> ServerAnswer:
    """What an API server says to dry runs of all that a resource becomes, and of single pods.

    Args:
        kube: the server.
        candidate: a resource with a namespace, that is not refused.

    Raises:
        KubeError: it does not answer.
    """
    resource, served = candidate.resource, await kube.served()
    cluster = Cluster(served=served, usable=[each for each in SPANNING_KINDS if served.has(each)])
    refused = [
        Refused(each.field, each.message)
        for each in needed_apis(replace(candidate, cluster=cluster))
    ]
    not_asked, taken = [], 0
    for manifest in children(resource, plugin_bundle(), fetch_program()):
        for each in (manifest, *single_pods(resource, manifest)):
            kind = kind_of(each["apiVersion"], each["kind"])
            if not served.has(kind):
                continue
            what = f"{kind.kind} {place_of(each)[1]}"
            try:
                await kube.dry_run(kind, each)
                taken += 1
            except KubeError as error:
                if not error.status:
                    raise
                if error.forbidden and _NO_RIGHT.search(error.message):
                    not_asked.append(what)
                else:
                    refused.append(Refused(what, f"the API server refuses it: {error.message}"))
    return ServerAnswer(taken=taken, refused=tuple(refused), not_asked=tuple(not_asked))


def shown(result: QualityStatus, console: Console) -> int:
    """Print a result.

    Returns:
        Its exit code.
    """
    console.print(result_table(result))
    console.print(result.message, markup=False, highlight=False)
    return _EXIT_CODES[result.result]


async def result_of(
    kube: KubePort,
    key: ObjectKey,
    *,
    request_id: str,
    wait_s: float,
    clock: Clock,
    pause: Callable[[float], Awaitable[None]],
    tell: Callable[[str], None],
) -> QualityStatus:
    """File a request, and watch the status until it is answered.

    A request that nobody waits for any longer is withdrawn, so that no check begins unseen.

    Args:
        kube: the cluster.
        key: the SpeculativeDeployment.
        request_id: of the request; a new one.
        wait_s: seconds to wait for the answer.
        clock: tells when they are over.
        pause: waits for some seconds.
        tell: is given a sentence whenever there is another one to say.

    Raises:
        NoResultError: there is no such resource, no answer in time, or another request took over.
        KubeError: the request could not be filed, or the resource may not be read.
    """
    deadline_s = clock.now_s() + wait_s
    if not await annotate(kube, key, names.ANNOTATION_CHECK_QUALITY, request_id):
        raise NoResultError(f"There is no SpeculativeDeployment {key}.")
    said, answer = "", None
    try:
        while answer is None and clock.now_s() < deadline_s:
            await pause(EVERY_S)
            try:
                answer = await _answer(kube, key, request_id)
            except KubeError as error:
                # What is gone for a moment need not end the waiting.
                if not error.transient:
                    raise
                continue
            sentence = await _progress(kube, key, request_id)
            if answer is None and sentence != said:
                said = sentence
                tell(sentence)
    finally:
        if answer is None:
            with suppress(KubeError):
                await _withdraw(kube, key, request_id)
    if answer is None:
        raise NoResultError(
            f"The operator has not answered within {wait_s:.0f} s, and the request was withdrawn. "
            "Does it run, and does it watch this namespace?"
        )
    return answer


async def _answer(kube: KubePort, key: ObjectKey, request_id: str) -> QualityStatus | None:
    """None: not yet."""
    resource = await kube.get(SPECULATIVE_DEPLOYMENT, key.namespace, key.name)
    if resource is None:
        raise NoResultError(f"{key} was deleted meanwhile.")
    status = status_in(resource, SpeculativeDeploymentStatus)
    if status is not None and status.quality and status.quality.request_id == request_id:
        return status.quality
    asked = Meta.model_validate(resource["metadata"]).annotations
    if asked.get(names.ANNOTATION_CHECK_QUALITY) != request_id:
        raise NoResultError("The request was withdrawn, or another one replaced it.")
    return None


async def _progress(kube: KubePort, key: ObjectKey, request_id: str) -> str:
    """What the operator is at, as far as it has written it down."""
    try:
        found = await kube.get(CONFIG_MAP, key.namespace, names.tuning_config_map(key.name))
    except KubeError:
        # Not everybody may read ConfigMaps, and nobody needs to.
        found = None
    data = ObservedConfigMap.model_validate(found).data if found is not None else {}
    check = QualityCheck.from_json(data.get(QUALITY_KEY, ""))
    if check is None or check.request_id != request_id:
        return "Waits for the operator."
    return check.progress


async def _withdraw(kube: KubePort, key: ObjectKey, request_id: str) -> None:
    resource = await kube.get(SPECULATIVE_DEPLOYMENT, key.namespace, key.name)
    if resource is None:
        return
    asked = Meta.model_validate(resource["metadata"]).annotations
    if asked.get(names.ANNOTATION_CHECK_QUALITY) == request_id:
        await annotate(kube, key, names.ANNOTATION_CHECK_QUALITY, None)
