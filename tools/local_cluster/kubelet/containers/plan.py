"""What a container is started with: its program, its environment, what it sees of the host."""

from collections.abc import Sequence
from pathlib import Path

from local_cluster.images import Image, ImageTable
from local_cluster.kubelet.config import KubeletConfig
from local_cluster.kubelet.containers.environment import container_environment, expand
from local_cluster.kubelet.containers.runner import Mount
from local_cluster.kubelet.models import Container, Pod
from local_cluster.kubelet.pod_folder import PodFolder
from local_cluster.kubelet.problem import CREATE_CONTAINER_ERROR, ERR_IMAGE_PULL, PodProblem
from local_cluster.kubelet.sources import PodAddresses, Sources


def usable_image(images: ImageTable, name: str) -> Image:
    """The local programs that stand in for an image.

    Raises:
        PodProblem: there are none, or a part of them is missing.
    """
    image = images.find(name)
    if image is None:
        known = ", ".join(item.repository for item in images.images)
        raise PodProblem(
            ERR_IMAGE_PULL,
            f'No local program stands in for the image "{name}"; known: {known}.',
        )
    if (missing := image.missing()) is not None:
        raise PodProblem(ERR_IMAGE_PULL, missing)
    return image


def container_variables(
    pod: Pod,
    container: Container,
    config: KubeletConfig,
    addresses: PodAddresses,
    sources: Sources,
) -> dict[str, str]:
    """Its environment but for what its image sets.

    Raises:
        PodProblem: a source of a variable is missing.
    """
    return {
        "HOSTNAME": pod.metadata.name,
        "KUBERNETES_SERVICE_HOST": str(config.network.gateway),
        "KUBERNETES_SERVICE_PORT": str(config.api_port),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(config.api_port),
    } | container_environment(pod, container, addresses, sources)


def container_argv(container: Container, image: Image, variables: dict[str, str]) -> list[str]:
    """Its program and arguments.

    Raises:
        PodProblem: neither the container nor its image names one.
    """
    command = container.command or image.entrypoint
    argv = [expand(part, variables) for part in (*command, *container.args)]
    if not argv:
        raise PodProblem(
            CREATE_CONTAINER_ERROR,
            f"Neither container {container.name} nor its image says what to execute.",
        )
    return argv


def container_mounts(
    container: Container, image: Image, folder: PodFolder, volumes: Sequence[Mount]
) -> list[Mount]:
    """All that it sees of the host; its message file is made anew."""
    hosts = Mount(source=str(folder.hosts), target="/etc/hosts", read_only=False)
    message = Mount(
        source=str(folder.make_message(container.name)),
        target=container.termination_message_path,
        read_only=False,
    )
    mounts = [hosts, message, *image_mounts(image), *volumes]
    return [*mounts, *kept_mounts(image, mounts)]


def image_mounts(image: Image) -> list[Mount]:
    """What an image brings along."""
    return [
        Mount(source=str(item.source), target=str(item.target), read_only=item.read_only)
        for item in image.binds
        if item.source.exists()
    ]


def kept_mounts(image: Image, mounts: list[Mount]) -> list[Mount]:
    """What an image needs of the host and these mounts would hide, mounted again on top."""
    hiding = [Path(item["target"]) for item in mounts]
    return [
        Mount(source=str(path), target=str(path), read_only=True)
        for path in image.keeps
        if path.exists() and any(path.is_relative_to(target) for target in hiding)
    ]
