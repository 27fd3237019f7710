"""A pod's volumes as folders of the host, for its containers to mount."""

import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from local_cluster.kubelet.containers.runner import Mount
from local_cluster.kubelet.models import (
    ConfigMapSource,
    Container,
    DownwardSource,
    KeyToPath,
    Pod,
    ProjectedSource,
    SecretSource,
    TokenSource,
    Volume,
    VolumeMount,
)
from local_cluster.kubelet.problem import CREATE_CONTAINER_CONFIG_ERROR, PodProblem
from local_cluster.kubelet.sources import PodAddresses, Sources, field_value
from local_cluster.kubelet.volumes.atomic_writer import FileContent, Payload, write_payload
from local_cluster.kubelet.volumes.claims import claim_folder

DEFAULT_MODE = 0o644
# As a real kubelet: a token is replaced when a fifth of its life is left.
TOKEN_RENEW_FRACTION = 0.8

RequestToken = Callable[[Pod, TokenSource], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class _Token:
    value: bytes
    renew_at: float


@dataclass(slots=True)
class PodVolumes:
    """The volumes of one pod."""

    folder: Path
    memory_folder: Path
    claims_folder: Path
    """Folder of all claims."""
    sources: Sources
    request_token: RequestToken
    clock: Callable[[], float] = time.monotonic
    _tokens: dict[tuple[str, str], _Token] = field(default_factory=dict)

    async def refresh(self, pod: Pod, addresses: PodAddresses) -> None:
        """Brings all volumes to what their sources hold now; idempotent.

        Raises:
            PodProblem: a source is missing.
        """
        for volume in pod.spec.volumes:
            payload = await self._payload(pod, volume, addresses)
            if payload is not None:
                write_payload(self.folder / volume.name, payload)
            elif volume.empty_dir is not None:
                home = self._empty_dir(volume)
                home.mkdir(parents=True, exist_ok=True)
                home.chmod(0o777)

    def mounts(self, pod: Pod, container: Container) -> list[Mount]:
        """What a container mounts, volumes first refreshed.

        Raises:
            PodProblem: a volume is missing or of a kind that is not supported.
        """
        volumes = {volume.name: volume for volume in pod.spec.volumes}
        found: list[Mount] = []
        for item in container.volume_mounts:
            if item.sub_path_expr:
                raise PodProblem(
                    CREATE_CONTAINER_CONFIG_ERROR,
                    f"The local kubelet does not support subPathExpr (volume mount {item.name}).",
                )
            volume = volumes[item.name]
            writable = (
                volume.empty_dir is not None
                or volume.host_path is not None
                or ((claim := volume.persistent_volume_claim) is not None and not claim.read_only)
            )
            found.append(
                Mount(
                    source=str(_within(self._home(pod, volume), item)),
                    target=item.mount_path,
                    read_only=item.read_only or not writable,
                )
            )
        return found

    def remove(self) -> None:
        """Deletes all files."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.memory_folder, ignore_errors=True)

    def _home(self, pod: Pod, volume: Volume) -> Path:
        if volume.empty_dir is not None:
            return self._empty_dir(volume)
        if volume.host_path is not None:
            return _host_path(volume.name, Path(volume.host_path.path), volume.host_path.type)
        if (claim := volume.persistent_volume_claim) is not None:
            folder = claim_folder(self.claims_folder, pod.metadata.namespace, claim.claim_name)
            if not folder.is_dir():
                raise _missing("PersistentVolumeClaim", pod.metadata.namespace, claim.claim_name)
            return folder
        return self.folder / volume.name

    def _empty_dir(self, volume: Volume) -> Path:
        in_memory = volume.empty_dir is not None and volume.empty_dir.medium == "Memory"
        return (self.memory_folder if in_memory else self.folder) / volume.name

    async def _payload(self, pod: Pod, volume: Volume, addresses: PodAddresses) -> Payload | None:
        namespace = pod.metadata.namespace
        if volume.config_map is not None:
            return self._config_map(namespace, volume.config_map, DEFAULT_MODE)
        if volume.secret is not None:
            return self._secret(namespace, volume.secret, DEFAULT_MODE)
        if volume.downward_api is not None:
            return _downward(pod, volume.downward_api, addresses, DEFAULT_MODE)
        if volume.projected is not None:
            return await self._projected(pod, volume.projected, addresses)
        others = (volume.empty_dir, volume.host_path, volume.persistent_volume_claim)
        if all(each is None for each in others):
            raise PodProblem(
                CREATE_CONTAINER_CONFIG_ERROR,
                f"The local kubelet does not support the kind of volume {volume.name}; it knows "
                "configMap, secret, projected, downwardAPI, emptyDir, hostPath and "
                "persistentVolumeClaim.",
            )
        return None

    async def _projected(
        self, pod: Pod, projected: ProjectedSource, addresses: PodAddresses
    ) -> Payload:
        namespace = pod.metadata.namespace
        mode = _first(projected.default_mode, DEFAULT_MODE)
        payload: Payload = {}
        for part in projected.sources:
            if part.config_map is not None:
                payload |= self._config_map(namespace, part.config_map, mode)
            if part.secret is not None:
                payload |= self._secret(namespace, part.secret, mode)
            if part.downward_api is not None:
                payload |= _downward(pod, part.downward_api, addresses, mode)
            if part.service_account_token is not None:
                token = await self._token(pod, part.service_account_token)
                payload[part.service_account_token.path] = FileContent(token, mode)
        return payload

    def _config_map(self, namespace: str, source: ConfigMapSource, mode: int) -> Payload:
        values = self.sources.config_map(namespace, source.name)
        if values is None and not source.optional:
            raise _missing("ConfigMap", namespace, source.name)
        return _chosen(
            f"ConfigMap {namespace}/{source.name}",
            values or {},
            source.items,
            _first(source.default_mode, mode),
            optional=source.optional,
        )

    def _secret(self, namespace: str, source: SecretSource, mode: int) -> Payload:
        name = source.secret_name or source.name
        values = self.sources.secret(namespace, name)
        if values is None and not source.optional:
            raise _missing("Secret", namespace, name)
        return _chosen(
            f"Secret {namespace}/{name}",
            values or {},
            source.items,
            _first(source.default_mode, mode),
            optional=source.optional,
        )

    async def _token(self, pod: Pod, source: TokenSource) -> bytes:
        key = (source.audience, source.path)
        token = self._tokens.get(key)
        if token is None or self.clock() >= token.renew_at:
            value = await self.request_token(pod, source)
            lifetime = source.expiration_seconds * TOKEN_RENEW_FRACTION
            token = _Token(value.encode(), self.clock() + lifetime)
            self._tokens[key] = token
        return token.value


def _chosen(
    what: str,
    values: dict[str, bytes],
    items: Sequence[KeyToPath],
    mode: int,
    *,
    optional: bool,
) -> Payload:
    if not items:
        return {key: FileContent(value, mode) for key, value in values.items()}
    payload: Payload = {}
    for item in items:
        if item.key in values:
            payload[item.path] = FileContent(values[item.key], _first(item.mode, mode))
        elif not optional:
            raise PodProblem(
                CREATE_CONTAINER_CONFIG_ERROR,
                f"{what} has no key {item.key}, which a volume needs.",
            )
    return payload


def _downward(pod: Pod, source: DownwardSource, addresses: PodAddresses, mode: int) -> Payload:
    payload: Payload = {}
    for item in source.items:
        if item.field_ref is None:
            raise PodProblem(
                CREATE_CONTAINER_CONFIG_ERROR,
                "The local kubelet supports only fieldRef in a downwardAPI volume "
                f"(file {item.path}).",
            )
        value = field_value(pod, addresses, item.field_ref.field_path).encode()
        file_mode = _first(item.mode, _first(source.default_mode, mode))
        payload[item.path] = FileContent(value, file_mode)
    return payload


def _host_path(name: str, path: Path, kind: str) -> Path:
    if not path.exists():
        if kind != "DirectoryOrCreate":
            raise PodProblem(
                CREATE_CONTAINER_CONFIG_ERROR, f"The hostPath of volume {name}, {path}, is missing."
            )
        path.mkdir(parents=True)
    return path


def _missing(kind: str, namespace: str, name: str) -> PodProblem:
    return PodProblem(
        CREATE_CONTAINER_CONFIG_ERROR,
        f"{kind} {namespace}/{name}, which a volume needs, not found.",
    )


def _first(value: int | None, fallback: int) -> int:
    return fallback if value is None else value


def _within(home: Path, mount: VolumeMount) -> Path:
    """The part of a volume that is mounted; made, where it is not there, as a kubelet does.

    Raises:
        PodProblem: it is no path within the volume.
    """
    path = home / (mount.sub_path or "")
    if ".." in path.parts or not path.is_relative_to(home):
        raise PodProblem(
            CREATE_CONTAINER_CONFIG_ERROR,
            f"The subPath {mount.sub_path} of volume mount {mount.name} leads out of the volume.",
        )
    path.mkdir(parents=True, exist_ok=True)
    return path
