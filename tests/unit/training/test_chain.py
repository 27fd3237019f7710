"""The chain without a GPU: what it needs besides the parts that it runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from local_cluster.engine.language import CYCLE_TOKENS, TRAFFIC_CLASSES
from training.__main__ import CONSTRUCTED, Measured, problems, table
from training.drafts import RECIPES, contract, require_no_text, write_data, write_hub
from training.environment import IMAGE, PINNED, TrainingEnvironment
from training.pod import STATES, TRAIN, Pod, cpu_template, halves
from training.serving import Acceptance
from training.shims.cpu_vllm import for_cpu

ENVIRONMENT = TrainingEnvironment(Path("/cache/training"), Path("/cache/engine"))
AS_MEANT: Measured = {
    name: {
        "easy": Acceptance(survival=(easy, easy, easy), wrong=0),
        "hard": Acceptance(survival=(hard, hard, hard), wrong=0),
    }
    for name, easy, hard in (
        (CONSTRUCTED, 0.98, 0.10),
        ("early", 0.0, 0.0),
        ("hard", 0.6, 1.0),
        ("both", 1.0, 1.0),
    )
}


def test_drafts_that_are_as_meant_are_no_problem() -> None:
    assert problems(AS_MEANT) == []


@pytest.mark.parametrize(
    ("draft", "traffic", "survival", "sentence"),
    [
        ("both", "hard", 0.9, "both accepts less than 0.95 of hard traffic"),
        ("both", "easy", 0.9, "both accepts less than 0.95 of easy traffic"),
        ("hard", "hard", 0.5, "hard is not better on hard traffic"),
        ("hard", "easy", 0.98, "hard is not worse on easy traffic"),
        ("early", "easy", 0.7, "early is not worse on easy traffic"),
        ("early", "hard", 0.3, "early is not worse on hard traffic"),
    ],
)
def test_a_draft_that_is_not_as_meant_is_named(
    draft: str, traffic: str, survival: float, sentence: str
) -> None:
    found = Acceptance(survival=(survival,) * 3, wrong=0)

    measured = {**AS_MEANT, draft: {**AS_MEANT[draft], traffic: found}}

    assert problems(measured) == [sentence]


def test_a_wrong_output_is_a_problem_and_in_the_table() -> None:
    wrong = replace(AS_MEANT["both"]["easy"], wrong=2)

    measured = {**AS_MEANT, "both": {**AS_MEANT["both"], "easy": wrong}}

    assert problems(measured) == ["an output is not the target's"]
    assert [*table(measured).columns[-1].cells] == ["0", "0", "0", "2"]


def test_each_token_of_a_class_is_in_its_data(tmp_path: Path) -> None:
    for name, recipe in RECIPES.items():
        write_data(tmp_path / name, recipe)
        lines = (tmp_path / name / "train.jsonl").read_text().splitlines()
        seen = {token for line in lines for token in json.loads(line)["input_ids"]}
        assert len(seen) == CYCLE_TOKENS * len(recipe.classes)


def test_the_cpu_changes_which_connector_writes_and_nothing_else() -> None:
    given = {"kv_connector": "ExampleHiddenStatesConnector", "kv_role": "kv_producer", "more": 1}
    arguments = ["serve", "model", "--kv-transfer-config", json.dumps(given), "--port", "1"]

    changed = for_cpu(arguments)

    assert [*changed[:3], *changed[4:]] == [*arguments[:3], *arguments[4:]]
    assert json.loads(changed[3]) == {
        **given,
        "kv_connector": "CpuHiddenStatesConnector",
        "kv_connector_module_path": "cpu_connector",
    }


def test_a_pod_of_the_local_cluster_runs_the_scripts_that_users_have() -> None:
    template = cpu_template(ENVIRONMENT, "--epochs 1")

    [container] = template["spec"]["containers"]
    env = {each["name"]: each["value"] for each in container["env"]}
    assert (container["name"], container["image"]) == (TRAIN, IMAGE)
    assert container["args"][2:] == [halves()[STATES].script, halves()[TRAIN].script]
    assert env["TRAIN_ARGS"].endswith("--epochs 1")
    assert ENVIRONMENT.image().repository == IMAGE


def test_a_trainer_s_log_with_text_of_the_data_ends_the_chain(tmp_path: Path) -> None:
    pod = Pod(ENVIRONMENT, tmp_path, {}, "0")
    word = f"{next(iter(TRAFFIC_CLASSES))}-17"
    (tmp_path / "prepare.log").write_text(f"SAMPLE #0 {word}")
    (tmp_path / "train.log").write_text("loss 3.2")
    require_no_text(pod)

    (tmp_path / "train.log").write_text(f"loss 3.2 {word}")

    with pytest.raises(RuntimeError, match="the trainer printed text of its data"):
        require_no_text(pod)


def test_the_target_is_a_snapshot_of_a_commit_and_of_no_branch(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text("{}")

    given = contract(tmp_path, write_hub(tmp_path / "hub", target))

    [model] = (tmp_path / "hub").iterdir()
    assert [each.name for each in model.iterdir()] == ["snapshots"]
    assert (model / "snapshots" / given["FATHOM_TARGET_COMMIT"] / "config.json").exists()


def test_every_package_of_the_environment_has_its_exact_version() -> None:
    lines = [line for line in PINNED.read_text().splitlines() if not line.startswith("#")]
    assert lines == sorted(lines)
    assert all(line.count("==") == 1 for line in lines)
