from pathlib import Path

import pytest

from local_cluster.engine.model_pair import pair_directory
from local_cluster.images import (
    ENGINE_REPOSITORY,
    Bind,
    Image,
    ImageTable,
    default_images,
    split_reference,
)
from local_cluster.kubelet.containers.plan import image_mounts, kept_mounts
from local_cluster.kubelet.containers.runner import Mount


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("vllm/vllm-openai", ("vllm/vllm-openai", "")),
        ("vllm/vllm-openai:v0.32.0", ("vllm/vllm-openai", "v0.32.0")),
        ("docker.io/vllm/vllm-openai:latest", ("vllm/vllm-openai", "latest")),
        ("localhost:5000/a/b:1@sha256:abc", ("localhost:5000/a/b", "1")),
        ("localhost:5000/a/b", ("localhost:5000/a/b", "")),
    ],
)
def test_reference_is_split(reference: str, expected: tuple[str, str]) -> None:
    assert split_reference(reference) == expected


def test_tag_chooses_the_version_of_the_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FATHOM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("FATHOM_ENGINE_VENV", raising=False)
    image = default_images().find(f"{ENGINE_REPOSITORY}:v0.31.1")
    assert image is not None
    assert image.environment()["PATH"].startswith(f"{tmp_path}/engine-venv-0.31.1/bin:")
    assert image.environment()["VLLM_CACHE_ROOT"] == f"{tmp_path}/engine-venv-0.31.1/vllm-cache"
    missing = image.missing()
    assert missing is not None
    assert "fathom local engine --version 0.31.1" in missing
    latest = default_images().find(ENGINE_REPOSITORY)
    assert latest is not None
    assert "{version}" not in str(latest)


def test_engine_environment_can_be_named_for_every_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.touch()
    monkeypatch.setenv("FATHOM_ENGINE_VENV", str(tmp_path))
    monkeypatch.setenv("FATHOM_CACHE_DIR", str(tmp_path))
    pair_directory(tmp_path).mkdir(parents=True)
    image = default_images().find(f"{ENGINE_REPOSITORY}:v9.9.9")
    assert image is not None
    assert image.missing() is None


def test_added_images_win_and_unknown_ones_are_unknown() -> None:
    mine = Image(repository=ENGINE_REPOSITORY, entrypoint=("mine",))
    assert default_images([mine]).find(ENGINE_REPOSITORY) == mine
    assert ImageTable(images=()).find("anything:1") is None


def test_what_an_image_needs_stays_visible_below_a_volume(tmp_path: Path) -> None:
    kept = tmp_path / "venv"
    kept.mkdir()
    image = Image(
        repository="x",
        keeps=(kept, Path("/usr")),
        binds=(Bind(source=tmp_path / "absent", target=Path("/absent")),),
    )
    assert image_mounts(image) == []
    volume = Mount(source="/anywhere", target=str(tmp_path), read_only=False)
    assert kept_mounts(image, [volume]) == [
        Mount(source=str(kept), target=str(kept), read_only=True)
    ]
