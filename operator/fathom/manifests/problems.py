"""Everything that refuses a resource whose schema and rules are in order. Pure, and in one place.

`fathom.resource.parse` comes before it and finds what is wrong with schema and rules;
`fathom.core.support` after it, for what is right and not built yet.
"""

from collections.abc import Iterator
from typing import Final

from fathom.api.accelerators import vendor_of
from fathom.api.problem import Problem
from fathom.api.rules import CREATION_RULES
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.core.models.names import is_model_name
from fathom.core.prometheus_labels import bad_label_names
from fathom.engine.arguments import EngineArguments, is_count
from fathom.engine.engine_problems import engine_problems
from fathom.engine.graph_price import graph_problems
from fathom.engine.known_names import name_doubts
from fathom.engine.owned_flags import lone_argument_problems, owned_flag_problems
from fathom.engine.profile import EngineProfile
from fathom.engine.speculative_config import draft_option_problems
from fathom.engine.stated_args import MAX_NUM_SEQS, kv_cache_dtype
from fathom.engine.version import parsed_version
from fathom.manifests.gpu_doubts import gpu_doubts
from fathom.manifests.gpu_problems import foreign_gpu_problems, gpus_sentence
from fathom.manifests.kv_transfer import kv_transfer_doubts
from fathom.manifests.plain_secrets import plain_secret_problems
from fathom.manifests.pod.template_doubts import pod_template_doubts
from fathom.manifests.pod.template_problems import (
    OWN_PREFIX,
    own_variable_sentence,
    pod_template_problems,
)
from fathom.manifests.preflight import preflight_of
from fathom.manifests.profiled_context import profiled_context_doubts
from fathom.manifests.token_budget import token_budget_doubts
from fathom.preflight.verdict import DraftVerdict, check_draft
from fathom.resource import SpeculativeDeployment

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
    return tuple(_problems(sd, verdict or check_draft(preflight_of(sd.engine, {}))))


def doubts_of(sd: SpeculativeDeployment) -> tuple[Problem, ...]:
    """What to see to in a resource that is not refused: it is served all the same.

    Args:
        sd: a resource against which `problems_of` has nothing.
    """
    return (
        *gpu_doubts(sd.spec),
        *name_doubts(sd.engine),
        *token_budget_doubts(sd.engine),
        *profiled_context_doubts(sd.spec),
        *kv_transfer_doubts(sd),
        *pod_template_doubts(sd),
    )


def _problems(sd: SpeculativeDeployment, verdict: DraftVerdict) -> Iterator[Problem]:
    spec, engine = sd.spec, sd.engine
    for rule in CREATION_RULES:
        if not rule.holds(sd.metadata.name, spec):
            yield Problem(rule.field, rule.message)
    if spec.engine.version and parsed_version(spec.engine.version) is None:
        yield Problem(
            "spec.engine.version",
            f"{spec.engine.version!r} is not a version: write vLLM's, such as 0.32.0.",
        )
    yield from _model_name_problems(spec)
    for label in bad_label_names(spec.metrics.prometheus_labels):
        yield Problem(
            "spec.metrics.prometheusLabels",
            f"{label!r} is no label of a Prometheus: write letters, digits and _, with no digit at "
            "its beginning.",
        )
    yield from owned_flag_problems(engine.arguments, plugin=engine.has_plugin)
    yield from lone_argument_problems(engine.arguments)
    yield from _variable_problems(spec)
    yield from draft_option_problems(spec)
    yield from plain_secret_problems(spec)
    yield from _max_num_seqs_problems(engine.arguments)
    yield from _kv_cache_problems(engine)
    yield from engine_problems(engine)
    yield from graph_problems(engine)
    if verdict.refused:
        yield Problem(verdict.field, verdict.message)
    yield from _gpu_problems(engine)
    yield from pod_template_problems(sd)


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
        if name.startswith(OWN_PREFIX):
            yield Problem(f"spec.engine.env[{index}]", own_variable_sentence(name))
        if "=" in name or not (name.isascii() and name.isprintable()):
            # What stands there is not repeated: it may well be a secret.
            yield Problem(
                f"spec.engine.env[{index}].name",
                "the name of a variable has no = and printable ASCII only: what it is to hold "
                "goes into value.",
            )


def _gpu_problems(engine: EngineProfile) -> Iterator[Problem]:
    needed, resources = str(engine.layout.gpus_per_pod), engine.spec.engine.resources
    ours = vendor_of(engine.spec.node_pool).resource
    for kind, quantities in (("limits", resources.limits), ("requests", resources.requests)):
        field = f"spec.engine.resources.{kind}"
        if str(quantities.get(ours, needed)) != needed:
            yield Problem(f"{field}.{ours}", gpus_sentence(needed))
        yield from foreign_gpu_problems(quantities, ours, field)


def _max_num_seqs_problems(arguments: EngineArguments) -> Iterator[Problem]:
    stated = arguments.value(MAX_NUM_SEQS)
    if stated is not None and not (is_count(stated) and int(stated) >= 1):
        yield Problem(
            "spec.engine.args",
            f"--max-num-seqs needs a whole number of 1 or more, not {stated!r}.",
        )


def _kv_cache_problems(engine: EngineProfile) -> Iterator[Problem]:
    backend, stated = engine.spec.engine.attention_backend, kv_cache_dtype(engine.arguments)
    if backend.lower() == "tokenspeed_mla" and stated not in ("auto", *TOKENSPEED_MLA_KV_CACHE):
        yield Problem(
            "spec.engine.args",
            f"attention backend {backend} reads an FP8 KV cache only, not --kv-cache-dtype "
            f"{stated}: set that to fp8, or choose another attentionBackend.",
        )
