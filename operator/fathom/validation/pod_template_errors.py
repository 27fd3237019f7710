"""What may not be merged over the pods that Fathom builds, each with what to do instead. Pure.

What a field of the spec is for is set there, since Fathom reads it there too; what the pods cannot
do without stays; what the API server would refuse is refused before.

The API server would refuse some of it, and take the rest for what it is not.
"""

import posixpath
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from fathom.api import names
from fathom.api.problem import Problem, Severity
from fathom.engine.flags import HTTP_PORT
from fathom.engine.replica_layout import Role
from fathom.engine.start import FRONTEND_VARIABLE, MODEL_RUNNER_VARIABLE
from fathom.manifests.cache import HUB_VARIABLES
from fathom.manifests.engine_env import OURS
from fathom.manifests.group import CLAIM
from fathom.manifests.strategic_merge import MergeError, schema_problems
from fathom.manifests.template_parts import Part, by, overlays, part, parts, texts
from fathom.resource import SpeculativeDeployment
from fathom.validation.candidate import Candidate
from fathom.validation.merged_template import (
    CONTAINER_KINDS,
    PROBES,
    MergedTemplate,
    merged_template,
    overlay_problems,
    unheard_probes,
    why_not_started,
)
from fathom.validation.model_input import LONGER_VARIABLE
from fathom.validation.placement_checks import (
    NO_GPU_CLAIM,
    foreign_gpu_problems,
    gpus_sentence,
    resource_problems,
)

_ASKING: Final = (
    *((probe,) for probe in PROBES),
    ("lifecycle", "preStop"),
    ("lifecycle", "postStart"),
)
"""Where a port of the container may be asked."""
OWN_PREFIX: Final = "FATHOM_"
READ_IN_ENGINE_ENV: Final = frozenset(
    {*HUB_VARIABLES, LONGER_VARIABLE, MODEL_RUNNER_VARIABLE, FRONTEND_VARIABLE}
)
"""Variables by which more is decided than what the engine does."""
_OWN_LABELS: Final = (names.LABEL_NAME, names.LABEL_REVISION, names.LABEL_ROLE)
_PLUGIN: Final = "the plugin that follows and counts depth needs it"
_OWN_VOLUMES: Final[Mapping[str, str]] = MappingProxyType(
    {"cache": "spec.cache says what is there", "fathom-plugin": _PLUGIN, "fathom-depth": _PLUGIN}
)
"""Volumes of which nothing may change, and why."""
_NO_CLAIM: Final = (
    f"the claim {CLAIM} must stay, through which the nodes of a replica use NVLink: set "
    "spec.nodePool.computeDomain to External if another component makes it, or to Never."
)
_REFUSED_BY_WORKLOADS: Final = ("activeDeadlineSeconds", "ephemeralContainers")


def container_problems(container: Part, volumes: Collection[str], field: str) -> Iterator[Problem]:
    """What is wrong with one container.

    Args:
        container: as what is merged in left it.
        volumes: names of the pod's.
        field: path of the list that it stands in.
    """
    name, ports = container.get("name"), parts(container, "ports")
    if not container.get("image"):
        yield Problem(
            field=field,
            message=f"the container {name} needs an image. The engine's container is called "
            f"{names.ENGINE_CONTAINER}.",
        )
    if name != names.ENGINE_CONTAINER and str(HTTP_PORT) in by("containerPort", ports):
        yield Problem(
            field=field, message=f"port {HTTP_PORT} is the engine's: give {name} another one."
        )
    for mount in parts(container, "volumeMounts"):
        if mount.get("name") not in volumes:
            yield Problem(
                field=field,
                message=f"the container {name} mounts the volume {mount.get('name')}, which there "
                f"is not: add it to {field.rpartition('.')[0]}.volumes.",
            )
    for asked in sorted(_ports_by_name(container) - by("name", ports).keys()):
        yield Problem(
            field=field,
            message=f"no port of the container {name} is called {asked!r}, which a probe or hook "
            "asks: write the port's number.",
        )
    for probe in _successes_counted(container):
        yield Problem(
            field=field,
            message=f"Kubernetes takes successThreshold 1 alone in the {probe} of the container "
            f"{name}: remove it.",
        )
    if name != names.ENGINE_CONTAINER:
        for problem in resource_problems(part(container, "resources"), "resources"):
            yield Problem(
                field=field, message=f"{problem.field} of the container {name}: {problem.message}"
            )
    security = part(container, "securityContext")
    if security.get("privileged") and security.get("allowPrivilegeEscalation") is False:
        yield Problem(
            field=field,
            message=f"the container {name} cannot be privileged with allowPrivilegeEscalation: "
            "false, which Fathom sets: set that to true as well.",
        )


def _successes_counted(container: Part) -> Iterator[str]:
    """Probes of which one success counts: `validateLivenessProbe` and `validateStartupProbe`."""
    for probe in ("livenessProbe", "startupProbe"):
        if part(container, probe).get("successThreshold") not in {None, 0, 1}:
            yield probe


def _ports_by_name(container: Part) -> set[str]:
    """Names by which probes and hooks ask the container itself."""
    ports = (
        part(container, *where, how).get("port")
        for where in _ASKING
        for how in ("httpGet", "tcpSocket")
    )
    return {port for port in ports if isinstance(port, str)}


def pod_template_errors(candidate: Candidate) -> Iterator[Problem]:
    """Why `podTemplate` is refused or, where that is in order, `workerTemplate`."""
    for role in Role:
        refused = tuple(_problems(candidate.resource, role))
        yield from refused
        if any(each.severity is Severity.ERROR for each in refused):
            return


def _problems(sd: SpeculativeDeployment, role: Role) -> Iterator[Problem]:
    """Why the overlay for such pods alone is refused."""
    overlay = overlays(sd.spec, role)[-1]
    if not overlay.given:
        return
    for key in overlay.given:
        if key not in ("metadata", "spec"):
            where = f"{overlay.field}.{key}"
            yield Problem(
                field=where, message="a pod template has metadata and spec, nothing else."
            )
            return
    found = (*schema_problems(overlay.given, overlay.field), *overlay_problems(overlay))
    wrong = [each for each in found if each.severity is Severity.ERROR]
    yield from wrong
    if wrong:
        return
    try:
        template = merged_template(sd, role)
    except MergeError as error:
        where, _, sentence = str(error).partition(": ")
        yield Problem(field=where, message=sentence)
        return
    if not template.engine:
        yield Problem(
            field=template.containers,
            message=f"the container {names.ENGINE_CONTAINER} must stay: do not delete it.",
        )
        return
    yield from _in_engine(template)
    yield from _in_pod(template)


def own_variable_sentence(name: str) -> str:
    """Why a variable of Fathom's is refused."""
    return f"variables called {OWN_PREFIX}… are Fathom's own: remove {name}."


def _in_engine(template: MergedTemplate) -> Iterator[Problem]:
    built, engine, field = template.built_engine, template.engine, template.field
    if engine.get("image") != built["image"]:
        yield Problem(
            field=f"{field}.image", message="may not be set here: set spec.engine.image instead."
        )
    if engine.get("args") != built["args"]:
        yield Problem(
            field=f"{field}.args",
            message="these would take the place of all that starts the engine: set "
            "spec.engine.args instead, which adds to it.",
        )
    if refusal := why_not_started(texts(engine, "command")):
        yield Problem(field=f"{field}.command", message=refusal)
    yield from _variables(template)
    yield from _gpus(template)
    if "resources" in template.engine_overlay:
        yield from resource_problems(part(engine, "resources"), f"{field}.resources")
    yield from _mounts(template)
    for probe, asked in unheard_probes(template, certainly=True):
        yield Problem(field=f"{field}.{probe}", message=asked)
    port = by("containerPort", parts(engine, "ports")).get(str(HTTP_PORT))
    serves = template.role is Role.LEADER
    if serves and (port is None or port.get("protocol", "TCP") != "TCP"):
        yield Problem(
            field=f"{field}.ports",
            message=f"port {HTTP_PORT} must stay, with TCP: clients, probes and metrics reach the "
            "engine there. It may have another name, and other ports may be added.",
        )
    if any(
        claim not in parts(engine, "resources", "claims")
        for claim in parts(built, "resources", "claims")
    ):
        yield Problem(field=f"{field}.resources.claims", message=_NO_CLAIM)


def _variables(template: MergedTemplate) -> Iterator[Problem]:
    field = f"{template.field}.env"
    for container in parts(template.overlay.given, "spec", "containers"):
        if container.get("name") != names.ENGINE_CONTAINER:
            continue
        for name in by("name", parts(container, "env")):
            if name.startswith(OWN_PREFIX):
                yield Problem(field=field, message=own_variable_sentence(name))
            elif name in READ_IN_ENGINE_ENV:
                instead = "set it in spec.engine.env, which Fathom reads"
                yield Problem(field=field, message=f"{name} may not be set here: {instead}.")
    kept = by("name", parts(template.engine, "env"))
    for name in by("name", parts(template.built_engine, "env")):
        if name in OURS and name not in kept:
            yield Problem(field=field, message=f"{name} must stay: {_PLUGIN}.")


def _gpus(template: MergedTemplate) -> Iterator[Problem]:
    vendor, built = template.vendor, part(template.built_engine, "resources", "limits")
    for kind in ("limits", "requests"):
        field = f"{template.field}.resources.{kind}"
        asked = part(template.engine, "resources", kind)
        if vendor is not None:
            ours, needed = vendor.resource, built[vendor.resource]
            found = asked.get(ours)
            if str(found) != needed and (kind == "limits" or found is not None):
                claimed = found in {None, "0"} and _claims_of_its_own(template)
                message = NO_GPU_CLAIM.format(ours) if claimed else gpus_sentence(needed)
                yield Problem(field=f"{field}.{ours}", message=message)
        yield from foreign_gpu_problems(asked, vendor, field)


def _claims_of_its_own(template: MergedTemplate) -> bool:
    ours = parts(template.built_engine, "resources", "claims")
    return any(each not in ours for each in parts(template.engine, "resources", "claims"))


def _mounts(template: MergedTemplate) -> Iterator[Problem]:
    field = f"{template.field}.volumeMounts"
    found: dict[str, list[Part]] = {}
    for mount in parts(template.engine, "volumeMounts"):
        found.setdefault(posixpath.normpath(str(mount.get("mountPath"))), []).append(mount)
    for mount in parts(template.built_engine, "volumeMounts"):
        path, volume = str(mount["mountPath"]), str(mount["name"])
        there = found.get(path, [])
        if not there:
            yield Problem(field=field, message=f"{path} must stay mounted: do not delete it.")
        elif len(there) > 1:
            yield Problem(
                field=field,
                message=f"{path} is mounted twice: write the path so, or mount elsewhere.",
            )
        elif volume in _OWN_VOLUMES and not _is_whole(there[0], volume):
            why = _OWN_VOLUMES[volume]
            yield Problem(
                field=field,
                message=f"{path} holds the whole volume {volume}: {why}. Mount elsewhere.",
            )


def _is_whole(mount: Part, volume: str) -> bool:
    partial = mount.get("subPath") or mount.get("subPathExpr")
    return mount.get("name") == volume and not partial


def _in_pod(template: MergedTemplate) -> Iterator[Problem]:
    overlay = template.overlay
    spec, field = part(template.merged, "spec"), f"{overlay.field}.spec"
    for label in part(overlay.given, "metadata", "labels"):
        if label in _OWN_LABELS:
            yield Problem(
                field=f"{overlay.field}.metadata.labels.{label}", message="Fathom's own: remove it."
            )
    if spec.get("restartPolicy", "Always") != "Always":
        yield Problem(
            field=f"{field}.restartPolicy", message="pods that serve have Always: remove it."
        )
    for key in _REFUSED_BY_WORKLOADS:
        if spec.get(key):
            yield Problem(
                field=f"{field}.{key}",
                message="Kubernetes refuses it in pods that serve: remove it.",
            )
    for claim in parts(template.built, "spec", "resourceClaims"):
        if claim not in parts(spec, "resourceClaims"):
            yield Problem(field=f"{field}.resourceClaims", message=_NO_CLAIM)
    volumes = by("name", parts(spec, "volumes"))
    yield from _volumes(by("name", parts(template.built, "spec", "volumes")), volumes, field)
    for kind in CONTAINER_KINDS:
        for container in parts(spec, kind):
            yield from container_problems(container, volumes, f"{field}.{kind}")


def _volumes(
    built: Mapping[str, Part], merged: Mapping[str, Part], field: str
) -> Iterator[Problem]:
    for name in sorted(built.keys() & _OWN_VOLUMES.keys()):
        if merged.get(name) != built[name]:
            why = _OWN_VOLUMES[name]
            yield Problem(
                field=f"{field}.volumes",
                message=f"the volume {name} must stay as it is: {why}; give yours another name.",
            )
