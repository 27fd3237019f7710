from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fathom import __version__
from fathom.cli.main import app
from manifest_samples import manifest
from support.wrapped import unwrapped

SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "other"}}


def file_with(path: Path, *documents: dict[str, Any]) -> str:
    path.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    return str(path)


@pytest.fixture
def cli() -> CliRunner:
    return CliRunner()


def test_render_prints_nothing_but_yaml(cli: CliRunner, tmp_path: Path) -> None:
    result = cli.invoke(app, ["render", "-f", file_with(tmp_path / "a.yaml", manifest())])

    assert result.exit_code == 0
    assert result.stderr == ""
    assert [document["kind"] for document in yaml.safe_load_all(result.stdout)] == [
        "ServiceAccount",
        "ConfigMap",
        "ConfigMap",
        "Service",
        "PodDisruptionBudget",
        "PodMonitor",
        "Deployment",
    ]


@pytest.mark.parametrize("command", [["render"], ["check", "--offline"]])
def test_files_may_be_named_with_and_without_a_flag(
    cli: CliRunner, tmp_path: Path, command: list[str]
) -> None:
    files = [file_with(tmp_path / f"{name}.yaml", manifest()) for name in ("a", "b")]
    flags = [word for file in files for word in ("-f", file)]
    told = cli.invoke(app, [*command, *flags]).stdout

    for words in (files, [*flags[:2], files[1]]):
        result = cli.invoke(app, [*command, *words])
        assert (result.exit_code, result.stderr, result.stdout) == (0, "", told)


@pytest.mark.parametrize("command", ["render", "check"])
def test_without_a_file_there_is_nothing_to_do(cli: CliRunner, command: str) -> None:
    result = cli.invoke(app, [command])

    assert (result.exit_code, result.stdout) == (2, "")
    assert "files" in result.stderr


def test_render_reads_stdin(cli: CliRunner) -> None:
    result = cli.invoke(app, ["render", "-f", "-"], input=yaml.safe_dump(manifest()))

    assert result.exit_code == 0
    assert "kind: Deployment" in result.stdout


def test_other_kinds_are_passed_over(cli: CliRunner, tmp_path: Path) -> None:
    ours = file_with(tmp_path / "a.yaml", manifest())
    mixed = file_with(tmp_path / "b.yaml", SERVICE, manifest())

    assert (
        cli.invoke(app, ["render", "-f", mixed]).stdout
        == cli.invoke(app, ["render", "-f", ours]).stdout
    )


def test_the_items_of_a_list_are_read(cli: CliRunner, tmp_path: Path) -> None:
    file = file_with(
        tmp_path / "a.yaml", {"apiVersion": "v1", "kind": "List", "items": [manifest(), SERVICE]}
    )

    result = cli.invoke(app, ["check", "--offline", "-f", file])

    assert result.exit_code == 0
    assert result.stdout.startswith("! kimi: unknown, revision ")


def test_of_two_resources_only_the_good_one_is_printed(cli: CliRunner, tmp_path: Path) -> None:
    bad = manifest({"speculation.tokens": 0})
    bad["metadata"]["name"] = "bad"
    file = file_with(tmp_path / "a.yaml", bad, manifest())

    result = cli.invoke(app, ["render", "-f", file])

    assert result.exit_code == 2
    assert result.stderr == (
        f"{file}: bad: spec.speculation.tokens: 0 is too small: 1 is the least. To serve without "
        "drafts, set speculation.drafting to Disabled.\n"
    )
    names = {document["metadata"]["name"] for document in yaml.safe_load_all(result.stdout)}
    assert "kimi-depth" in names
    assert not any(name.startswith("bad") for name in names)


def test_a_name_too_long_for_groups_is_refused_with_the_number(
    cli: CliRunner, tmp_path: Path
) -> None:
    document = manifest({"engine.tensorParallelSize": 8})
    document["metadata"]["name"] = "n" * 42
    file = file_with(tmp_path / "a.yaml", document)

    result = cli.invoke(app, ["check", "--offline", "-f", file])

    assert result.exit_code == 2
    assert unwrapped(result.stdout)[1] == (
        "  error [api-creation] metadata.name: this name is too long for replicas over several "
        "nodes, whose pods repeat it in labels: it may have 41 characters. Create the resource "
        "again under a shorter name, or keep tensorParallelSize × pipelineParallelSize × "
        "dataParallelSize within one node."
    )


def test_every_problem_is_told_at_once(cli: CliRunner, tmp_path: Path) -> None:
    file = file_with(
        tmp_path / "a.yaml", manifest({"draft.id": None, "engine.tensorParallelSize": 3})
    )

    result = cli.invoke(app, ["check", "--offline", "-f", file])

    assert [line.split(": ")[0] for line in unwrapped(result.stdout)] == [
        f"✘ {file}",
        "  error spec.draft.id",
        "  error spec.engine.tensorParallelSize",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "not YAML: while parsing"),
        ("a: 1\na: 2", "not YAML: the key 'a' occurs twice in"),
    ],
)
def test_text_that_is_not_yaml_is_refused(
    cli: CliRunner, tmp_path: Path, text: str, sentence: str
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text, encoding="utf-8")

    result = cli.invoke(app, ["render", "-f", str(file)])

    assert result.exit_code == 2
    assert result.stderr.startswith(f"{file}: {sentence}")


def test_a_missing_file_is_named(cli: CliRunner) -> None:
    result = cli.invoke(app, ["render", "-f", "/nowhere/a.yaml"])

    assert result.exit_code == 2
    assert result.stderr == "/nowhere/a.yaml: cannot be read: No such file or directory.\n"


@pytest.mark.parametrize(
    ("changes", "depth"),
    [
        ({}, "  depth: Live: one of 1, 3, 7, starting at 3."),
        (
            {"speculation.tuning.mode": "Static"},
            "  depth: Static: 3, as tuning.mode asks.",
        ),
        (
            {"engine.image": "vllm/vllm-openai:nightly"},
            (
                "  depth: EngineVersionUnknown: the tag of vllm/vllm-openai:nightly does not show "
                "which vLLM it holds, so depth stays at tokens (3): set spec.engine.version."
            ),
        ),
    ],
)
def test_check_says_how_depth_will_be_changed(
    cli: CliRunner, tmp_path: Path, changes: dict[str, Any], depth: str
) -> None:
    file = file_with(tmp_path / "a.yaml", manifest(changes))

    printed = cli.invoke(app, ["check", "--offline", "-f", file]).stdout
    assert depth in unwrapped(printed)


def test_version(cli: CliRunner) -> None:
    result = cli.invoke(app, ["--version"])

    assert result.exit_code == 0
    assert result.stdout.split()[:2] == ["fathom", __version__]


def test_check_says_what_a_pod_template_leaves_to_the_user(cli: CliRunner, tmp_path: Path) -> None:
    document = manifest({"podTemplate": {"spec": {"hostNetwork": True}}})

    result = cli.invoke(app, ["check", "--offline", "-f", file_with(tmp_path / "a.yaml", document)])

    assert (result.exit_code, result.stderr) == (0, "")
    assert "\n  warning [pod-template-likely] spec.podTemplate.spec.hostNet" in result.stdout


def test_check_says_nothing_more_of_one_that_is_refused(cli: CliRunner, tmp_path: Path) -> None:
    template = {"spec": {"hostNetwork": True, "containers": [{"name": "main"}]}}
    document = manifest({"podTemplate": template})

    result = cli.invoke(app, ["check", "--offline", "-f", file_with(tmp_path / "a.yaml", document)])

    assert result.exit_code == 2
    assert "warning" not in result.stdout
