"""What may be merged over pods, and what that costs or leaves to the user. Pure.

And what vLLM answers to probes. Source: `AuthenticationMiddleware` (`GUARDED_PREFIX`), and the
routers below vllm/entrypoints: the same in 0.28 to 0.33.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from fathom.api import names
from fathom.api.problem import Problem, Severity, warning
from fathom.engine.argument_parser import EngineArguments
from fathom.engine.flags import HTTP_PORT
from fathom.engine.replica_layout import Role
from fathom.manifests.strategic_merge import schema_problems
from fathom.manifests.template_parts import (
    POD_TEMPLATE,
    WORKER_TEMPLATE,
    Part,
    by,
    overlays,
    part,
    parts,
    texts,
)
from fathom.validation.candidate import Candidate
from fathom.validation.merged_template import (
    CONTAINER_KINDS,
    MergedTemplate,
    asks_engine,
    merged_template,
    unheard_probes,
    what_to_see_to,
)
from fathom.validation.model_input import was_read

_PRIVILEGED: Final = "Its namespace must allow pods of level privileged."
_OF_THE_HOST: Final[Mapping[str, str]] = MappingProxyType(
    {
        "hostNetwork": f"the pod takes port {HTTP_PORT} of its node, so that one fits on each, and "
        f"no network policy holds for it. {_PRIVILEGED}",
        "hostPID": f"the pod sees the processes of its node. {_PRIVILEGED}",
        "hostIPC": f"the pod shares memory with its node. {_PRIVILEGED}",
    }
)
_NUMA_BIND: Final = "--numa-bind"
_NODES: Final = (
    "affinity",
    "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "nodeSelectorTerms",
)
_TOGETHER: Final = ("affinity", "podAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
_MISSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "startupProbe": "an engine that loads for long is restarted by its liveness probe",
        "readinessProbe": "requests reach an engine that still loads",
    }
)
_BEFORE_THE_END: Final[Mapping[Role, str]] = MappingProxyType(
    {
        Role.LEADER: "it must take the seconds until every client has heard that the pod goes, for "
        "which Fathom's own sleeps: else their requests are lost.",
        Role.WORKER: "it must wait until the leader is gone, as Fathom's own does: else requests "
        "in flight lose a part of their engine.",
    }
)


_ANSWERED: Final = frozenset(
    {
        *("/health", "/ping", "/metrics", "/version", "/load", "/v1/models", "/kv_event_sources"),
        *("/docs", "/redoc", "/openapi.json", "/tokenizer_info", "/fault_tolerance/status"),
        *("/server_info", "/is_sleeping", "/is_paused", "/weight_info", "/get_world_size"),
    }
)
"""Paths that vLLM answers a GET at, or may."""
_NEEDS_KEY: Final = ("/v1", "/v2", "/inference", "/cohere")
_KEY: Final = "VLLM_API_KEY"
_OTHER_PATHS: Final = ("--root-p", "--middle")
"""Beginnings of --root-path and --middleware."""
_UNANSWERED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "startupProbe": "the engine is started again without end",
        "readinessProbe": "the pod is never ready",
        "livenessProbe": "the engine is started again and again",
    }
)


def probe_paths(candidate: Candidate) -> Iterator[Problem]:
    """Probes that vLLM answers with 401 or 404, however well it runs."""
    engine, template = candidate.engine, merged_template(candidate.resource)
    unread = engine.start.rust_frontend or engine.arguments.beginning(*_OTHER_PATHS)
    if unread or engine.version is None or not was_read(engine.version):
        return
    variable = by("name", parts(template.engine, "env")).get(_KEY, {})
    # By --api-key it may not be given (`fathom.engine.flags`).
    has_key = bool(variable.get("value") or variable.get("valueFrom"))
    for probe, so in _UNANSWERED.items():
        asked = part(template.engine, probe, "httpGet")
        path = f"/{str(asked.get('path') or '').partition('?')[0].strip('/')}"
        headers = {str(each.get("name")).lower() for each in parts(asked, "httpHeaders")}
        if not asked or not asks_engine(template, asked):
            continue
        if has_key and path.startswith(_NEEDS_KEY) and "authorization" not in headers:
            why = f"with {_KEY} vLLM asks a key for {path}, which the kubelet has not"
        elif path not in _ANSWERED and not path.startswith("/metrics/"):
            why = f"vLLM {engine.version} serves no {path}"
        else:
            continue
        yield Problem(
            field=f"{template.field}.{probe}.httpGet.path",
            message=f"{why}, so that {so}: ask /health, which needs no key.",
        )


def pod_template_warnings(candidate: Candidate) -> Iterator[Problem]:
    """What to see to in overlays that are not refused, or in their absence."""
    sd = candidate.resource
    security = part(merged_template(sd).engine, "securityContext")
    yield from _without_right(sd.engine.arguments, security)
    for role in Role:
        if overlays(sd.spec, role)[-1].given:
            yield from _in_overlay(merged_template(sd, role))
    if sd.spec.worker_template and not sd.engine.layout.spans_nodes:
        yield warning(
            WORKER_TEMPLATE,
            "a replica of this spec is one pod, which has no workers: leave it out.",
        )


def _in_overlay(template: MergedTemplate) -> Iterator[Problem]:
    """What the overlay for such pods alone leaves to the user."""
    overlay = template.overlay
    found = schema_problems(overlay.given, overlay.field)
    yield from (each for each in found if each.severity is Severity.WARNING)
    # What an earlier overlay leaves to the user is said where that one stands.
    said = {each.message for each in _in_template(template.without_overlay)}
    yield from (each for each in _in_template(template) if each.message not in said)


def _in_template(template: MergedTemplate) -> Iterator[Problem]:
    yield from _in_engine(template)
    yield from _in_pod(template)


def _without_right(arguments: EngineArguments, security: Part) -> Iterator[Problem]:
    """An option that needs what a container has only where its user gives it."""
    added = texts(security, "capabilities", "add")
    if security.get("privileged") or not {"SYS_NICE", "ALL"}.isdisjoint(added):
        return
    for option in arguments.options:
        if option.name == _NUMA_BIND:
            yield warning(
                f"spec.engine.args[{option.index}]",
                f"{option.spelling} needs a right, or the container's runtime refuses it: add "
                f"SYS_NICE to {POD_TEMPLATE}.spec.containers[name: {names.ENGINE_CONTAINER}]."
                "securityContext.capabilities.add.",
            )


def _in_engine(template: MergedTemplate) -> Iterator[Problem]:
    built, engine, field = template.built_engine, template.engine, template.field
    if advice := what_to_see_to(texts(engine, "command")):
        yield warning(f"{field}.command", advice)
    for probe, price in _MISSED.items():
        if not engine.get(probe):
            yield warning(f"{field}.{probe}", f"without it {price}.")
    for probe, asked in unheard_probes(template, certainly=False):
        yield warning(f"{field}.{probe}", asked)
    if part(engine, "lifecycle", "preStop") != part(built, "lifecycle", "preStop"):
        yield warning(f"{field}.lifecycle.preStop", _BEFORE_THE_END[template.role])


def _in_pod(template: MergedTemplate) -> Iterator[Problem]:
    built, spec = part(template.built, "spec"), part(template.merged, "spec")
    field = f"{template.overlay.field}.spec"
    grace, needed = (each.get("terminationGracePeriodSeconds", 30) for each in (spec, built))
    if isinstance(grace, int) and isinstance(needed, int) and grace < needed:
        yield warning(
            f"{field}.terminationGracePeriodSeconds",
            f"a pod that goes needs {needed} to finish its requests, and loses those that take "
            "longer than this: lower spec.engine.drainSeconds instead.",
        )
    for key, price in _OF_THE_HOST.items():
        if spec.get(key):
            yield warning(f"{field}.{key}", price)
    for volume in parts(spec, "volumes"):
        if path := part(volume, "hostPath").get("path"):
            yield warning(
                f"{field}.volumes",
                f"the volume {volume['name']} is {path} of the node, which outlives the pod and "
                f"is any other pod's too. {_PRIVILEGED}",
            )
    for kind in CONTAINER_KINDS:
        for container in parts(spec, kind):
            yield from _container(container, f"{field}.{kind}")
    yield from _on_nodes(parts(built, *_NODES), parts(spec, *_NODES), field)
    terms = parts(spec, *_TOGETHER)
    if not all(term in terms for term in parts(built, *_TOGETHER)):
        yield warning(
            f"{field}.{'.'.join(_TOGETHER)}",
            "it takes the place of the term that keeps the pods of a replica in one NVLink domain: "
            "repeat that term, which fathom render shows without podTemplate.",
        )


def _on_nodes(ours: Sequence[Part], merged: Sequence[Part], field: str) -> Iterator[Problem]:
    """A node has to fit one of the terms only, so each must ask for what Fathom asks for."""
    asked = [each for term in ours for each in parts(term, "matchExpressions")]
    if not all(
        each in parts(term, "matchExpressions") for term in merged or ({},) for each in asked
    ):
        keys = " and ".join(str(each["key"]) for each in asked)
        yield warning(
            f"{field}.{'.'.join(_NODES)}",
            f"it takes the place of what Fathom asks of nodes by {keys}: repeat that in each of "
            "your terms, as fathom render shows it without podTemplate.",
        )


def _container(container: Part, field: str) -> Iterator[Problem]:
    name = container.get("name")
    if part(container, "securityContext").get("privileged"):
        yield warning(
            field, f"the container {name} is privileged: it may do what its node may. {_PRIVILEGED}"
        )
    taken = [port["hostPort"] for port in parts(container, "ports") if port.get("hostPort")]
    if taken:
        yield warning(
            field,
            f"the container {name} takes port {taken[0]} of its node, so that one pod fits on "
            f"each. {_PRIVILEGED}",
        )
