"""Everything that refuses a resource whose schema and rules are in order. Pure, and in one place.

`fathom.api.resource.parse` comes before it and finds what is wrong with schema and rules;
`fathom.core.support` after it, for what is right and not built yet.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.api.problem import Problem
from fathom.api.resource import SpeculativeDeployment
from fathom.api.rules import CREATION_RULES
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.core.engine.capability import engine_problems, live_depth
from fathom.core.engine.version import parsed_version
from fathom.core.models.names import is_model_name
from fathom.core.plugin import PluginBundle
from fathom.core.revision import revision_of
from fathom.manifests.engine_command.owned_flags import lone_argument_problems, owned_flag_problems
from fathom.manifests.engine_command.speculative_config import draft_option_problems
from fathom.manifests.engine_command.stated_args import stated_kv_cache_dtype, stated_max_num_seqs
from fathom.manifests.plain_secrets import plain_secret_problems
from fathom.manifests.pod.pod_template import pod_template
from fathom.manifests.pod.strategic_merge import MergeError
from fathom.manifests.preflight import preflight_of
from fathom.preflight.verdict import DraftVerdict, check_draft

TOKENSPEED_MLA_KV_CACHE: Final = ("fp8", "fp8_e4m3")
"""`supported_kv_cache_dtypes` in vllm/v1/attention/backends/mla/tokenspeed_mla.py. `auto` becomes
one of them where the checkpoint says so, which the preflight looks at."""


def problems_of(
    sd: SpeculativeDeployment, verdict: DraftVerdict | None = None
) -> tuple[Problem, ...]:
    """Why this resource must not be served as it is; empty: nothing known stands against it.

    Args:
        sd: a resource that `parse` accepted.
        verdict: of its draft; None: judged here, with no model looked up.
    """
    return tuple(_problems(sd, verdict or check_draft(preflight_of(sd.spec, {}))))


def _problems(sd: SpeculativeDeployment, verdict: DraftVerdict) -> Iterator[Problem]:
    spec = sd.spec
    for rule in CREATION_RULES:
        if not rule.holds(sd.metadata.name, spec):
            yield Problem(rule.field, rule.message)
    if spec.engine.version and parsed_version(spec.engine.version) is None:
        yield Problem(
            "spec.engine.version",
            f"{spec.engine.version!r} is not a version: write vLLM's, such as 0.32.0.",
        )
    yield from _model_name_problems(spec)
    yield from owned_flag_problems(spec.engine.args, live=live_depth(spec))
    yield from lone_argument_problems(spec.engine.args)
    yield from _variable_problems(spec)
    yield from draft_option_problems(spec)
    yield from plain_secret_problems(spec)
    yield from _max_num_seqs_problems(spec)
    yield from _kv_cache_problems(spec)
    yield from engine_problems(spec)
    if verdict.refused:
        yield Problem(verdict.field, verdict.message)
    yield from _pod_template_problems(sd)


def _model_name_problems(spec: SpeculativeDeploymentSpec) -> Iterator[Problem]:
    for field, name in (("model.id", spec.model.id), ("draft.id", spec.draft.id)):
        if name and not is_model_name(name):
            yield Problem(
                f"spec.{field}",
                "this is neither a Hugging Face id (organisation/name) nor an absolute path in the "
                "pod: write one of them, without hf:// and the like. What lies in a claim has a "
                "path once cache.claimName or podTemplate mounts it.",
            )


def _variable_problems(spec: SpeculativeDeploymentSpec) -> Iterator[Problem]:
    """Names that no Kubernetes takes; before 1.30 it takes fewer still, and says so itself."""
    for index, variable in enumerate(spec.engine.env):
        name = variable.name
        if "=" in name or not (name.isascii() and name.isprintable()):
            # What stands there is not repeated: it may well be a secret.
            yield Problem(
                f"spec.engine.env[{index}].name",
                "the name of a variable has no = and printable ASCII only: what it is to hold "
                "goes into value.",
            )


def _max_num_seqs_problems(spec: SpeculativeDeploymentSpec) -> Iterator[Problem]:
    stated = stated_max_num_seqs(spec)
    if stated is not None and not (stated.isdecimal() and int(stated) >= 1):
        yield Problem(
            "spec.engine.args",
            f"--max-num-seqs needs a whole number of 1 or more, not {stated!r}.",
        )


def _kv_cache_problems(spec: SpeculativeDeploymentSpec) -> Iterator[Problem]:
    backend, stated = spec.engine.attention_backend, stated_kv_cache_dtype(spec)
    if backend.lower() == "tokenspeed_mla" and stated not in ("auto", *TOKENSPEED_MLA_KV_CACHE):
        yield Problem(
            "spec.engine.args",
            f"attention backend {backend} reads an FP8 KV cache only, not --kv-cache-dtype "
            f"{stated}: set that to fp8, or choose another attentionBackend.",
        )


def _pod_template_problems(sd: SpeculativeDeployment) -> Iterator[Problem]:
    field = "spec.podTemplate"
    for key in sd.spec.pod_template:
        if key not in ("metadata", "spec"):
            yield Problem(f"{field}.{key}", "a pod template has metadata and spec, nothing else.")
            return
    yield from _texts_that_are_none(sd.spec.pod_template)
    try:
        template = pod_template(
            sd, revision=revision_of(sd.spec), bundle=PluginBundle(files={}, content="")
        )
    except MergeError as error:
        where, _, sentence = str(error).partition(": ")
        yield Problem(where, sentence)
        return
    if names.ENGINE_CONTAINER not in _container_names(template):
        yield Problem(
            f"{field}.spec.containers",
            f"the container {names.ENGINE_CONTAINER} must stay: do not delete it.",
        )


_MAPS_OF_TEXT: Final = (
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("spec", "nodeSelector"),
)


def _texts_that_are_none(given: Mapping[str, JsonValue]) -> Iterator[Problem]:
    """Numbers and truth values where Kubernetes has text only; null takes a key away."""
    for outer, inner in _MAPS_OF_TEXT:
        parent = given.get(outer)
        texts = parent.get(inner) if isinstance(parent, dict) else None
        for key, value in texts.items() if isinstance(texts, dict) else ():
            if isinstance(value, bool | int | float):
                yield Problem(
                    f"spec.podTemplate.{outer}.{inner}.{key}",
                    f"{json.dumps(value)} is not text: put it in quotes.",
                )


def _container_names(template: Mapping[str, JsonValue]) -> list[JsonValue]:
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    return [
        container.get("name")
        for container in (containers if isinstance(containers, list) else [])
        if isinstance(container, dict)
    ]
