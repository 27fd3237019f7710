"""What the kubelet reads of a pod; everything else is ignored."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel


class ReadModel(BaseModel):
    """Frozen; camelCase outside; unknown fields are none of the kubelet's business."""

    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True, extra="ignore"
    )


def _none_as_empty(value: object) -> object:
    return {} if value is None else value


class KeyReference(ReadModel):
    name: str
    key: str
    optional: bool = False


class FieldReference(ReadModel):
    field_path: str


class ValueSource(ReadModel):
    field_ref: FieldReference | None = None
    config_map_key_ref: KeyReference | None = None
    secret_key_ref: KeyReference | None = None
    resource_field_ref: dict[str, str] | None = None


class ContainerEnvVar(ReadModel):
    name: str
    value: str = ""
    value_from: ValueSource | None = None


class EnvSourceReference(ReadModel):
    name: str
    optional: bool = False


class EnvFrom(ReadModel):
    prefix: str = ""
    config_map_ref: EnvSourceReference | None = None
    secret_ref: EnvSourceReference | None = None


class VolumeMount(ReadModel):
    name: str
    mount_path: str
    read_only: bool = False
    sub_path: str | None = None
    sub_path_expr: str | None = None


class ExecAction(ReadModel):
    command: tuple[str, ...]


class HttpHeader(ReadModel):
    name: str
    value: str


class HttpGetAction(ReadModel):
    port: int | str
    path: str = "/"
    host: str | None = None
    scheme: Literal["HTTP", "HTTPS"] = "HTTP"
    http_headers: tuple[HttpHeader, ...] = ()


class TcpSocketAction(ReadModel):
    port: int | str
    host: str | None = None


class Handler(ReadModel):
    exec: ExecAction | None = None
    http_get: HttpGetAction | None = None
    tcp_socket: TcpSocketAction | None = None


class ContainerProbe(Handler):
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class Lifecycle(ReadModel):
    post_start: Handler | None = None
    pre_stop: Handler | None = None


class ContainerPort(ReadModel):
    container_port: int
    name: str | None = None


class ContainerSecurityContext(ReadModel):
    read_only_root_filesystem: bool = False


class ContainerResources(ReadModel):
    requests: Annotated[dict[str, str | int], BeforeValidator(_none_as_empty)] = Field(
        default_factory=dict
    )
    limits: Annotated[dict[str, str | int], BeforeValidator(_none_as_empty)] = Field(
        default_factory=dict
    )


class Container(ReadModel):
    name: str
    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str | None = None
    env: tuple[ContainerEnvVar, ...] = ()
    env_from: tuple[EnvFrom, ...] = ()
    ports: tuple[ContainerPort, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    startup_probe: ContainerProbe | None = None
    readiness_probe: ContainerProbe | None = None
    liveness_probe: ContainerProbe | None = None
    lifecycle: Annotated[Lifecycle, BeforeValidator(_none_as_empty)] = Lifecycle()
    termination_message_path: str = "/dev/termination-log"
    termination_message_policy: str = "File"
    resources: Annotated[ContainerResources, BeforeValidator(_none_as_empty)] = ContainerResources()
    security_context: Annotated[ContainerSecurityContext, BeforeValidator(_none_as_empty)] = (
        ContainerSecurityContext()
    )

    def port_number(self, port: int | str) -> int | None:
        """A port by number or by the name this container gives it."""
        if isinstance(port, int):
            return port
        return next((p.container_port for p in self.ports if p.name == port), None)


class KeyToPath(ReadModel):
    key: str
    path: str
    mode: int | None = None


class ConfigMapSource(ReadModel):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    optional: bool = False
    default_mode: int | None = None


class SecretSource(ReadModel):
    secret_name: str = ""
    name: str = ""
    """Projected sources call it so."""
    items: tuple[KeyToPath, ...] = ()
    optional: bool = False
    default_mode: int | None = None


class DownwardItem(ReadModel):
    path: str
    field_ref: FieldReference | None = None
    mode: int | None = None


class DownwardSource(ReadModel):
    items: tuple[DownwardItem, ...] = ()
    default_mode: int | None = None


class TokenSource(ReadModel):
    path: str
    audience: str = ""
    expiration_seconds: int = 3600


class ProjectedPart(ReadModel):
    config_map: ConfigMapSource | None = None
    secret: SecretSource | None = None
    downward_api: DownwardSource | None = Field(default=None, alias="downwardAPI")
    service_account_token: TokenSource | None = None


class ProjectedSource(ReadModel):
    sources: tuple[ProjectedPart, ...] = ()
    default_mode: int | None = None


class EmptyDirSource(ReadModel):
    medium: str = ""


class HostPathSource(ReadModel):
    path: str
    type: str = ""


class ClaimSource(ReadModel):
    claim_name: str
    read_only: bool = False


class Volume(ReadModel):
    name: str
    config_map: ConfigMapSource | None = None
    secret: SecretSource | None = None
    projected: ProjectedSource | None = None
    downward_api: DownwardSource | None = Field(default=None, alias="downwardAPI")
    empty_dir: EmptyDirSource | None = None
    host_path: HostPathSource | None = None
    persistent_volume_claim: ClaimSource | None = None


class HostAlias(ReadModel):
    ip: str
    hostnames: tuple[str, ...] = ()


class LocalPodSpec(ReadModel):
    node_name: str = ""
    hostname: str = ""
    subdomain: str = ""
    """A headless Service, below whose name the pod has one of its own."""
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    restart_policy: Literal["Always", "OnFailure", "Never"] = "Always"
    termination_grace_period_seconds: int = 30
    service_account_name: str = "default"
    host_network: bool = False
    host_aliases: tuple[HostAlias, ...] = ()


class PodMetadata(ReadModel):
    name: str
    namespace: str
    uid: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class ContainerStatusRead(ReadModel):
    name: str
    restart_count: int = 0


class ConditionRead(ReadModel):
    type: str
    status: str
    last_transition_time: str | None = None


class PodStatusRead(ReadModel):
    phase: str = "Pending"
    pod_ip: str = Field(default="", alias="podIP")
    conditions: tuple[ConditionRead, ...] = ()
    start_time: str | None = None
    container_statuses: tuple[ContainerStatusRead, ...] = ()
    init_container_statuses: tuple[ContainerStatusRead, ...] = ()


class Pod(ReadModel):
    metadata: PodMetadata
    spec: LocalPodSpec
    status: PodStatusRead = PodStatusRead()

    @property
    def finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def ready(self) -> bool:
        return any(
            each.type == "Ready" and each.status == "True" for each in self.status.conditions
        )
