"""What a container is started with, without starting it."""

import stat
from pathlib import Path

import pytest

from local_cluster.images import Image, ImageTable
from local_cluster.kubelet.containers.plan import container_argv, container_mounts, usable_image
from local_cluster.kubelet.containers.runner import Mount
from local_cluster.kubelet.models import Container
from local_cluster.kubelet.pod_folder import PodFolder
from local_cluster.kubelet.problem import CREATE_CONTAINER_ERROR, ERR_IMAGE_PULL, PodProblem

SHELL = Image(repository="shell", entrypoint=("/bin/sh",))


def container(**spec: object) -> Container:
    return Container.model_validate({"name": "c", "image": "shell", **spec})


def test_command_replaces_the_entrypoint_and_arguments_follow() -> None:
    written = container_argv(container(args=["-c", "$(A)"]), SHELL, {"A": "1"})
    assert written == ["/bin/sh", "-c", "1"]
    assert container_argv(container(command=["env"], args=["x"]), SHELL, {}) == ["env", "x"]


def test_nothing_to_execute_is_said() -> None:
    with pytest.raises(PodProblem, match="container c nor its image") as found:
        container_argv(container(), Image(repository="shell"), {})
    assert found.value.reason == CREATE_CONTAINER_ERROR


def test_unknown_image_is_told_beside_the_known_ones() -> None:
    with pytest.raises(PodProblem, match='"other"; known: shell') as found:
        usable_image(ImageTable(images=(SHELL,)), "other")
    assert found.value.reason == ERR_IMAGE_PULL


def test_image_that_lacks_a_part_cannot_be_used(tmp_path: Path) -> None:
    image = SHELL.model_copy(update={"requires": (tmp_path / "gone",), "hint": "Make it."})
    with pytest.raises(PodProblem, match="Make it") as found:
        usable_image(ImageTable(images=(image,)), "shell")
    assert found.value.reason == ERR_IMAGE_PULL


def test_a_container_sees_its_hosts_its_message_and_its_volumes(tmp_path: Path) -> None:
    folder = PodFolder(tmp_path)
    volume = Mount(source="/host", target="/data", read_only=True)
    folder.make_message("c").write_text("of an earlier run")

    hosts, message, seen = container_mounts(container(), SHELL, folder, [volume])

    assert (hosts["source"], hosts["target"]) == (str(folder.hosts), "/etc/hosts")
    assert message["target"] == "/dev/termination-log"
    assert folder.message("c").read_text() == ""
    assert stat.S_IMODE(folder.message("c").stat().st_mode) == 0o666
    assert seen == volume


def test_a_pod_s_folder_goes_but_for_what_is_still_mounted(tmp_path: Path) -> None:
    folder = PodFolder(tmp_path / "pod")
    mounted = folder.make_root() / "file"
    folder.make_message("c")
    folder.hosts.touch()
    mounted.touch()

    folder.remove()
    assert mounted.is_file()
    assert [path.name for path in folder.path.iterdir()] == ["root"]

    mounted.unlink()
    folder.remove()
    assert not folder.path.exists()
