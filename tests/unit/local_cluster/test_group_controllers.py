"""Where the cluster tests find real controllers of groups, and what they say if one is missing."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from local_cluster.errors import LocalClusterError
from local_cluster.kube import Object
from support.group_controllers import FOLDER, real_controllers

MANIFESTS: list[Object] = [
    {"kind": "CustomResourceDefinition", "metadata": {"name": name}}
    for name in ("leaderworkersets.leaderworkerset.x-k8s.io", "computedomains.resource.nvidia.com")
]
HOOKS: list[Object] = [
    {"kind": f"{kind}WebhookConfiguration", "metadata": {"name": "any"}}
    for kind in ("Mutating", "Validating")
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With all that is needed."""
    for program in ("lws", "compute-domain-controller"):
        (tmp_path / program).touch(mode=0o755)
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "compute-domain-daemon.tmpl.yaml").touch()
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([*MANIFESTS, None, *HOOKS]))
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return tmp_path


def test_a_folder_is_read_by_the_kinds_in_it(folder: Path) -> None:
    found = real_controllers()
    assert found is not None
    assert found.folder == folder
    assert (list(found.definitions), list(found.webhooks)) == (MANIFESTS, HOOKS)


def test_without_a_folder_they_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    assert real_controllers() is None


def _keep(folder: Path, manifests: list[Object]) -> None:
    (folder / "all.yaml").write_text(yaml.safe_dump_all(manifests))


@pytest.mark.parametrize(
    ("remove", "lacks"),
    [
        (lambda folder: (folder / "lws").unlink(), "an executable lws"),
        (
            lambda folder: (folder / "compute-domain-controller").chmod(0o644),
            "an executable compute-domain-controller",
        ),
        (
            lambda folder: (folder / "templates").rename(folder / "elsewhere"),
            "templates/, from the source of compute-domain-controller",
        ),
        (
            lambda folder: _keep(folder, [MANIFESTS[0], *HOOKS]),
            r"the CustomResourceDefinition computedomains.resource.nvidia.com",
        ),
        (
            lambda folder: _keep(folder, [*MANIFESTS, HOOKS[0]]),
            "the ValidatingWebhookConfiguration of LeaderWorkerSet",
        ),
    ],
)
def test_a_folder_that_lacks_something_is_refused_with_a_sentence(
    folder: Path, remove: Callable[[Path], None], lacks: str
) -> None:
    remove(folder)
    with pytest.raises(LocalClusterError, match=f"names, lacks .*{lacks}.*or unset {FOLDER}"):
        real_controllers()
