"""What the command prints, and with which exit code it ends."""

import asyncio
import os
import signal
from io import StringIO
from typing import Any

import jsonschema
import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from fathom.bench.command import BenchReport, carried_out, end_when_told, exit_code, show
from fathom.bench.log import heard
from fathom.bench.result import found
from fathom.cli.documents import Output
from fathom.cli.main import app
from fathom.cluster.kinds import JOB, SPECULATIVE_DEPLOYMENT, ObjectKey
from generators.document_schemas import schemas
from manifest_samples import manifest
from support.job_scene import JobScene
from support.waiting import turns
from unit.bench.benches import log, result_line, sample


def printed(*lines: str) -> tuple[str, int]:
    output = StringIO()
    made = found(sample(), heard(log(*lines)), "2026-11-25T16:00:00Z")
    show(made, Console(file=output, width=160))
    return output.getvalue(), exit_code(made)


def test_a_row_for_each_depth_below_true_off() -> None:
    text, code = printed(
        result_line(0, 100.0),
        result_line(3, 1180.0, drafts=400, survival=(0.9, 0.8, 0.7)),
        result_line(None, 120.0),
    )

    rows = [line.split() for line in text.splitlines()[1:]]
    assert [row[3] for row in rows] == ["off", "0", "3"]
    assert rows[2] == [
        *("chats", "9", "1", "3", "1,180.0", "250.0", "3.400", "±0.100"),
        *("11.80×", "9.83×"),
    ]
    assert code == 0


def test_what_was_not_measured_is_said_and_tells_by_the_exit_code() -> None:
    text, code = printed(
        result_line(3, 180.0), '{"said":"failed","data":"","why":"the engine ended with 1."}'
    )

    assert text.count("not measured") == 3
    assert "Not measured: the engine ended with 1." in text
    assert code == 1


def test_requests_that_failed_are_counted() -> None:
    text, code = printed(result_line(3, 180.0, completed=6, failed=2))

    assert "chats, 1 at a time: 2 of 8 requests failed." in text
    assert code == 1


def test_nothing_is_no_table() -> None:
    text, code = printed('{"said":"failed","why":"the engine ended with 1."}')

    assert text == "Not measured: the engine ended with 1.\n"
    assert code == 1


class Followed(JobScene):
    """A bench that somebody else began, and that says these lines."""

    job_name = "kimi-bench"

    def __init__(self, *lines: str) -> None:
        super().__init__(log=log(*lines, '{"said":"end"}'))
        self.kube.put(SPECULATIVE_DEPLOYMENT, manifest())
        annotations = {"fathom.dev/bench-run": "r1"}
        metadata = {"name": self.job_name, "namespace": "llm", "uid": "uid-of-job"}
        self.kube.put(JOB, {"metadata": {**metadata, "annotations": annotations}, "status": {}})
        self.pod(phase="Running")

    async def print(self, output: Output) -> int:
        key = ObjectKey("llm", "kimi")
        return await carried_out(self.cluster, key, None, room_s=60.0, output=output)


MEASURED = (
    result_line(0, 100.0, completed=6, failed=2),
    result_line(3, 180.0, failed=1, drafts=400, survival=(0.9, 0.8, 0.7)),
    result_line(None, 120.0),
    '{"said":"failed","data":"chats","concurrency":4,"depth":0,"why":"no answer."}',
)


@pytest.mark.parametrize("output", [Output.JSON, Output.YAML])
async def test_the_document_alone_is_on_stdout(
    capsys: pytest.CaptureFixture[str], output: Output
) -> None:
    code = await Followed(*MEASURED).print(output)

    document: dict[str, Any] = yaml.safe_load(capsys.readouterr().out)
    assert code == 1
    assert (document["kind"], document["namespace"], document["name"]) == (
        *("BenchReport", "llm", "kimi"),
    )
    assert document["failed"] == 3
    assert document["notMeasured"] == ["chats, 4 at a time, depth 0: no answer."]
    assert [row["depth"] for row in document["rows"]] == [0, 3, None]
    assert [row["overDepth0"] for row in document["rows"]] == [1.0, 1.8, 1.2]
    assert document["rows"][0]["acceptance"] is None
    assert document["rows"][1]["acceptance"]["mean"] == 3.4
    jsonschema.validate(document, yaml.safe_load(schemas()["BenchReport.json"]))
    assert BenchReport.model_validate(document).rows[1].tokens_per_second == 180.0


async def test_of_a_bench_that_measured_nothing_the_document_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = await Followed('{"said":"failed","why":"the engine ended with 1."}').print(Output.JSON)

    document = yaml.safe_load(capsys.readouterr().out)
    assert (code, document["rows"], document["failed"]) == (1, [], 0)
    assert document["notMeasured"] == ["the engine ended with 1."]


async def test_progress_is_on_stderr_beside_the_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scene = Followed(*MEASURED)
    ended = scene.log

    def goes_on(scene: JobScene) -> None:
        scene.log = ended

    scene.goes_on, scene.log = goes_on, log('{"said":"plan","runs":4}', MEASURED[0])
    await scene.print(Output.JSON)

    out, err = capsys.readouterr()
    assert out.startswith("{")
    assert "[1/4] " in err


@pytest.mark.parametrize(
    "typed", [["--concurrency", "0"], ["--depths", "1,-2"], ["--input-tokens", "1k"]]
)
def test_numbers_that_are_none_are_refused_before_any_cluster_is_asked(typed: list[str]) -> None:
    result = CliRunner().invoke(app, ["bench", "kimi", *typed])

    assert result.exit_code == 2
    assert f"{typed[0]} {typed[1]!r}: write whole numbers" in result.stderr


@pytest.mark.parametrize("ignored", [True, False], ids=["nohup", "terminal"])
async def test_a_closed_terminal_ends_it_unless_nohup_says_otherwise(*, ignored: bool) -> None:
    async def bench() -> str:
        end_when_told()
        os.kill(os.getpid(), signal.SIGHUP)
        await turns()
        return "went on"

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        (ended,) = await asyncio.gather(bench(), return_exceptions=True)
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, before)
    assert ended == "went on" if ignored else isinstance(ended, asyncio.CancelledError)
