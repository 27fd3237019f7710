"""An honest trainer's draft is copied, stored by its content, and reported in numbers."""

import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fathom.model_facts import ModelConfig
from fathom_intake.folder import ABANDONED_S, Folder, incoming
from fathom_intake.verdict import LONGEST_MESSAGE, Code, RefusedError, facts_of
from support.draft_weights import shapes_of
from support.trained_drafts import (
    ANOTHER_USER,
    CLASS,
    CONFIG,
    MARK,
    Intake,
    as_user,
    names_in,
    tensors_file,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_config_and_weights_are_stored_by_their_content_for_all_to_read(intake: Intake) -> None:
    weights = intake.output.weights.read_bytes()

    taken = intake.run()

    assert taken.exit_code == 0
    draft = taken.message["draft"]
    assert intake.stored == [draft["folder"]]
    assert draft["digest"].startswith(draft["folder"])
    assert len(draft["digest"]) == 64
    folder = intake.store / draft["folder"]
    assert names_in(folder) == ["config.json", "model.safetensors"]
    assert (folder / "model.safetensors").read_bytes() == weights
    assert json.loads((folder / "config.json").read_text()) == CONFIG
    assert [mode(folder), *map(mode, folder.iterdir())] == [0o555, 0o444, 0o444]
    assert (draft["files"], draft["leftBehind"]) == (2, 0)
    assert draft["bytes"] == sum(each.stat().st_size for each in folder.iterdir())


def test_what_honest_trainers_leave_besides_is_left_behind(intake: Intake) -> None:
    left = intake.output.leave_what_trainers_leave(intake.marker)
    intake.output.weights.chmod(0o600)

    taken = intake.run()

    draft = taken.message["draft"]
    assert draft["leftBehind"] == left > 5
    folder = intake.store / draft["folder"]
    assert names_in(folder) == ["config.json", "model.safetensors"]
    assert "auto_map" not in json.loads((folder / "config.json").read_text())
    assert not intake.marker.exists()


def test_code_that_a_config_names_is_named_nowhere_in_the_stored_one(intake: Intake) -> None:
    code = {"AutoConfig": "evil/repository--configuration.Config"}
    intake.output.write_config(
        auto_map=code, text_config={"auto_map": code, "layers": [{"auto_map": code}]}
    )

    draft = intake.run().message["draft"]

    stored = (intake.store / draft["folder"] / "config.json").read_text()
    assert "auto_map" not in stored
    assert "evil" not in stored


def test_another_user_takes_in_what_it_may_read(intake: Intake) -> None:
    intake.output.leave_what_trainers_leave(intake.marker)

    with as_user(ANOTHER_USER):
        taken = intake.run()

    assert taken.refused == ""
    assert mode(intake.store / taken.message["draft"]["folder"]) == 0o555


def test_another_user_is_told_what_to_do_about_files_of_its_trainer_s_alone(
    intake: Intake, capsys: pytest.CaptureFixture[str]
) -> None:
    intake.output.weights.chmod(0o600 if os.geteuid() == 0 else 0)

    with as_user(ANOTHER_USER):
        taken = intake.run()

    assert (taken.exit_code, taken.refused) == (1, "unreadable")
    assert "fsGroup" in capsys.readouterr().err
    assert intake.stored == []


@contextmanager
def opened() -> Iterator[list[str]]:
    """Names of files that are opened meanwhile. An audit hook cannot be removed."""
    names: list[str] = []
    active = True

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if active and event == "open":
            names.append(str(arguments[0]))

    sys.addaudithook(hook)
    try:
        yield names
    finally:
        active = False


@pytest.mark.parametrize("pipe", ["progress", "model.safetensors"])
def test_nothing_is_opened_but_regular_files_that_are_wanted(intake: Intake, pipe: str) -> None:
    if pipe == "model.safetensors":
        intake.output.weights.unlink()
        os.mkfifo(intake.output.weights)
    before = {*names_in(intake.output.draft)}
    intake.output.leave_what_trainers_leave(intake.marker)
    left = {*names_in(intake.output.draft)} - before

    with opened() as names:
        intake.run()

    assert "config.json" in names
    assert {*left, pipe}.isdisjoint(names)


def test_more_entries_than_can_be_counted_are_refused(intake: Intake) -> None:
    with Folder.at(intake.output.draft) as folder:
        assert len(folder.entries(2)) == 2
        with pytest.raises(RefusedError) as refused:
            folder.entries(1)
    assert refused.value.refusal.code is Code.TOO_MANY_FILES


def test_several_files_get_names_and_an_index_of_ours(intake: Intake) -> None:
    shapes = list(intake.output.shapes.items())
    intake.output.weights.unlink()
    index = {}
    for name, held in (("z.safetensors", shapes[:4]), ("a.safetensors", shapes[4:])):
        (intake.output.draft / name).write_bytes(tensors_file(dict(held)))
        index |= {tensor: name for tensor, _ in held}
    (intake.output.draft / "old.safetensors").write_bytes(b"which the index does not name")
    named = json.dumps({"metadata": {"total_size": 1}, "weight_map": index})
    (intake.output.draft / "model.safetensors.index.json").write_text(named)

    draft = intake.run().message["draft"]

    folder = intake.store / draft["folder"]
    first, second = (f"model-0000{each}-of-00002.safetensors" for each in (1, 2))
    stored = json.loads((folder / "model.safetensors.index.json").read_text())
    assert {*names_in(folder)} == {"config.json", "model.safetensors.index.json", first, second}
    assert stored["weight_map"] == {
        **{name: second for name, _ in shapes[:4]},
        **{name: first for name, _ in shapes[4:]},
    }
    assert (draft["files"], draft["leftBehind"]) == (4, 1)


def test_the_same_draft_again_is_the_one_that_is_there(intake: Intake) -> None:
    first = intake.run()

    assert intake.run() == first
    assert len(intake.stored) == 1


def test_another_user_finds_the_same_draft_too(intake: Intake) -> None:
    with as_user(ANOTHER_USER):
        first = intake.run()
        assert intake.run() == first
    assert len(intake.stored) == 1


def test_another_name_of_the_file_is_not_another_draft(intake: Intake) -> None:
    first = intake.run()
    intake.output.weights.rename(intake.output.draft / f"{MARK}.safetensors")

    assert intake.run() == first


def test_a_hard_link_is_a_file_and_its_copy_is_another_one(intake: Intake) -> None:
    os.link(intake.output.weights, intake.output.draft / "checkpoint.bin")

    draft = intake.run().message["draft"]

    stored = intake.store / draft["folder"] / "model.safetensors"
    assert stored.stat().st_nlink == 1
    assert stored.stat().st_ino != intake.output.weights.stat().st_ino


def test_what_preflight_asks_of_a_config_is_reported_and_nothing_else(intake: Intake) -> None:
    intake.output.write_config(
        _name_or_path=MARK,
        model_type=MARK,
        architectures=[CLASS, MARK],
        eagle_config={"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [1, 3, 5]},
        rope_scaling={"type": MARK, "factor": 2.0},
    )

    taken = intake.run()

    assert MARK not in taken.text
    reported = ModelConfig.from_json(taken.message["draft"]["config"])
    assert reported == ModelConfig.from_json(
        {
            **{key: value for key, value in CONFIG.items() if key != "model_type"},
            "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 5]},
            "rope_scaling": {"factor": 2.0},
        }
    )


def test_tensors_that_preflight_asks_for_are_reported_and_no_others(intake: Intake) -> None:
    intake.output.tensors({**intake.output.shapes, f"{MARK}.fc.weight": (8,)})

    taken = intake.run()

    assert MARK not in taken.text
    assert taken.message["draft"]["tensors"] == [
        ["d2t", "I64", [16]],
        ["embed_tokens.weight", "BF16", [32, 8]],
        ["fc.weight", "BF16", [8, 24]],
        ["lm_head.weight", "BF16", [16, 8]],
    ]


def test_what_is_deeper_in_a_config_than_vllm_reads_is_not_reported() -> None:
    deep = {
        "speculators_config": {"verifier": {"hidden_size": 8, "text_config": {"vocab_size": 9}}}
    }
    read = {"speculators_config": {"verifier": {"hidden_size": 8}}}
    assert facts_of(deep, ()) == read


def test_a_draft_in_the_speculators_format_is_reported_as_one(intake: Intake) -> None:
    config = {
        "architectures": ["Eagle3DraftModel"],
        "auto_map": {"": "config.Eagle3SpeculatorConfig"},
        "speculators_model_type": "eagle3",
        "speculators_config": {"verifier": {"name_or_path": MARK, "architectures": [MARK]}},
        "fc_norm": True,
        "norm_output": True,
        "draft_vocab_size": 16,
        "eagle_aux_hidden_state_layer_ids": [1, 3, 5],
        "transformer_layer_config": dict(CONFIG),
    }
    (intake.output.draft / "config.json").write_text(json.dumps(config))
    intake.output.tensors(shapes_of({**CONFIG, "fc_norm": True}, layer="layers.0"))

    taken = intake.run()

    reported = ModelConfig.from_json(taken.message["draft"]["config"])
    assert reported.speculators_type == "eagle3"
    assert reported.fc_norm
    assert reported.norm_output
    assert reported.hidden_size == 8
    assert reported.layer_type == "llama"
    assert MARK not in taken.text
    assert ["fc_norm.0.weight", "BF16", [8]] in taken.message["draft"]["tensors"]


def test_the_message_of_an_honest_draft_is_far_from_its_limit(intake: Intake) -> None:
    assert len(intake.run().text) < LONGEST_MESSAGE / 2


def test_a_commit_of_a_repository_is_passed_on(intake: Intake) -> None:
    hub = {"id": "org/draft-v2", "revision": "0" * 40}
    intake.output.result({"schema": 1, "hub": hub, "survival": [0.5], "trainer": {"name": MARK}})

    taken = intake.run()

    assert taken.message == {"schema": 1, "hub": hub}
    assert intake.stored == []


def test_what_a_killed_intake_left_goes_a_day_later(intake: Intake) -> None:
    abandoned = intake.store / ".incoming-0123456789abcdef"
    abandoned.mkdir(mode=0o700)
    (abandoned / "model.safetensors").write_bytes(b"half")
    made_s = abandoned.stat().st_mtime

    with incoming(intake.store, made_s + ABANDONED_S - 1):
        assert abandoned.exists()
    with incoming(intake.store, made_s + ABANDONED_S + 1):
        assert not abandoned.exists()
    assert intake.stored == []


def test_an_intake_that_is_ended_leaves_nothing(intake: Intake) -> None:
    """By an exit, which is what SIGTERM becomes."""

    def chunks() -> Iterator[bytes]:
        yield b"half"
        sys.exit(143)

    with incoming(intake.store, 0) as new, pytest.raises(SystemExit):
        new.write("model.safetensors", chunks())
    assert intake.stored == []


def test_a_stored_draft_that_something_wrote_to_is_never_believed(intake: Intake) -> None:
    folder = intake.store / intake.run().message["draft"]["folder"]
    folder.chmod(0o700)
    (folder / "config.json").chmod(0o600)
    (folder / "config.json").write_text("{}")

    assert intake.run().refused == "storeChanged"
    assert intake.stored == [folder.name]


@pytest.mark.parametrize("other", ["file", "link", "more"])
def test_something_else_under_a_stored_draft_s_name_is_refused(intake: Intake, other: str) -> None:
    folder = intake.store / intake.run().message["draft"]["folder"]
    folder.chmod(0o700)
    if other == "more":
        (folder / "sitecustomize.py").write_text("")
    else:
        elsewhere = intake.directory / "elsewhere"
        folder.rename(elsewhere)
        if other == "link":
            folder.symlink_to(elsewhere)
        else:
            folder.write_text("")

    assert intake.run().refused == "storeChanged"


def test_a_store_that_may_not_be_written_says_so(intake: Intake) -> None:
    intake.store.chmod(0o555)

    with as_user(ANOTHER_USER):
        assert intake.run().refused == "storeClosed"


def test_a_folder_that_became_a_link_is_still_the_one_that_was_opened(intake: Intake) -> None:
    """Between any two steps: what is held open is not looked up again."""
    outside = intake.directory / "outside"
    outside.mkdir()
    (outside / "config.json").write_text(MARK)
    with Folder.at(intake.output.path) as trainers, trainers.folder("draft") as folder:
        intake.output.draft.rename(intake.output.path / "moved")
        intake.output.draft.symlink_to(outside)

        assert MARK.encode() not in folder.content("config.json", 1 << 20, Code.BAD_CONFIG)


def test_a_file_that_became_a_link_is_not_opened(intake: Intake) -> None:
    with Folder.at(intake.output.draft) as folder:
        assert "model.safetensors" in folder.entries(10)
        intake.output.weights.unlink()
        intake.output.weights.symlink_to("/etc/hostname")

        with pytest.raises(RefusedError) as refused:
            folder.file("model.safetensors")
    assert refused.value.refusal.code is Code.NOT_A_FILE


@pytest.mark.parametrize("change", ["longer", "shorter", "rewritten"])
def test_a_file_that_changes_while_it_is_copied_is_refused(intake: Intake, change: str) -> None:
    size = intake.output.weights.stat().st_size
    with (
        Folder.at(intake.output.draft) as folder,
        folder.file("model.safetensors") as source,
        incoming(intake.store, 0) as new,
    ):
        if change == "longer":
            os.truncate(intake.output.weights, size + 1)
        elif change == "shorter":
            os.truncate(intake.output.weights, size - 1)
        else:
            os.utime(intake.output.weights, (0, 0))
        with pytest.raises(RefusedError) as refused:
            new.copy(source, "model.safetensors")
    assert refused.value.refusal.code is Code.CHANGED
    assert intake.stored == []


def test_a_file_that_ends_before_its_size_is_not_read_as_a_shorter_one(intake: Intake) -> None:
    with Folder.at(intake.output.draft) as folder, folder.file("model.safetensors") as source:
        os.truncate(intake.output.weights, source.size - 1)
        with pytest.raises(RefusedError) as refused:
            source.content(0, source.size)
    assert refused.value.refusal.code is Code.CHANGED
