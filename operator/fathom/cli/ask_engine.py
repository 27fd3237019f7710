"""Asks a vLLM about arguments: of a Python on this machine, or of the engine's own image in a Job.

The Job is made with the rights of whoever asks, takes no GPU, and ends by itself, whatever becomes
of the command that made it.
"""

import asyncio
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import typer

from fathom.adapters.jobs import JobCluster, Room, look, make, remove_job
from fathom.adapters.ports import KubeError, KubePort
from fathom.api import names
from fathom.cli.check_report import CheckReport, with_engine
from fathom.cli.cluster import connected_for_jobs, placed
from fathom.cli.engine_check import (
    PROBE,
    QUESTION,
    EngineAnswer,
    EngineQuestion,
    NotAskedError,
    answer_in,
    check_code,
    check_job,
    claim_in,
    last_words,
    probe_text,
    question_of,
    templates_of,
)
from fathom.cli.options import ENDED, end_when_told, refuse, refusing
from fathom.cluster.kinds import PERSISTENT_VOLUME_CLAIM, ObjectKey
from fathom.engine.plugin import plugin_bundle
from fathom.engine.replica_layout import Role
from fathom.manifests.template_parts import part, parts
from fathom.resource import SpeculativeDeployment
from fathom.validation.candidate import Candidate

PATIENCE_S: Final = 300.0
"""To import vLLM takes 20 s on a slow machine, and models may be asked of a hub."""
ROOM_S: Final = 180.0
"""That its pod may have trouble to start."""
EVERY_S: Final = 2.0
_MOST_BYTES: Final = 256 << 10
"""What is kept of what a program writes: its end, as the answer comes last."""


async def ask_python(
    python: str, question: EngineQuestion, *, offline: bool, timeout_s: float = PATIENCE_S
) -> EngineAnswer:
    """Have a Python of this machine ask its vLLM.

    Args:
        python: its path, or its name on PATH.
        question: what is asked.
        offline: whether no hub may be asked.
        timeout_s: seconds that it may take.

    Raises:
        NotAskedError: there is no answer.
    """
    # Not through links: what a virtual environment links to does not have its packages.
    program = shutil.which(str(Path.cwd() / python) if os.sep in python else python)
    if program is None:
        raise NotAskedError(
            f"There is no program {python}: name the Python of an environment that has vLLM, such "
            "as --engine /opt/vllm/bin/python."
        )
    with tempfile.TemporaryDirectory(prefix="fathom-check-") as folder:
        place = Path(folder)
        files = {**question.bundle.files, PROBE: probe_text(), QUESTION: question.to_json()}
        for path, text in files.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text(text, encoding="utf-8")
        command = (program, str(place / PROBE), str(place / QUESTION))
        code, written = await _run(
            command, place, _environment(question, place, offline=offline), timeout_s
        )
    answer = answer_in(written)
    if answer is None:
        raise NotAskedError(
            f"{python} ended with code {code} before it answered: {last_words(written)}"
        )
    if answer.failure:
        raise NotAskedError(
            f"{python} cannot ask vLLM: {answer.failure}. Name the Python of an environment that "
            "has vLLM, such as --engine /opt/vllm/bin/python."
        )
    return answer


def _environment(question: EngineQuestion, place: Path, *, offline: bool) -> Mapping[str, str]:
    """That of whoever asks, who may need its proxies and tokens; with what the pods set."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    hub = {"HF_HUB_OFFLINE": "1"} if offline else {}
    return {**own, **question.variables, **hub, "PYTHONPATH": str(place)}


async def _run(
    command: tuple[str, ...], place: Path, environment: Mapping[str, str], timeout_s: float
) -> tuple[int, str]:
    """The exit code, and the end of what is written."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=place,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise NotAskedError(f"{command[0]} cannot be started: {error.strerror}.") from error
    assert process.stdout is not None  # noqa: S101 - as it was asked for
    written = b""
    try:
        async with asyncio.timeout(timeout_s):
            while part := await process.stdout.read(_MOST_BYTES):
                written = (written + part)[-_MOST_BYTES:]
            code = await process.wait()
    except TimeoutError:
        raise NotAskedError(
            f"{command[0]} has not answered within {timeout_s:g} s. If it waits for a hub, "
            "--offline keeps it from asking."
        ) from None
    finally:
        # With all that it has started.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return code, written.decode(errors="replace")


async def ask_image(
    cluster: JobCluster,
    sd: SpeculativeDeployment,
    question: EngineQuestion,
    *,
    run: str,
    tell: Callable[[str], None],
) -> EngineAnswer:
    """Have a Job with the engine's image ask its vLLM.

    Args:
        cluster: where.
        sd: whose image; with a namespace.
        question: what is asked.
        run: tells the Job from others.
        tell: is given a sentence where the Job may be left.

    Raises:
        NotAskedError: there is no answer.
        KubeError: the Job cannot be made or seen.
    """
    key = ObjectKey(sd.metadata.namespace, names.engine_check(sd.metadata.name, run))
    spec = part(templates_of(sd, question.bundle)[Role.LEADER], "spec")
    claims = filter(None, map(claim_in, parts(spec, "volumes")))
    missing = [each for each in claims if await _is_missing(cluster.kube, key.namespace, each)]

    async def remove() -> None:
        left = await remove_job(cluster, key, lambda _: True, holds="a place on a node")
        if left:
            tell(left)

    await make(
        cluster,
        check_job(sd, question, run=run, missing=missing),
        lambda owner: check_code(sd, question, run=run, owner=owner),
        remove,
    )
    try:
        answer = await _answer_of(cluster, key)
    finally:
        await remove()
    if answer.failure:
        raise NotAskedError(f"The image {sd.spec.engine.image} cannot ask vLLM: {answer.failure}.")
    return answer


async def _is_missing(kube: KubePort, namespace: str, claim: str) -> bool:
    try:
        return await kube.get(PERSISTENT_VOLUME_CLAIM, namespace, claim) is None
    except KubeError as error:
        if error.forbidden:
            return False  # Who may not look may have one mounted anyway.
        raise


async def _answer_of(cluster: JobCluster, key: ObjectKey) -> EngineAnswer:
    room = Room(seconds=ROOM_S, clock=cluster.clock)
    while True:
        try:
            seen = await look(cluster, key, lambda _: True)
        except KubeError as error:
            # What is gone for a moment need not end the waiting.
            if not error.transient:
                raise
            await cluster.pause(EVERY_S)
            continue
        if seen is None:
            raise NotAskedError(f"Job {key} was deleted before it answered.")
        if answer := answer_in(seen.log):
            return answer
        trouble = seen.trouble.message if seen.trouble else ""
        if seen.job.complete or seen.job.failed is not None:
            why = trouble or seen.job.failed or ""
            raise NotAskedError(
                f"Job {key} ended before it answered: {last_words(seen.log)} {why}".strip()
            )
        if room.is_over(in_trouble=bool(trouble)):
            raise NotAskedError(f"The engine's image could not be started: {trouble}")
        await cluster.pause(EVERY_S)


def with_vllm(
    report: CheckReport,
    candidate: Candidate,
    *,
    python: str,
    offline: bool,
    namespace: str,
    context: str,
    kubeconfig: Path | None,
) -> CheckReport:
    """A report with what a vLLM says of the resource.

    Args:
        report: of a resource that is not refused.
        candidate: the resource.
        python: that has the vLLM; empty: the engine's own image has it.
        offline: whether no hub may be asked from this machine.
        namespace: of the Job, where the manifest names none; empty: the context's.
        context: of the kubeconfig; empty: its current one.
        kubeconfig: None: as kubectl finds it.

    Raises:
        typer.Exit: it cannot be asked; stderr says why.
    """

    async def by_job(sd: SpeculativeDeployment, question: EngineQuestion) -> EngineAnswer:
        end_when_told()
        async with connected_for_jobs(kubeconfig, context) as cluster:
            run = uuid.uuid4().hex[:8]
            tell = partial(typer.echo, err=True)
            return await ask_image(cluster, sd, question, run=run, tell=tell)

    try:
        question = question_of(candidate.resource, plugin_bundle())
        if python:
            answer = asyncio.run(ask_python(python, question, offline=offline))
        else:
            with refusing():
                where = {"namespace": namespace, "context": context}
                sd = placed(candidate.resource, **where, kubeconfig=kubeconfig)
                answer = asyncio.run(by_job(sd, question))
    except NotAskedError as error:
        refuse(str(error))
    except asyncio.CancelledError:
        raise typer.Exit(ENDED) from None
    return with_engine(report, candidate, answer, own_image=not python)
