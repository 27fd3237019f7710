"""What shells and kubectl are told when a word of `fathom` is to be completed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from fathom.cli.arguments import names_beginning
from support.waiting import GUARD_S

NOBODY = {"apiVersion": "v1", "kind": "Config", "current-context": "a", "contexts": []}


def completed(*words: str, kubeconfig: str = "/nonexistent") -> list[str]:
    """As kubectl asks."""
    code = "from fathom.__main__ import kubectl_complete_fathom as it; it()"
    ran = subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**os.environ, "KUBECONFIG": kubeconfig},
        capture_output=True,
        text=True,
        timeout=GUARD_S,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.splitlines()


def test_kubectl_is_told_the_commands_and_that_there_is_nothing_else() -> None:
    *commands, directive = completed("")

    assert {"status", "explain", "advise", "pause", "resume", "retry", "rollout", "top"} <= {
        *commands
    }
    assert directive == ":4"
    assert completed("re") == ["render", "resume", "retry", "record", "replay", "report", ":4"]


def test_commands_are_told_without_importing_them() -> None:
    code = (
        "from fathom.__main__ import kubectl_complete_fathom as it; it(); import sys; "
        "print(*(each for each in sys.modules if each.startswith('fathom.cli.')))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, ""],
        capture_output=True,
        text=True,
        timeout=GUARD_S,
        check=True,
    )
    *_, directive, imported = ran.stdout.splitlines()
    assert directive == ":4"
    assert imported == "fathom.cli.resources fathom.cli.main"


def test_a_workload_begins_with_its_kind() -> None:
    assert completed("attach", "st") == ["statefulset/", ":4"]


def test_options_are_completed_too() -> None:
    assert completed("status", "--na") == ["--namespace", ":4"]


@pytest.mark.parametrize("words", [("check", ""), ("status", ""), ("nonsense", "x")])
def test_where_nothing_is_known_the_shell_goes_on_with_files_and_nothing_is_said(
    words: tuple[str, ...],
) -> None:
    assert completed(*words) == [":0"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    code = "from fathom.cli.main import app; app(prog_name='fathom')"
    shown = subprocess.run(
        [sys.executable, "-c", code, "--show-completion", shell],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        timeout=GUARD_S,
        check=False,
    )
    assert shown.returncode == 0
    assert "_FATHOM_COMPLETE=complete_" in shown.stdout
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=shown.stdout, text=True, check=False)
        assert checked.returncode == 0


def test_a_cluster_that_cannot_be_asked_is_no_names_and_no_error(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(yaml.safe_dump(NOBODY), encoding="utf-8")
    context = typer.Context(typer.core.TyperCommand("status"))
    for path in (kubeconfig, tmp_path / "none"):
        context.params = {"kubeconfig": path, "namespace": "", "context": ""}
        assert names_beginning(context, "") == []
