"""What the command prints, and with which exit code it ends."""

import asyncio
import os
import signal
from io import StringIO

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fathom.bench.command import end_when_told, shown
from fathom.bench.log import heard
from fathom.bench.result import found
from fathom.cli.main import app
from support.waiting import turns
from unit.bench.benches import log, result_line, sample


def printed(*lines: str) -> tuple[str, int]:
    output = StringIO()
    made = found(sample(), heard(log(*lines)), "2026-11-25T16:00:00Z")
    code = shown(made, Console(file=output, width=160))
    return output.getvalue(), code


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
