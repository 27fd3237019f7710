"""`fathom check --engine`: what is asked of a vLLM, how a Python asks, and what comes of it."""

import asyncio
import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from typer.testing import CliRunner

from fathom.cli.ask_engine import ask_python
from fathom.cli.check import report_of
from fathom.cli.check_report import CheckReport, with_engine
from fathom.cli.engine_check import (
    EngineAnswer,
    EngineQuestion,
    NotAskedError,
    RoleAnswer,
    answer_in,
    question_of,
)
from fathom.cli.main import app
from fathom.cli.resources import judged
from fathom.engine.flags import engine_args
from fathom.engine.plugin import plugin_bundle
from fathom.model_facts import ModelConfig, ModelFacts
from fathom.model_refs import draft_ref, target_ref
from fathom_measure.start_probe import PREFIX
from manifest_samples import manifest, resource
from support.model_pairs import Pair
from support.validated import candidate
from support.waiting import until

BUNDLE = plugin_bundle()
TWO_TRAYS = {"engine.tensorParallelSize": 8}
RELEASE = {"engine.image": "vllm/vllm-openai:v0.32.0"}
KIMI = Pair.read("good", "kimi-eagle3.1-mla")
PARSER = RoleAnswer(refused_by="parser", error="unrecognized arguments: --max-num-sqs 8")
Fake = Callable[[str], str]


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """Writes a program that takes the place of a Python; it gets the probe and the question."""

    def written(body: str) -> str:
        path = tmp_path / "bin" / "python"
        path.parent.mkdir()
        path.write_text(f"#!{sys.executable}\nimport json, os, sys, pathlib\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return written


def asked(changes: dict[str, Any] | None = None) -> EngineQuestion:
    return question_of(resource(changes), BUNDLE)


def answers(**found: Any) -> str:
    return f"print({PREFIX!r} + json.dumps({found!r}))"


def judged_with(
    changes: dict[str, Any], answer: EngineAnswer, *, own_image: bool = False
) -> CheckReport:
    sd = resource(changes)
    configs = {target_ref(sd.spec): KIMI.target, draft_ref(sd.spec): KIMI.draft or {}}
    models = {ref: ModelFacts(config=ModelConfig.from_json(each)) for ref, each in configs.items()}
    judgement = judged(sd, models)
    report = report_of("a.yaml", judgement.candidate.resource, judgement)
    return with_engine(report, judgement.candidate, answer, own_image=own_image)


def test_a_server_is_asked_as_its_pod_starts_it() -> None:
    sd = resource()
    assert asked().arguments == {"leader": engine_args(sd.engine)}


def test_leader_and_worker_of_a_group_are_asked_each_with_an_address() -> None:
    found = asked(TWO_TRAYS).arguments

    assert list(found) == ["leader", "worker"]
    assert "--headless" in found["worker"]
    rank, address = (found["worker"].index(each) + 1 for each in ("--node-rank", "--master-addr"))
    assert (found["worker"][rank], found["worker"][address]) == ("1", "127.0.0.1")


def test_arguments_are_what_the_kubelet_makes_of_them() -> None:
    variables = [{"name": "SEQS", "value": "64"}]
    found = asked({"engine.env": variables, "engine.args": ["--max-num-seqs=$(SEQS)", "--x=$$(A)"]})

    assert {"--max-num-seqs=64", "--x=$(A)"} <= set(found.arguments["leader"])


def test_variables_that_vllm_reads_are_given_and_places_of_the_pod_are_not() -> None:
    variables = [{"name": "VLLM_USE_V1", "value": "1"}, {"name": "MINE", "value": "x"}]
    found = asked({"engine.env": variables, "cache.claimName": "weights"}).variables

    assert found["VLLM_USE_V1"] == "1"
    assert {"MINE", "HF_HOME", "VLLM_CACHE_ROOT"}.isdisjoint(found)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"engine.args": ["--max-num-seqs=$(SEQS)"]},
            r"The arguments read \$\(SEQS\), and the spec does not have its value",
        ),
        (
            {"podTemplate": {"spec": {"containers": [{"name": "vllm", "command": ["sh", "-c"]}]}}},
            "The pods start `sh -c`, by podTemplate",
        ),
    ],
)
def test_what_cannot_be_asked_is_a_sentence(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(NotAskedError, match=said):
        asked(changes)


async def test_a_python_is_given_the_question_the_plugin_and_the_variables(fake: Fake) -> None:
    python = fake(
        "question = json.loads(pathlib.Path(sys.argv[2]).read_text())\n"
        "plugin = pathlib.Path(os.environ['PYTHONPATH'], 'fathom_vllm', 'scheduler.py')\n"
        "variables = [os.environ[name] for name in ('VLLM_X', 'HF_HUB_OFFLINE')]\n"
        "seen = json.dumps([question['leader'][0], plugin.exists(), *variables])\n"
        f"print({PREFIX!r} + json.dumps({{'vllm': seen, 'answers': {{'leader': {{}}}}}}))"
    )
    question = asked({"engine.env": [{"name": "VLLM_X", "value": "y"}]})

    answer = await ask_python(python, question, offline=True)

    assert json.loads(answer.vllm) == [resource().spec.model.id, True, "y", "1"]
    assert answer.answers == {"leader": RoleAnswer()}


async def test_whatever_vllm_logs_around_it_the_answer_is_found(fake: Fake) -> None:
    noise = "print('x' * 1_000_000, flush=True); print('late', file=sys.stderr, flush=True)"
    answer = await ask_python(fake(f"{noise}\n{answers(vllm='0.32.0')}"), asked(), offline=True)
    assert answer.vllm == "0.32.0"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("sys.exit('Illegal instruction')", "ended with code 1 before it answered: Illegal instr"),
        ("os.abort()", "ended with code -6 before it answered: it wrote nothing"),
        (f"print({PREFIX!r} + '[1]')", "ended with code 0 before it answered"),
        # No more than an end of what it writes is kept.
        (f"{answers(vllm='0.32.0')}; print('x' * 1_000_000)", "ended with code 0 before it"),
        (answers(failure="it has no vLLM"), "cannot ask vLLM: it has no vLLM. Name the Python"),
    ],
)
async def test_a_python_that_does_not_answer_is_a_sentence(
    fake: Fake, body: str, said: str
) -> None:
    with pytest.raises(NotAskedError, match=said):
        await ask_python(fake(body), asked(), offline=True)


async def test_this_python_has_no_vllm_and_says_so() -> None:
    with pytest.raises(NotAskedError, match=r"cannot ask vLLM: it has no vLLM\. Name the"):
        await ask_python(sys.executable, asked(), offline=True)


async def test_one_that_takes_too_long_is_a_sentence(fake: Fake) -> None:
    with pytest.raises(NotAskedError, match=r"has not answered within 0 s\. If it waits for a hub"):
        await ask_python(fake("import time; time.sleep(1000)"), asked(), offline=True, timeout_s=0)


async def test_all_that_it_has_started_ends_when_nobody_waits_any_longer(
    fake: Fake, tmp_path: Path
) -> None:
    note = tmp_path / "child"
    python = fake(
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        f"pathlib.Path({str(note)!r}).write_text(f'{{child.pid}}\\n')\n"
        "time.sleep(1000)"
    )
    asking = asyncio.create_task(ask_python(python, asked(), offline=True))
    await until(lambda: is_written(note), "it has started another")
    asking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asking
    child = int(note.read_text())
    await until(lambda: has_ended(child), "that one has ended")


def is_written(note: Path) -> bool:
    return note.exists() and note.read_text().endswith("\n")


def has_ended(process: int) -> bool:
    return (
        not psutil.pid_exists(process) or psutil.Process(process).status() == psutil.STATUS_ZOMBIE
    )


async def test_what_is_no_program_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(NotAskedError, match="There is no program /nowhere/python: name the"):
        await ask_python("/nowhere/python", asked(), offline=True)
    broken = tmp_path / "python"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    with pytest.raises(NotAskedError, match="cannot be started: Exec format error"):
        await ask_python(str(broken), asked(), offline=True)


@pytest.mark.parametrize("written", ["", "a log", PREFIX, f"{PREFIX}[]", f"{PREFIX}{{"])
def test_what_is_no_answer_is_none(written: str) -> None:
    assert answer_in(written) is None


def test_what_is_taken_is_a_fact_with_what_is_not_known() -> None:
    answer = EngineAnswer(vllm="0.32.0+cpu", answers={"leader": RoleAnswer()})
    report = judged_with(RELEASE, answer)

    assert (report.verdict, report.findings) == ("valid", ())
    assert report.facts[0].label == "engine"
    assert report.facts[0].text.startswith("vLLM 0.32.0+cpu takes the arguments (its parser and")
    assert "Not known without a GPU: whether memory suffices" in report.facts[0].text


def test_what_is_refused_is_an_error_and_no_fact() -> None:
    answer = EngineAnswer(vllm="0.32.0", answers={"leader": PARSER})
    report = judged_with(RELEASE, answer)

    assert report.verdict == "refused"
    (finding,) = report.findings
    assert finding.line == (
        "error [engine] spec.engine.args: vLLM 0.32.0 refuses the arguments (its parser): "
        "unrecognized arguments: --max-num-sqs 8. Change it, or the engine ends when it starts."
    )
    assert all(each.label != "engine" for each in report.facts)


def test_pods_of_a_group_are_named_once_for_each_answer() -> None:
    both = EngineAnswer(vllm="0.32.0", answers={"leader": PARSER, "worker": PARSER})
    one = EngineAnswer(vllm="0.32.0", answers={"leader": RoleAnswer(), "worker": PARSER})

    (finding,) = judged_with(RELEASE, both).findings
    assert "refuses the arguments of leader and worker (its parser)" in finding.message
    report = judged_with(RELEASE, one)
    assert "refuses the arguments of worker" in report.findings[0].message
    assert "takes the arguments of leader (its" in report.facts[0].text


def test_what_is_not_known_is_neither_taken_nor_refused() -> None:
    unknown = RoleAnswer(unknown="a model's files cannot be read here: no such repository")
    report = judged_with(RELEASE, EngineAnswer(vllm="0.32.0", answers={"leader": unknown}))

    assert report.verdict == "unknown"
    (finding,) = [each for each in report.findings if each.rule == "engine"]
    assert (finding.severity, finding.field) == ("unknown", "spec.engine.args")
    assert finding.message == (
        "the parser of vLLM 0.32.0 takes the arguments; what its configuration says is not known: "
        "a model's files cannot be read here: no such repository."
    )


@pytest.mark.parametrize(
    ("changes", "vllm", "warned"),
    [
        (RELEASE, "0.31.0", "asked vLLM 0.31.0; the pods run 0.32.0, so nothing that it refuses"),
        ({"engine.image": "mine:1", "engine.version": None}, "0.32.0", "the spec does not say, so"),
        # The image may know more than the release that it was built from.
        ({"engine.image": "mine:1", "engine.version": "0.32.0"}, "0.32.0", ""),
    ],
)
def test_what_another_vllm_refuses_is_a_warning(
    changes: dict[str, Any], vllm: str, warned: str
) -> None:
    report = judged_with(changes, EngineAnswer(vllm=vllm, answers={"leader": PARSER}))

    assert report.verdict != "refused"
    found = [each for each in report.findings if each.rule == "engine"]
    assert {each.severity for each in found} == {"warning"}
    assert "unrecognized arguments" in found[-1].message
    assert (warned in found[0].message) if warned else len(found) == 1


def test_what_the_image_refuses_is_an_error_whoever_built_it() -> None:
    changes = {"engine.image": "mine:1", "engine.version": "0.31.0"}
    answer = EngineAnswer(vllm="0.32.0", answers={"leader": PARSER})
    report = judged_with(changes, answer, own_image=True)

    error, warning = (each for each in report.findings if each.rule == "engine")
    assert (report.verdict, error.severity, warning.severity) == ("refused", "error", "warning")
    assert warning.message == (
        "the image has vLLM 0.32.0, and is taken for 0.31.0: set spec.engine.version."
    )


def test_a_warning_can_be_silenced() -> None:
    sd = resource(RELEASE)
    annotations = {"silence.fathom.dev/engine": "tried"}
    sd = type(sd)(sd.metadata.model_copy(update={"annotations": annotations}), sd.spec)
    empty = CheckReport(file="a.yaml", verdict="valid")
    answer = EngineAnswer(vllm="0.31.0", answers={"leader": RoleAnswer()})

    report = with_engine(empty, candidate(sd), answer, own_image=False)

    assert [each.silenced for each in report.findings] == ["tried"]
    assert report.doubts == ()


def check(tmp_path: Path, *flags: str) -> tuple[int, str, str]:
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump(manifest(RELEASE)), encoding="utf-8")
    result = CliRunner().invoke(app, ["check", "--offline", *flags, "-f", str(file)])
    return result.exit_code, result.stdout, result.stderr


def test_the_command_ends_with_2_where_vllm_refuses(fake: Fake, tmp_path: Path) -> None:
    python = fake(answers(vllm="0.32.0", answers={"leader": PARSER.model_dump()}))

    code, out, err = check(tmp_path, "--engine", os.path.relpath(python))

    assert (code, err) == (2, "")
    assert out.startswith("✘ kimi: refused\n  error [engine] spec.engine.args: vLLM 0.32.0 refuses")


def test_the_command_ends_with_2_where_nothing_can_be_asked(tmp_path: Path) -> None:
    code, _, err = check(tmp_path, "--engine", "/nowhere/python")
    assert (code, err) == (
        2,
        (
            "There is no program /nowhere/python: name the Python of an environment that has "
            "vLLM, such as --engine /opt/vllm/bin/python.\n"
        ),
    )
    code, _, err = check(tmp_path, "--engine", "python3", "--image")
    assert (code, err) == (2, "Give either --engine PYTHON or --image.\n")
    code, _, err = check(tmp_path, "--image", "--kubeconfig", str(tmp_path / "none"))
    assert (code, err.startswith("--kubeconfig names ")) == (2, True)
