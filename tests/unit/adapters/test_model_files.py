import json
from pathlib import Path
from typing import Any

import pytest

from fathom.adapters.model_files import MAX_CONFIG_BYTES, is_directory, local_facts
from fathom.model_facts import Absence, ModelConfig, ModelFacts
from fathom.model_refs import ModelRef
from fathom_intake.model_weights import Tensor, Weights
from support.draft_weights import file_of, header_of


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"fc_norm": true}', encoding="utf-8")
    return tmp_path


def facts(directory: Path) -> ModelFacts:
    return local_facts(ModelRef(str(directory)))


def test_reads_the_config_of_a_local_model(model: Path) -> None:
    assert facts(model) == ModelFacts(
        config=ModelConfig.from_json({"fc_norm": True}), weights=Weights(pickled=False)
    )
    assert facts(model).config == ModelConfig(fc_norm=True, eagle_keys=True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is not JSON"),
        ("{", "it is not JSON"),
        ("[1]", "it is no JSON object"),
        ("[" * 100_000, "it nests deeper than 100 levels"),
        ('"' + "x" * MAX_CONFIG_BYTES + '"', "it is not JSON"),
        (None, "it cannot be read: No such file or directory"),
    ],
    ids=["empty", "broken", "list", "deep", "long", "missing"],
)
def test_what_is_no_config_is_not_at_hand(tmp_path: Path, text: str | None, why: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text, encoding="utf-8")

    found = facts(tmp_path)

    assert (found.config, found.absence) == (None, Absence.UNREADABLE)
    assert found.explanation == why


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "it is no directory of this machine"),
        ("org/model", "it is no directory of this machine"),
        ("relative/config", "it is no directory of this machine"),
        ("/nowhere/model", "there is no such directory on this machine"),
    ],
)
def test_what_is_not_on_this_machine_is_not_at_hand(name: str, why: str) -> None:
    found = local_facts(ModelRef(name))

    assert (found.absence, found.explanation) == (Absence.NOT_LOCAL, why)
    assert is_directory(ModelRef(name)) == name.startswith("/")


LOADED = {"lm_head.weight": (8, 4), "fc.weight": (4, 12), "d2t": (8,), "norm.weight": (4,)}
HEADER = file_of(header_of(LOADED))


def shard(folder: Path, number: int, shapes: dict[str, tuple[int, ...]]) -> str:
    """One of two files with weights; returns its name."""
    name = f"model-0000{number}-of-00002.safetensors"
    (folder / name).write_bytes(file_of(header_of(shapes)))
    return name


def index(folder: Path, weight_map: object) -> None:
    text = json.dumps({"metadata": {}, "weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")


def test_knows_the_size_of_the_weights_and_the_tensors_that_matter(model: Path) -> None:
    (model / "model.safetensors").write_bytes(HEADER)

    assert facts(model).weights == Weights(
        total_bytes=len(HEADER),
        tensors=(
            Tensor("d2t", "I64", (8,)),
            Tensor("fc.weight", "BF16", (4, 12)),
            Tensor("lm_head.weight", "BF16", (8, 4)),
        ),
        pickled=False,
    )
    assert facts(model).weights.has_d2t


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x05",
        b"no safetensors",
        (1 << 40).to_bytes(8, "little") + b"{}",
        (5).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (60_000).to_bytes(8, "little") + b"[" * 60_000,
    ],
)
def test_a_header_that_cannot_be_read_makes_the_tensors_unknown(
    model: Path, content: bytes
) -> None:
    (model / "model.safetensors").write_bytes(content)
    assert facts(model).weights.tensors is None
    assert facts(model).weights.has_d2t is None


def test_no_table_is_told_from_not_knowing(model: Path) -> None:
    (model / "model.safetensors").write_bytes(file_of(header_of({"norm.weight": (4,)})))
    assert facts(model).weights.tensors == ()
    assert facts(model).weights.has_d2t is False


def test_of_two_files_without_an_index_the_tensors_are_unknown(model: Path) -> None:
    (model / "model.safetensors").write_bytes(HEADER)
    (model / "consolidated.safetensors").write_bytes(HEADER)
    assert facts(model).weights == Weights(total_bytes=len(HEADER), pickled=False)


def test_a_header_is_read_of_drafts_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 4}', encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(HEADER)
    assert facts(tmp_path).weights == Weights(total_bytes=len(HEADER), pickled=False)


def test_of_shards_that_an_index_names_all_headers_are_read(model: Path) -> None:
    one, two = shard(model, 1, {"fc.weight": (4, 12)}), shard(model, 2, {"d2t": (8,)})
    index(model, {"fc.weight": one, "d2t": two})

    found = facts(model).weights

    assert found.tensors == (Tensor("fc.weight", "BF16", (4, 12)), Tensor("d2t", "I64", (8,)))
    assert found.index_lacks == ""


def test_of_very_many_shards_no_header_is_read(model: Path) -> None:
    for number in range(65):
        (model / f"{number}.safetensors").write_bytes(HEADER)
    index(model, {f"layer.{number}": f"{number}.safetensors" for number in range(65)})
    assert facts(model).weights.tensors is None


@pytest.mark.parametrize("path", ["../../model.safetensors", "sub/a.safetensors", "gone.bin"])
def test_what_an_index_names_and_is_not_there_is_known(model: Path, path: str) -> None:
    one = shard(model, 1, {"fc.weight": (4, 12)})
    index(model, {"fc.weight": one, "d2t": path})
    assert facts(model).weights.index_lacks == path


@pytest.mark.parametrize("weight_map", [None, [], {"fc.weight": 5}])
def test_an_index_that_is_none_says_nothing(model: Path, weight_map: object) -> None:
    (model / "model.safetensors").write_bytes(HEADER)
    index(model, weight_map)
    assert facts(model).weights.index_lacks == ""


def test_the_sizes_of_all_shards_are_added(model: Path) -> None:
    for number in (1, 2):
        (model / f"model-0000{number}-of-00002.safetensors").write_bytes(b"x" * 100)

    assert facts(model).weights == Weights(total_bytes=200, pickled=False)


@pytest.mark.parametrize(
    ("files", "pickled"),
    [
        ([], False),
        (["pytorch_model.bin"], True),
        (["model.pt", "training_args.bin"], True),
        (["training_args.bin", "optimizer.pt"], False),
        (["pytorch_model.bin", "model.safetensors"], False),
    ],
)
def test_pickles_count_where_there_is_nothing_else(
    model: Path,
    files: list[str],
    pickled: bool,  # noqa: FBT001 - see the table above
) -> None:
    for name in files:
        (model / name).write_bytes(HEADER)
    assert facts(model).weights.pickled is pickled


def test_a_link_out_of_the_folder_is_known(model: Path, tmp_path_factory: Any) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "weights"
    elsewhere.write_bytes(HEADER)
    link = model / "model.safetensors"

    link.symlink_to(elsewhere)
    assert facts(model).weights.link == "model.safetensors"
    link.unlink()
    link.symlink_to("/nowhere/at/all")
    assert facts(model).weights.link == "model.safetensors"
    link.unlink()
    link.symlink_to(link)
    assert facts(model).weights.link == "model.safetensors"


def test_links_within_a_folder_and_of_a_cache_are_as_good_as_files(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / "1").write_text('{"fc_norm": true}', encoding="utf-8")
    (blobs / "2").write_bytes(HEADER)
    (snapshot / "config.json").symlink_to("../../blobs/1")
    (snapshot / "kept").symlink_to("../../blobs/2")
    (snapshot / "model.safetensors").symlink_to("kept")

    found = facts(snapshot).weights

    assert (found.link, found.has_d2t) == ("", True)
