"""What a command refuses, it refuses with a sentence and exit code 2."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fathom.cli.main import app

ON_ONE = (
    *("status", "explain", "advise", "history", "record"),
    *("pause", "resume", "retry", "rollout"),
)


@pytest.mark.parametrize("command", [(each, "kimi") for each in ON_ONE] + [("top",)])
def test_without_a_cluster_it_says_where_it_looked(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "none"
    result = CliRunner().invoke(app, [*command, "--kubeconfig", str(file)])

    assert result.exit_code == 2
    assert result.stderr.startswith(f"--kubeconfig names {file}, which does not exist: ")
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", [each for each in ON_ONE if each != "status"])
def test_without_a_name_it_asks_for_one(command: str) -> None:
    result = CliRunner().invoke(app, [command])

    assert result.exit_code == 2
    assert "Missing argument 'NAME'." in result.stderr


@pytest.mark.parametrize("reason", ["", "false"])
def test_a_reason_that_would_be_no_pause_is_refused(reason: str) -> None:
    result = CliRunner().invoke(app, ["pause", "kimi", "--reason", reason])

    assert result.exit_code == 2
    assert f"--reason {reason!r} would be no pause: say why, or leave it out." in result.stderr


@pytest.mark.parametrize(
    "name", ["sd/kimi", "speculativedeployments.fathom.dev/kimi", "SpecDep/kimi"]
)
def test_a_name_may_have_its_kind_before_it(name: str, tmp_path: Path) -> None:
    kubeconfig = str(tmp_path / "none")
    named, other = (
        CliRunner().invoke(app, ["explain", each, "--kubeconfig", kubeconfig])
        for each in (name, "deployment/kimi")
    )
    nameless = CliRunner().invoke(app, ["explain", "sd/", "--kubeconfig", kubeconfig])

    assert "does not exist: correct the path" in named.stderr
    assert other.exit_code == 2
    assert "deployment/kimi is no SpeculativeDeployment" in other.stderr
    assert "sd/ is no SpeculativeDeployment" in nameless.stderr
    compared = CliRunner().invoke(app, ["check", "--live", "pod/kimi", "--kubeconfig", kubeconfig])
    assert "pod/kimi is no SpeculativeDeployment" in compared.stderr


def test_what_is_watched_is_no_document() -> None:
    for command in ("status", "top"):
        refused = CliRunner().invoke(app, [command, "-w", "-o", "json"])
        assert (refused.exit_code, "Give either -w or -o" in refused.stderr) == (2, True)
