"""What set-up says of a machine before it downloads or builds anything."""

import os
import subprocess
from pathlib import Path

import pytest

from support.waiting import GUARD_S


class Machine:
    """One whose programs are this machine's, but for those that a test replaces."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._folder = folder

    def has(self, program: str, script: str) -> None:
        (self._folder / program).write_text(f"#!/bin/sh\n{script}\n")
        (self._folder / program).chmod(0o755)

    def run(self, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        ours = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "ARGS", "KUBERNETES"}
        environment = variables | {
            name: value
            for name, value in os.environ.items()
            if name not in ours and not name.lower().endswith("_proxy")
        }
        return subprocess.run(
            command,
            cwd=self._root,
            env={**environment, "PATH": f"{self._folder}:{environment['PATH']}"},
            check=False,
            capture_output=True,
            text=True,
            timeout=GUARD_S,
        )


@pytest.fixture
def machine(root: Path, tmp_path: Path) -> Machine:
    """Whose user is not root."""
    machine = Machine(root, tmp_path)
    machine.has("id", "echo 1000")
    machine.has("apt-get", "echo apt-get must not run >&2; exit 99")
    return machine


def test_the_demo_asks_for_root_first_with_a_command_that_keeps_path(machine: Machine) -> None:
    ran = machine.run("sh", "tools/prerequisites.sh", "cluster")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "which needs root. Nothing was downloaded." in ran.stderr
    assert 'sudo --preserve-env env "PATH=$PATH" make demo' in ran.stderr


def test_it_names_what_is_missing_in_the_same_breath(machine: Machine) -> None:
    machine.has("python3", "exit 1")
    ran = machine.run("env", "PYTHON=python3", "sh", "tools/prerequisites.sh", "cluster")
    assert ran.returncode == 1
    assert "Missing on this machine: python3-venv" in ran.stderr
    assert "needs root" in ran.stderr


def test_what_leads_to_no_cluster_needs_no_root(machine: Machine) -> None:
    ran = machine.run("sh", "tools/prerequisites.sh")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("variables", "said"),
    [({}, False), ({"https_proxy": ""}, False), ({"https_proxy": "http://p:1"}, True)],
)
def test_a_proxy_is_said_before_it_is_used(
    machine: Machine, variables: dict[str, str], *, said: bool
) -> None:
    machine.has("id", "echo 0")
    ran = machine.run("sh", "tools/prerequisites.sh", "cluster", **variables)
    assert ("a proxy is set: downloads use it" in ran.stdout) is said


def test_it_comes_before_all_else_that_make_demo_does(machine: Machine) -> None:
    ran = machine.run("make", "--dry-run", "--always-make", "--no-print-directory", "demo")
    steps = ran.stdout.splitlines()
    assert steps[0] == "sh tools/prerequisites.sh cluster"
    assert any("pip install" in step for step in steps[1:])
