"""Secrets written where everybody who may read a resource or its pods reads them.

Such a value is also kept in Git, in etcd, in the ConfigMap with the last good spec, and, as an
argument, in the engine's log and in the list of processes. A message never repeats it.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

from fathom.api.problem import Problem
from fathom.manifests.pod.template_parts import parts
from fathom.validation.candidate import Candidate

_HUB_TOKEN: Final = re.compile(r"(?<![A-Za-z0-9_])(hf|api_org)_[A-Za-z0-9]{20,}")
"""As the Hugging Face Hub makes them: 34 letters and digits after the prefix, so far."""
_FROM_ENV: Final = "put it into a Secret, and name that in valueFrom.secretKeyRef"
_FROM_FIELD: Final = "put it into a Secret, and name that in spec.model.tokenSecretRef"
_SECRET_VARIABLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "HF_TOKEN": _FROM_FIELD,
        "HUGGING_FACE_HUB_TOKEN": _FROM_FIELD,
        "VLLM_API_KEY": _FROM_ENV,
        "AWS_SECRET_ACCESS_KEY": _FROM_ENV,
        "AWS_SESSION_TOKEN": _FROM_ENV,
    }
)
"""Variables that hold nothing but secrets, and what to do instead of writing one out."""


def plain_secrets(candidate: Candidate) -> Iterator[Problem]:
    """Secrets in `engine.args`, `engine.env` and what is merged over pods, as far as they show."""
    spec = candidate.spec
    for index, argument in enumerate(spec.engine.args):
        if _HUB_TOKEN.search(argument):
            yield _token(f"spec.engine.args[{index}]")
    for index, variable in enumerate(spec.engine.env):
        where, value = f"spec.engine.env[{index}]", variable.value or ""
        if _HUB_TOKEN.search(value):
            yield _token(where)
        else:
            yield from _secret_variable(where, variable.name, value)
    yield from _in_overlay("spec.podTemplate", spec.pod_template)
    yield from _in_overlay("spec.workerTemplate", spec.worker_template)


def _in_overlay(field: str, overlay: dict[str, JsonValue]) -> Iterator[Problem]:
    for path, text in _texts(field, overlay):
        if _HUB_TOKEN.search(text):
            yield _token(path)
    for at, container in enumerate(parts(overlay, "spec", "containers")):
        for index, given in enumerate(parts(container, "env")):
            text = str(given.get("value") or "")
            if not _HUB_TOKEN.search(text):
                where = f"{field}.spec.containers[{at}].env[{index}]"
                yield from _secret_variable(where, str(given.get("name")), text)


def _secret_variable(where: str, name: str, value: str) -> Iterator[Problem]:
    # `$(NAME)` is what another variable holds, which may well come from a Secret.
    if value and "$(" not in value and (instead := _SECRET_VARIABLES.get(name)):
        yield Problem(where, f"{name} stands here for all to read who may read pods: {instead}.")


def _token(where: str) -> Problem:
    return Problem(
        where,
        "a Hugging Face token stands here for all to read who may read pods: revoke it, and "
        f"{_FROM_FIELD.replace('put it', 'put a new one')}.",
    )


def _texts(path: str, value: JsonValue) -> Iterator[tuple[str, str]]:
    """Every text below a value, with its path."""
    match value:
        case str():
            yield path, value
        case dict():
            for key, child in value.items():
                yield from _texts(f"{path}.{key}", child)
        case list():
            for index, child in enumerate(value):
                yield from _texts(f"{path}[{index}]", child)
