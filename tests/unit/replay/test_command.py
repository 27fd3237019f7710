"""`fathom replay` from the outside: files in, sentences, tables and JSON out."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from fathom.cli.main import app
from fathom.measurement.counters import PodCounters
from manifest_samples import manifest
from support.bad_server import SECRET, answering, saying
from support.waiting import GUARD_S
from unit.replay.recorded import record, write
from unit.tuning.plant import EASY, Fleet

ASK = ["--prometheus", "http://127.0.0.1:1", "--name", "sd"]
WISHES = ["--max-batch", "16", "--window", "10"]


@pytest.fixture(scope="module")
def looks() -> list[PodCounters]:
    return record(Fleet(acceptance=EASY), 300)


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["replay", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_a_recording_is_replayed(tmp_path: Path, looks: list[PodCounters]) -> None:
    code, out, err = run(write(tmp_path / "a.jsonl", looks), *WISHES, "--json", tmp_path / "a.json")

    assert (code, err) == (0, "")
    assert "Recorded: 60 scrapes of 2 pods within 0:04:50" in out.replace("\n", " ")
    assert "What the tuner would have done" in out
    assert "Estimated gain in tokens per second" in out
    assert "What it knows at the end" in out
    written = json.loads((tmp_path / "a.json").read_text())
    assert written["recorded"]["looks"] == 60
    assert written["settings"]["max_batch"] == 16
    assert written["over_tokens"]["gain"] > 0
    assert {"at_s", "action", "reason", "message", "expected_gain"} <= set(written["decisions"][0])


def test_recordings_of_single_pods_are_put_together(
    tmp_path: Path, looks: list[PodCounters]
) -> None:
    files = [
        write(tmp_path / f"{pod}.jsonl.gz", [look for look in looks if look.pod == pod])
        for pod in ("pod-0", "pod-1")
    ]
    together = run(write(tmp_path / "a.jsonl", looks), *WISHES)

    assert run(*files, *WISHES) == together


def test_damaged_lines_are_told_and_the_rest_is_replayed(
    tmp_path: Path, looks: list[PodCounters]
) -> None:
    file = write(tmp_path / "a.jsonl", looks)
    lines = file.read_text().splitlines()
    lines[3] = lines[3][:50]
    file.write_text("\n".join([*lines, *["x"] * 20]))

    code, out, err = run(file, *WISHES)

    assert code == 0
    assert "Recorded: 59 scrapes" in out
    first, *_, last = err.splitlines()
    assert first.startswith(f"{file}, line 4: it is not {{")
    assert last == "11 more scrapes were skipped."


def test_the_manifest_gives_the_wishes_and_the_command_line_has_the_last_word(
    tmp_path: Path, looks: list[PodCounters]
) -> None:
    wishes = {"speculation.tokens": 2, "speculation.tuning.windowSeconds": 10}
    file = tmp_path / "sd.yaml"
    file.write_text(yaml.safe_dump(manifest(wishes)))

    code, out, _ = run(write(tmp_path / "a.jsonl", looks), "-f", file, "--max-tokens", 5)

    assert code == 0
    assert "tokens 2 within 1 to 5" in re.sub(r"\s+", " ", out)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Give a recording, or --prometheus URL with --name and --namespace."),
        (["--prometheus", "http://x"], "Give a recording, or --prometheus URL with --name"),
        (["/nowhere"], "/nowhere: cannot be read: No such file or directory."),
        (["EMPTY"], "There is nothing to replay: there is no scrape of any engine in it."),
        (["EMPTY", "--tokens", "9", "--max-tokens", "4"], "tokens (9) must lie within minTokens"),
        (["EMPTY", "--tokens", "0"], "The settings are refused: tokens: "),
        (["EMPTY", "--objective", "Goodput"], "Objective Goodput needs --tpot-milliseconds."),
        (["EMPTY", "-f", "EMPTY"], "holds 0 SpeculativeDeployments"),
        (["EMPTY", "-f", "OWN", "--tokens", "4"], "must be one of the manifest's depths (2, 5)"),
        (
            ["--prometheus", "http://127.0.0.1:1", "--name", "sd", "--since", "1m"],
            "Prometheus at 127.0.0.1:1 cannot be read: ",
        ),
        (
            ["--prometheus", "http://127.0.0.1:1", "--name", "sd", "--label", "eu"],
            "--label: write LABEL=VALUE, such as cluster=eu-1.",
        ),
        (
            ["--prometheus", "http://127.0.0.1:1", "--name", "sd", "--label", "=eu"],
            "--label: write LABEL=VALUE, such as cluster=eu-1.",
        ),
        (["EMPTY", "--since", "soon"], "'soon' is not a duration such as"),
        ([*ASK, "--proxy", "socks5://x"], "--proxy: write its URL, such as http://"),
        ([*ASK, "--ca-file", "EMPTY"], "empty.jsonl holds no certificate (PEM)."),
        ([*ASK, "--ca-file", "/nowhere"], "/nowhere: cannot be read: No such file or directory."),
        (
            [*ASK, "--header-file", "/nowhere"],
            "/nowhere: cannot be read: No such file or directory.",
        ),
        ([*ASK, "--header-file", "HEADERS"], "headers, line 3: write NAME: VALUE."),
    ],
)
def test_what_is_refused_is_told_in_a_sentence(
    tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump(manifest({"speculation": {"tokens": 2, "depths": [0, 2, 5]}})))
    headers = tmp_path / "headers"
    headers.write_text("X-Scope-OrgID: team-a\n\nBearer s3cr3t\n")
    files = {"EMPTY": str(empty), "OWN": str(own), "HEADERS": str(headers)}

    code, out, err = run(*[files.get(each, each) for each in arguments])

    assert code == 2
    assert out == ""
    assert sentence in err
    assert "s3cr3t" not in err


async def test_a_prometheus_gets_the_headers_of_a_file_and_nothing_of_it_is_repeated(
    tmp_path: Path,
) -> None:
    headers = tmp_path / "headers"
    headers.write_text(f"Authorization:  Bearer {SECRET} \r\n\nX-Scope-OrgID: team-a")
    async with answering(saying(b'{"data":{"result":[]}}')) as server:
        url = server.url.replace("//", f"//{SECRET}@")
        asked = ["--since", "1m", "--name", "sd", "--header-file", headers]
        by_file = await asyncio.to_thread(run, "--prometheus", server.url, *asked)
        by_url = await asyncio.to_thread(run, "--prometheus", url, *asked[:4])

    assert "x-scope-orgid: team-a\r\n" in server.heads[0]
    assert f"authorization: bearer {SECRET}\r\n" in server.heads[0]
    for code, out, err in (by_file, by_url):
        assert (code, out) == (2, "")
        assert f"Prometheus at 127.0.0.1:{server.port} has no sample of the pods of" in err
        assert SECRET not in err


def test_the_client_is_imported_where_a_prometheus_may_be_read_alone() -> None:
    code = """
import sys
from importlib import import_module
from fathom.cli.main import _ELSEWHERE
modules = {each.partition(":")[0] for each in _ELSEWHERE.values()} - {"local_cluster.cli"}
for each in [*modules - {"fathom.replay.command"}, "fathom.replay.command"]:
    import_module(each)
    print(each, "prometheus_api_client" in sys.modules)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=GUARD_S,
        check=True,
    )
    *others, replay = ran.stdout.splitlines()

    assert "fathom.runtime.main False" in others
    assert all(each.endswith(" False") for each in others)
    assert replay == "fathom.replay.command True"
