"""Files that hold nothing of ours, or what nobody would write on purpose: a sentence, never 0."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from fathom.cli.main import app
from manifest_samples import manifest
from support.wrapped import unwrapped

GOOD = yaml.safe_dump(manifest())
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
NONE = "holds no SpeculativeDeployment and no SpeculationTuner."
ALIAS = "not YAML: *a is within what it names"
DEEP = "not YAML: nested more than 100 deep"


def ask(command: str, path: Path, text: str | None = None) -> Result:
    if text is not None:
        path.write_text(text, encoding="utf-8")
    offline = ["--offline"] if command == "check" else []
    return CliRunner().invoke(app, [command, *offline, "-f", str(path)])


def as_pod_template(value: str) -> str:
    """A good manifest in JSON, with JSON of this text somewhere in its pod template."""
    text = json.dumps(manifest({"podTemplate": {"spec": {"x": "HERE"}}}))
    return text.replace('"HERE"', value)


@pytest.mark.parametrize("command", ["check", "render"])
@pytest.mark.parametrize("text", [CONFIG_MAP, "", "just a sentence", "[1, 2]", "items: []"])
def test_a_file_that_holds_none_of_ours_is_refused(command: str, text: str, tmp_path: Path) -> None:
    result = ask(command, tmp_path / "a.yaml", text)

    assert result.exit_code == 2
    assert result.stderr == f"{tmp_path / 'a.yaml'}: {NONE}\n"
    assert result.stdout == ""


def test_a_good_file_does_not_make_up_for_one_that_holds_none(tmp_path: Path) -> None:
    good, other = tmp_path / "good.yaml", tmp_path / "other.yaml"
    good.write_text(GOOD, encoding="utf-8")
    other.write_text(CONFIG_MAP, encoding="utf-8")

    result = CliRunner().invoke(app, ["check", "--offline", "-f", str(other), "-f", str(good)])

    assert result.exit_code == 2
    assert result.stderr == f"{other}: {NONE}\n"
    assert result.stdout.startswith("! kimi: unknown, revision ")


@pytest.mark.parametrize("command", ["check", "render"])
@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("SpeculativeDeployment", "SpeculativeDeploymnt", "kind: 'SpeculativeDeploymnt' is not"),
        ("kind: SpeculativeDeployment", "kind: [a]", "kind: this is a list, where 'Speculat"),
        (
            "fathom.dev/v1alpha1",
            "fathom.dev/v1",
            "apiVersion: 'fathom.dev/v1' is not 'fathom.dev/v1alpha1'. Did you",
        ),
        ("fathom.dev/v1alpha1", "fathm.dev/v1alpha1", "apiVersion: 'fathm.dev/v1alpha1' is not"),
        ("namespace: llm", "namespace: ../x", "metadata.namespace: this is no name of a namespace"),
        ("name: kimi", "name: Kimi_K2", "metadata.name: this is no name: use lower-case letters"),
        ("namespace: llm", "labels: {a: 5}", "metadata.labels.a: 5 is not text: put it in quotes"),
        ("namespace: llm", "annotations: {a: true}", "metadata.annotations.a: true is not text"),
    ],
)
def test_what_is_nearly_ours_is_told_what_is_wrong(
    command: str, old: str, new: str, sentence: str, tmp_path: Path
) -> None:
    result = ask(command, tmp_path / "a.yaml", GOOD.replace(old, new))

    assert result.exit_code == 2
    printed = unwrapped(result.stdout) if command == "check" else [result.stderr]
    before = "  error " if command == "check" else f"{tmp_path / 'a.yaml'}: "
    assert any(line.startswith(f"{before}{sentence}") for line in printed)


@pytest.mark.parametrize("command", ["check", "render"])
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{GOOD}x: {'1' * 5000}", "not YAML: a number of 5000 characters is too long"),
        (f"{GOOD}x: -0b{'1' * 5000}", "not YAML: a number of 5003 characters is too long"),
        (f"{GOOD}x: 0x_", "not YAML: this is no int"),
        (f"{GOOD}x: !!bool maybe", "not YAML: this is no bool"),
        (f"{GOOD}null: 1", "not YAML: a key is empty"),
        (f"{GOOD}x: .nan", "not YAML: .nan is no number in JSON"),
        (f"{GOOD}x: !!timestamp 2024-13-45", "not YAML: could not determine a constructor"),
        (f"{GOOD}x: !!binary aGVsbG8=", "not YAML: could not determine a constructor"),
        ("&a\nkind: List\nitems: [*a]", ALIAS),
        ("kind: List\nitems: &a [*a]", ALIAS),
        ("a: &a {<<: *a}", ALIAS),
        (f"{GOOD}  podTemplate: &a\n    spec: *a", ALIAS),
        (f"{GOOD}x: {'[' * 5000}{']' * 5000}", DEEP),
        (as_pod_template("[" * 20_000 + "]" * 20_000), DEEP),
        (as_pod_template('{"a":' * 500 + "1" + "}" * 500), DEEP),
    ],
)
def test_no_text_brings_a_traceback(command: str, text: str, sentence: str, tmp_path: Path) -> None:
    result = ask(command, tmp_path / "a.yaml", text)

    assert result.exit_code == 2
    assert result.stderr.startswith(f"{tmp_path / 'a.yaml'}: {sentence}")
    assert len(result.stderr) < 1000


@pytest.mark.parametrize("date", ["2024-13-45", "2024-01-02", "2024-01-02 10:00:00"])
def test_a_date_is_text_as_it_is_for_kubectl(date: str, tmp_path: Path) -> None:
    text = GOOD.replace(
        "id: nvidia/Kimi-K2.6-NVFP4", f"id: nvidia/Kimi-K2.6-NVFP4\n    servedName: {date}"
    )

    result = ask("render", tmp_path / "a.yaml", text)

    assert result.exit_code == 0
    assert date in result.stdout


def test_a_key_is_text_as_it_is_for_kubectl(tmp_path: Path) -> None:
    text = f"{GOOD}  nodePool:\n    nodeSelector: {{7: a, y: b, yes: c, 1.5: d}}\n"

    result = ask("render", tmp_path / "a.yaml", text)

    assert result.exit_code == 0
    (selector,) = (
        each["spec"]["template"]["spec"]["nodeSelector"]
        for each in yaml.safe_load_all(result.stdout)
        if each["kind"] == "Deployment"
    )
    assert [selector[key] for key in ("7", "y", "true", "1.5")] == ["a", "b", "c", "d"]


def test_the_list_of_our_own_kind_is_read(tmp_path: Path) -> None:
    listed = {"apiVersion": "fathom.dev/v1alpha1", "kind": "SpeculativeDeploymentList",
              "items": [manifest()]}  # fmt: skip

    result = ask("check", tmp_path / "a.json", json.dumps(listed))

    assert result.exit_code == 0


QUOTES = "is not text: put it in quotes."
UNQUOTED = "write one, without quotes."
NEITHER = "is neither true nor false: write one of them, without quotes."


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("speculation.tokens", True, f"true is not a whole number: {UNQUOTED}"),
        ("speculation.tokens", "3", "'3' is text: write 3, without quotes."),
        (
            "speculation.tokens",
            0,
            (
                "0 is too small: 1 is the least. To serve without drafts, set "
                "speculation.drafting to Disabled."
            ),
        ),
        ("speculation.tokens", -1, "-1 is too small: 1 is the least."),
        (
            "speculation.tuning.mode",
            False,
            (
                "false is not one of 'Auto', 'Advise' or 'Static'. YAML reads off as false. To "
                "keep one depth, write Static; to serve without drafts, set "
                "speculation.drafting to Disabled."
            ),
        ),
        ("engine.user", False, f"false is not a whole number: {UNQUOTED}"),
        ("model.trustRemoteCode", "yes", f"'yes' {NEITHER}"),
        ("model.trustRemoteCode", 1, f"1 {NEITHER}"),
        ("speculation.tuning.tpotMilliseconds", True, f"true is not a number: {UNQUOTED}"),
        ("speculation.tuning.minGainPercent", "2", "'2' is text: write 2, without quotes."),
        ("engine.resources.limits.memory", True, f"true {QUOTES}"),
        ("nodePool.nodeSelector.a", 5, f"5 {QUOTES}"),
        ("metrics.podMonitorLabels.a", True, f"true {QUOTES}"),
        ("podTemplate.metadata.labels.a", 5, f"5 {QUOTES}"),
        ("podTemplate.metadata.annotations.a", True, f"true {QUOTES}"),
        ("podTemplate.spec.nodeSelector.a", 1.5, f"1.5 {QUOTES}"),
    ],
)
def test_a_value_of_another_type_is_refused_as_the_server_would(
    field: str, value: object, sentence: str, tmp_path: Path
) -> None:
    result = ask("check", tmp_path / "a.yaml", yaml.safe_dump(manifest({field: value})))

    assert result.exit_code == 2
    (found,) = unwrapped(result.stdout)[1:]
    assert found.startswith("  error ")
    assert found.endswith(f"spec.{field}: {sentence}")


@pytest.mark.parametrize(
    "changes",
    [
        {"speculation.tokens": 3.0},
        {"speculation.tuning.tpotMilliseconds": 25},
        {"engine.resources": {"limits": {"memory": "200Gi", "cpu": 8}}},
        {"podTemplate": {"metadata": {"labels": {"a": "5", "b": None}}}},
    ],
)
def test_values_that_the_server_takes_are_taken(changes: dict[str, Any], tmp_path: Path) -> None:
    result = ask("check", tmp_path / "a.yaml", yaml.safe_dump(manifest(changes)))

    assert (result.exit_code, result.stderr) == (0, "")


TUNER = """
apiVersion: fathom.dev/v1alpha1
kind: SpeculationTuner
metadata: {name: qwen}
spec:
  selector: {matchLabels: {app: qwen}}
"""


def test_two_documents_of_one_name_are_told_of(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    both = yaml.safe_load(GOOD)
    both["metadata"]["namespace"] = "other"
    other = yaml.safe_dump(both)

    apart = ask("check", file, f"{GOOD}---\n{other}")
    twice = ask("check", file, f"{GOOD}---\n{other}---\n{GOOD}")

    said = "an earlier document of this file has the same name"
    assert said not in apart.stdout
    assert "\n".join(unwrapped(twice.stdout)).count(said) == 1


def test_of_a_tuner_only_its_spec_is_judged(tmp_path: Path) -> None:
    file = tmp_path / "tuner.yaml"
    file.write_text(TUNER)
    for command in ("check", "render"):
        found = CliRunner().invoke(app, [command, "-f", str(file)])
        assert (found.exit_code, found.stdout) == (0, "")
        assert "qwen: the spec of this SpeculationTuner is sound. Its pods were not read" in (
            found.stderr
        )

    file.write_text(TUNER.replace("matchLabels: {app: qwen}", "matchLabels: {}"))
    found = CliRunner().invoke(app, ["check", "-f", str(file)])
    assert found.exit_code == 2
    assert "spec.selector: an empty selector" in found.output
