"""The templates of trainings that users copy: their scripts run, with simulated trainers."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from local_cluster.engine.process import free_port
from support.pages import REPOSITORY
from support.trained_drafts import Intake, new_intake
from training.environment import TrainingEnvironment
from training.pod import TEMPLATE, TRAIN, cpu_template, halves

TEMPLATES = sorted((REPOSITORY / "examples" / "training").glob("*.yaml"))
PROMPT = "ch4tty-pr0mpt"
KUBERNETES_REFERENCE = re.compile(r"\$\(([A-Za-z_][\w.-]*)\)")
"""What Kubernetes itself replaces in a container's command, where a variable has that name."""


class Stage:
    """A container's folders, and a folder of commands that come first on PATH."""

    def __init__(self, directory: Path, output: Path) -> None:
        self.directory = directory
        self.output = output
        self.commands = directory / "bin"
        self.scratch = directory / "scratch"
        self.data = directory / "data"
        self.port = free_port()
        for folder in (self.commands, self.scratch, self.data):
            folder.mkdir()
        self.play("python3", 'exec "$REAL_PYTHON" "$@"')

    def play(self, command: str, script: str) -> None:
        """Let a command do this, in shell, and note its arguments."""
        file = self.commands / command
        note = f'echo "{command} $*" >>"{self.directory}/called"'
        file.write_text(f"#!/bin/sh\n{note}\n{script}\n")
        file.chmod(0o755)

    def here(self, script: str) -> str:
        """A script with folders and a port of this test."""
        moved = script.replace("/scratch", str(self.scratch))
        moved = moved.replace("/tmp/draft", f"{self.scratch}/d")
        return moved.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")

    @property
    def called(self) -> str:
        return (self.directory / "called").read_text()

    def run(self, *scripts: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """What `sh -c` makes of the first, with the others as its arguments."""
        return subprocess.run(
            ["sh", "-c", *map(self.here, scripts)],
            cwd=self.directory,
            env={
                "PATH": f"{self.commands}{os.pathsep}/usr/bin{os.pathsep}/bin",
                "REAL_PYTHON": sys.executable,
                "FATHOM_RUN": "7f3a",
                "FATHOM_TARGET": "org/target",
                "FATHOM_TARGET_COMMIT": "c" * 40,
                "FATHOM_METHOD": "eagle3",
                "FATHOM_DATA": str(self.data),
                "FATHOM_OUTPUT": str(self.output),
                "no_proxy": "127.0.0.1",
                **variables,
            },
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def intake() -> Any:
    with new_intake() as found:
        yield found


@pytest.fixture
def stage(tmp_path: Path, intake: Intake) -> Stage:
    """One whose trainers write an honest draft, as only their own user may read it."""
    trained = tmp_path / "trained"
    intake.output.draft.rename(trained)
    (intake.output.path / "result.json").unlink()
    (trained / "model.safetensors").chmod(0o600)
    (trained / "optimizer_state_dict.pt").write_text("a pickle")
    return Stage(tmp_path, intake.output.path)


def write_draft(to: str) -> str:
    """Shell that leaves a draft as a trainer may: by links."""
    return f'mkdir -p "{to}"; ln -s "{{trained}}"/* "{to}/"'


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_a_template_has_the_container_and_writes_the_result_last(path: Path) -> None:
    half = halves(path)[TRAIN]

    lines = [each for each in half.script.splitlines() if each and not each.startswith("#")]
    assert lines[-1].endswith('>"$FATHOM_OUTPUT/result.json"')
    for name in (each for one in halves(path).values() for each in (one.script, *one.probe)):
        assert KUBERNETES_REFERENCE.findall(name) == []


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_what_a_template_asks_of_the_operator_is_in_the_contract(path: Path) -> None:
    page = (REPOSITORY / "docs" / "training.md").read_text(encoding="utf-8")
    contract = set(re.findall(r"^\| `(FATHOM_\w+)`", page, re.MULTILINE))

    used = set(re.findall(r"FATHOM_\w+", path.read_text(encoding="utf-8")))

    assert used <= contract


def test_the_versions_of_speculators_and_vllm_are_those_that_were_run() -> None:
    pinned = dict(
        re.findall(
            r"^([\w-]+)==(\S+)$",
            (REPOSITORY / "constraints-training.txt").read_text(),
            re.MULTILINE,
        )
    )
    text = TEMPLATE.read_text(encoding="utf-8")

    assert f"speculators=={pinned['speculators']}" in text
    assert pinned["hs-connectors"] == pinned["speculators"]
    assert f"speculators=={pinned['speculators']}" in (REPOSITORY / "docs/training.md").read_text()


def play_speculators(stage: Stage, prepared: str = "true") -> str:
    """Let speculators' commands answer; the script of the trainer."""
    stage.play("speculators", f'echo "{PROMPT}"; {prepared}')
    best = f"{stage.scratch}/checkpoints/3"
    trains = write_draft(best).format(trained=stage.directory / "trained")
    stage.play("torchrun", f"{trains}; ln -s 3 {stage.scratch}/checkpoints/checkpoint_best")
    (stage.scratch / "target.env").write_text("TARGET=/hub/snapshot LAYERS='2 4 5' LAST=8\n")
    return halves()[TRAIN].script


def settings(**changed: str) -> dict[str, str]:
    return {**halves()[TRAIN].env, **changed}


def test_what_speculators_leaves_is_taken_in_as_it_is_handed_back(
    stage: Stage, intake: Intake
) -> None:
    script = play_speculators(stage)

    ended = stage.run(script, **settings())

    assert ended.returncode == 0, ended.stderr
    assert "--target-layer-ids 2 4 5" in stage.called
    assert sorted(each.name for each in intake.output.draft.iterdir()) == [
        "config.json",
        "model.safetensors",
    ]
    assert stat.S_IMODE(intake.output.weights.stat().st_mode) & 0o044
    assert intake.run().refused == ""


def test_states_are_kept_only_where_that_is_asked_for(stage: Stage) -> None:
    script = play_speculators(stage)

    stage.run(script, **settings())
    assert "generate-offline-data" not in stage.called

    stage.run(script, **settings(STATES="kept"))
    assert "generate-offline-data" in stage.called


def test_no_text_of_the_data_reaches_the_log(stage: Stage) -> None:
    script = play_speculators(stage)

    ended = stage.run(script, **settings())

    assert PROMPT in (stage.scratch / "prepare.log").read_text()
    assert PROMPT not in ended.stdout + ended.stderr


def test_data_that_cannot_be_prepared_end_it_with_the_kind_of_error_alone(
    stage: Stage, intake: Intake
) -> None:
    script = play_speculators(stage, f'echo "ValueError: no {PROMPT}"; exit 1')

    ended = stage.run(script, **settings())

    assert ended.returncode != 0
    assert "prepare-data failed with ValueError" in ended.stderr
    assert PROMPT not in ended.stdout + ended.stderr
    assert intake.run().refused == "noResult"


def test_a_training_that_fails_leaves_no_result(stage: Stage, intake: Intake) -> None:
    script = play_speculators(stage)
    stage.play("torchrun", "exit 3")

    ended = stage.run(script, **settings())

    assert ended.returncode == 3
    assert intake.run().refused == "noResult"


@pytest.mark.parametrize("layers", ["", "1 2 6"])
def test_vllm_loads_the_pinned_snapshot_and_hands_out_the_last_layer_too(
    stage: Stage, layers: str
) -> None:
    half = halves()["states"]
    snapshot = stage.directory / "models--org--target" / "snapshots" / ("c" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"num_hidden_layers": 8}')
    stage.play("vllm", "exit 0")

    ended = stage.run(
        half.script,
        **{**half.env, "LAYERS": layers},
        HF_HUB_CACHE=str(stage.directory),
        HF_HUB_OFFLINE="1",
    )

    assert ended.returncode == 0, ended.stderr
    assert f"vllm serve {snapshot} " in stage.called
    states = (layers or "2 4 5").replace(" ", ",")
    assert f'"eagle_aux_hidden_state_layer_ids": [{states},8]' in stage.called
    assert f"TARGET={snapshot}" in (stage.scratch / "target.env").read_text()


def in_one_container(stage: Stage, vllm: str) -> subprocess.CompletedProcess[str]:
    """Both halves, as a pod of the local cluster runs them."""
    environment = TrainingEnvironment(stage.directory, stage.directory)
    [container] = cpu_template(environment, "")["spec"]["containers"]
    play_speculators(stage)
    (stage.data / "config.json").write_text('{"num_hidden_layers": 8}')
    stage.play("vllm", vllm)
    return stage.run(
        *container["args"],
        **{each["name"]: each["value"] for each in container["env"]},
        FATHOM_TARGET=str(stage.data),
    )


def test_in_one_container_the_trainer_waits_for_vllm_and_ends_it(
    stage: Stage, intake: Intake
) -> None:
    (stage.directory / "health").write_text("")
    serves = f'exec "$REAL_PYTHON" -m http.server {stage.port} --bind 127.0.0.1'

    ended = in_one_container(stage, f'echo $$ >"{stage.directory}/pid"; {serves}')

    assert ended.returncode == 0, ended.stderr
    assert intake.run().refused == ""
    assert not Path("/proc", (stage.directory / "pid").read_text().strip()).exists()


def test_in_one_container_a_vllm_that_ends_ends_the_pod(stage: Stage, intake: Intake) -> None:
    ended = in_one_container(stage, "exit 1")

    assert ended.returncode != 0
    assert "torchrun" not in stage.called
    assert intake.run().refused == "noResult"


def test_a_trainer_of_one_s_own_hands_back_what_is_taken(stage: Stage, intake: Intake) -> None:
    writes = write_draft(f"{stage.scratch}/trained").format(trained=stage.directory / "trained")
    stage.play("my-trainer", writes)

    ended = stage.run(halves(TEMPLATE.with_name("any-job.yaml"))[TRAIN].script)

    assert ended.returncode == 0, ended.stderr
    assert f"--target org/target --revision {'c' * 40} --method eagle3" in stage.called
    assert intake.run().refused == ""


def torchspec(stage: Stage, submit: str) -> subprocess.CompletedProcess[str]:
    half = halves(TEMPLATE.with_name("torchspec.yaml"))[TRAIN]
    runs = stage.directory / "runs"
    stage.play("ray", submit.format(run=f"{runs}/7f3a"))
    copies = write_draft(f"{stage.scratch}/d").format(trained=stage.directory / "trained")
    stage.play("python3", copies)
    return stage.run(half.script, **{**half.env, "RUNS": str(runs)})


def test_the_last_checkpoint_of_torchspec_is_converted_and_taken(
    stage: Stage, intake: Intake
) -> None:
    ended = torchspec(
        stage, "mkdir -p {run}/checkpoints/iter_0000100 {run}/checkpoints/iter_0000200"
    )

    assert ended.returncode == 0, ended.stderr
    assert "--submission-id fathom-7f3a" in stage.called
    assert "7f3a/checkpoints/iter_0000200 --config" in stage.called
    assert intake.run().refused == ""


def test_a_ray_job_that_fails_fails_the_pod(stage: Stage, intake: Intake) -> None:
    ended = torchspec(stage, "exit 1")

    assert ended.returncode == 1
    assert intake.run().refused == "noResult"


def test_a_template_is_what_a_job_takes() -> None:
    for path in TEMPLATES:
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
        mounted = {
            each["name"]
            for kind in ("initContainers", "containers")
            for container in spec.get(kind, ())
            for each in container.get("volumeMounts", ())
        }
        assert mounted == {each["name"] for each in spec["volumes"]}, path.name
