"""A container's environment, and what refers to it."""

import re

from local_cluster.kubelet.models import Container, ContainerEnvVar, Pod
from local_cluster.kubelet.problem import CREATE_CONTAINER_CONFIG_ERROR, PodProblem
from local_cluster.kubelet.sources import PodAddresses, Sources, field_value

REFERENCE = re.compile(r"\$\$|\$\(([^)]+)\)")


def expand(text: str, variables: dict[str, str]) -> str:
    """Replaces `$(NAME)`; `$$` is a dollar sign, and an unknown name stays as it is."""

    def replacement(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return variables.get(found[1], found[0])

    return REFERENCE.sub(replacement, text)


def container_environment(
    pod: Pod, container: Container, addresses: PodAddresses, sources: Sources
) -> dict[str, str]:
    """What the pod's author asked for, later entries over earlier ones.

    Raises:
        PodProblem: a ConfigMap, Secret, key or field is missing.
    """
    namespace = pod.metadata.namespace
    variables: dict[str, str] = {}
    for entry in container.env_from:
        for kind, reference, lookup in (
            ("ConfigMap", entry.config_map_ref, sources.config_map),
            ("Secret", entry.secret_ref, sources.secret),
        ):
            if reference is None:
                continue
            values = lookup(namespace, reference.name)
            if values is None and not reference.optional:
                raise _missing(kind, namespace, reference.name)
            for key, value in (values or {}).items():
                variables[f"{entry.prefix}{key}"] = value.decode(errors="replace")
    for variable in container.env:
        value_found = _value(pod, variable, addresses, sources, variables)
        if value_found is not None:
            variables[variable.name] = value_found
    return variables


def _value(
    pod: Pod,
    variable: ContainerEnvVar,
    addresses: PodAddresses,
    sources: Sources,
    variables: dict[str, str],
) -> str | None:
    source = variable.value_from
    if source is None:
        return expand(variable.value, variables)
    if source.field_ref is not None:
        return field_value(pod, addresses, source.field_ref.field_path)
    namespace = pod.metadata.namespace
    for kind, reference, lookup in (
        ("ConfigMap", source.config_map_key_ref, sources.config_map),
        ("Secret", source.secret_key_ref, sources.secret),
    ):
        if reference is None:
            continue
        values = lookup(namespace, reference.name)
        if values is not None and reference.key in values:
            return values[reference.key].decode(errors="replace")
        if reference.optional:
            return None
        if values is None:
            raise _missing(kind, namespace, reference.name)
        raise PodProblem(
            CREATE_CONTAINER_CONFIG_ERROR,
            f"{kind} {namespace}/{reference.name} has no key {reference.key}, which the variable "
            f"{variable.name} refers to.",
        )
    raise PodProblem(
        CREATE_CONTAINER_CONFIG_ERROR,
        f"The local kubelet cannot provide the variable {variable.name}: only fieldRef, "
        "configMapKeyRef and secretKeyRef are supported.",
    )


def _missing(kind: str, namespace: str, name: str) -> PodProblem:
    return PodProblem(CREATE_CONTAINER_CONFIG_ERROR, f"{kind} {namespace}/{name} not found.")
