"""Checks of what a spec says outside of `engine.args` and `podTemplate`. Pure.

Such a value is also kept in Git, in etcd, in the ConfigMap with the last good spec, and, as an
argument, in the engine's log and in the list of processes. A message never repeats it.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from packaging.version import Version
from pydantic import JsonValue

from fathom.api.accelerators import AMD, vendor_of
from fathom.api.cel_rules import CREATION_RULES
from fathom.api.choices import AdaptiveVerification
from fathom.api.conditions import Reason
from fathom.api.names import bad_label_names
from fathom.api.problem import Problem, warning
from fathom.engine.start import (
    PROFILED_BY_DEFAULT,
    PROFILED_CONTEXT,
    is_release_image,
    parsed_version,
    tagged_version,
)
from fathom.manifests.template_parts import parts
from fathom.model_refs import is_model_name
from fathom.text import counted
from fathom.validation.candidate import Candidate
from fathom.validation.merged_template import two_values
from fathom.validation.model_input import was_read
from fathom.validation.pod_template_errors import OWN_PREFIX, own_variable_sentence
from fathom.validation.start_checks import Variable, engine_variables

_HUB_TOKEN: Final = re.compile(r"(?<![A-Za-z0-9_])(hf|api_org)_[A-Za-z0-9]{20,}")
"""As the Hugging Face Hub makes them: 34 letters and digits after the prefix, so far."""
TRIAL: Final = "spec.draft.trial"
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
_EXPERT_PARALLEL: Final = ("--enable-exp", "-ep")
"""Beginnings of --enable-expert-parallel, and its short name."""
_WHOLE_GPUS: Final = "NVIDIA_VISIBLE_DEVICES"
_SOME_GPUS: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_LEFT_TO_CDI: Final = "void"


def creation_rules(candidate: Candidate) -> Iterator[Problem]:
    """Rules that hold for new resources, and that a CRD cannot hold for all that are stored."""
    for rule in CREATION_RULES:
        if not rule.holds(candidate.resource.metadata.name, candidate.spec):
            yield Problem(field=rule.field, message=rule.message)


def version(candidate: Candidate) -> Iterator[Problem]:
    engine = candidate.spec.engine
    stated, found = engine.version, parsed_version(engine.version)
    if stated and found is None:
        yield Problem(
            field="spec.engine.version",
            message=f"{stated!r} is not a version: write vLLM's, such as 0.32.0.",
        )
    tagged = tagged_version(engine.image) if is_release_image(engine.image) else None
    if found is not None and tagged is not None and not _same_release(found, tagged):
        yield warning(
            "spec.engine.version",
            f"this is {stated}, and counts, where the tag of spec.engine.image says {tagged}: "
            "remove it, unless the image holds another vLLM than its tag says.",
        )


def _same_release(one: Version, other: Version) -> bool:
    """Whether the numbers are the same: a tag seldom says which candidate, or which build."""
    return Version(one.base_version) == Version(other.base_version)


def model_names(candidate: Candidate) -> Iterator[Problem]:
    spec = candidate.spec
    trial = spec.draft.trial.id if spec.draft.trial else ""
    named = (("model.id", spec.model.id), ("draft.id", spec.draft.id), ("draft.trial.id", trial))
    for field, name in named:
        if name and not is_model_name(name):
            yield Problem(
                field=f"spec.{field}",
                message="this is neither a Hugging Face id (organisation/name) nor an absolute "
                "path in the pod: write one of them, without hf:// and the like. What is in a "
                "claim has a path once cache.claimName or podTemplate mounts it.",
            )
    revisions = [("model", spec.model.id, spec.model.revision)]
    if spec.drafts:
        revisions.append(("draft", spec.draft.id, spec.draft.revision))
    if spec.draft.trial:
        revisions.append(("draft.trial", trial, spec.draft.trial.revision))
    for field, name, revision in revisions:
        if not name.startswith("/") and any(each.isspace() for each in revision):
            yield warning(
                f"spec.{field}.revision",
                "no branch, tag or commit has a space in its name, so that the hub will know none: "
                "correct it.",
            )


def prometheus_labels(candidate: Candidate) -> Iterator[Problem]:
    metrics = candidate.spec.metrics
    of_source = {} if metrics.prometheus is None else metrics.prometheus.labels
    for field, labels in (
        ("prometheusLabels", metrics.prometheus_labels),
        ("prometheus.labels", of_source),
    ):
        for label in bad_label_names(labels):
            yield Problem(
                field=f"spec.metrics.{field}",
                message=f"{label!r} is no label of a Prometheus: write letters, digits and _, with "
                "no digit at its beginning.",
            )


def variable_names(candidate: Candidate) -> Iterator[Problem]:
    """Names that no Kubernetes takes; before 1.30 it takes fewer still, and says so itself."""
    for index, variable in enumerate(candidate.spec.engine.env):
        name = variable.name
        if name.startswith(OWN_PREFIX):
            yield Problem(field=f"spec.engine.env[{index}]", message=own_variable_sentence(name))
        if "=" in name or not (name.isascii() and name.isprintable()):
            # What stands there is not repeated: it may well be a secret.
            yield Problem(
                field=f"spec.engine.env[{index}].name",
                message="the name of a variable has no = and printable ASCII only: what it is to "
                "hold goes into value.",
            )


def variable_sources(candidate: Candidate) -> Iterator[Problem]:
    for index, variable in enumerate(candidate.spec.engine.env):
        if sentence := two_values(variable.model_dump(mode="json", exclude_defaults=True)):
            yield Problem(field=f"spec.engine.env[{index}]", message=sentence)


def dense_data_parallelism(candidate: Candidate) -> Iterator[Problem]:
    """Data parallelism over nodes, which a target without experts does not have.

    Its ranks are engines that know nothing of each other (`EngineCoreProc.run_engine_core` in
    vllm/v1/engine/core.py, `reconfigure_for_independent_dp_rank` in vllm/config/parallel.py, 0.28
    to 0.33): nobody opens the port at which a worker is probed, and no other one is known to it.
    """
    engine, layout = candidate.spec.engine, candidate.engine.layout
    ranks, config = engine.data_parallel_size, candidate.models.target_config
    off = ("--no-enable-exp", "--disable-exp")
    asked = candidate.engine.arguments.beginning(*_EXPERT_PARALLEL, *off)
    spread = asked[-1] if asked and not asked[-1].name.startswith(off) else None
    # `_verify_with_expert_parallelism` in vllm/config/model.py.
    without = config is not None and config.has_experts is False
    if spread is not None and without and was_read(candidate.engine.version):
        yield Problem(
            field=f"spec.engine.args[{spread.index}]",
            message=f"the target has no experts, and vLLM stops at {spread.spelling}: remove it.",
        )
    if ranks == 1 or not layout.spans_nodes or (config is not None and config.has_experts):
        return
    # Each rank becomes a replica, and keeps its depth live.
    replicas = ranks * max(1, candidate.spec.replicas)
    cure = f"set dataParallelSize to 1 and spec.replicas to {replicas}"
    field = "spec.engine.dataParallelSize"
    if config is None or config.has_experts is None:
        # Which vLLM refuses itself for a model that has none.
        if spread is not None:
            return
        yield warning(
            field,
            "over several nodes this works for mixture-of-experts models alone, and it is not "
            f"known if the target is one: if not, no worker becomes ready, so {cure}.",
        )
        return
    yield Problem(
        field=field,
        message="the target has no experts, so that its data-parallel engines are independent, and "
        f"the workers on other nodes would never become ready: {cure}.",
    )


def draft_fits(candidate: Candidate) -> Iterator[Problem]:
    """What is known of target and draft: `fathom.validation.models` judges them."""
    verdict = candidate.verdict
    if verdict.refused:
        yield Problem(field=verdict.field, message=verdict.message)
    # What serves has another draft than the one on trial.
    trial = candidate.trial.verdict if candidate.trial is not None else None
    if trial is not None and (trial.refused or trial.reason is Reason.DOUBTFUL):
        yield warning(TRIAL, trial.message)


def draft_code(candidate: Candidate) -> Iterator[Problem]:
    """Code of the draft's repository, and pickles, which may hold some.

    vLLM trusts a draft as it trusts its target: `ModelConfig` of the draft in
    vllm/config/speculative.py, `HFConfigParser` in vllm/transformers_utils/config.py. Pickles:
    `pt_weights_iterator` in vllm/model_executor/model_loader/weight_utils.py.
    """
    if candidate.trial is not None:
        yield from draft_code(candidate.trial)
    spec, given = candidate.spec, candidate.models
    draft, config = spec.draft.id, given.draft_config
    if spec.model.trust_remote_code and config is not None and config.runs_code:
        pinned = spec.draft.revision or draft.startswith("/")
        pin = "" if pinned else " and pin spec.draft.revision"
        yield warning(
            "spec.model.trustRemoteCode",
            f"{draft} brings code of its own (auto_map in its config.json), and vLLM trusts a "
            f"draft as it trusts the target: that code may run in the engine. Read it{pin}, or use "
            "a copy without auto_map, if vLLM has a class for this draft.",
        )
    if given.draft.weights.pickled:
        yield warning(
            "spec.draft.id",
            f"the weights of {draft} are pickles alone, a format that can hold code: vLLM has "
            "PyTorch read tensors and nothing else from them (weights_only). Use a revision with "
            "files in the safetensors format, or a copy that was converted.",
        )


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
        yield Problem(
            field=where, message=f"{name} is readable here for all who may read pods: {instead}."
        )


def _token(where: str) -> Problem:
    return Problem(
        field=where,
        message="a Hugging Face token is readable here for all who may read pods: revoke it, "
        f"and {_FROM_FIELD.replace('put it', 'put a new one')}.",
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


def visible_gpus(candidate: Candidate) -> Iterator[Problem]:
    """Variables that take a pod's GPUs out of the hands of its device plugin.

    A container's own variable wins over the one of the device plugin
    (kubernetes: pkg/kubelet/kubelet_pods.go). CUDA counts the GPUs of the container from 0, and
    takes none from the first one on that is not there (CUDA C++ Programming Guide, CUDA
    Environment Variables).
    """
    vendor, gpus = vendor_of(candidate.spec.node_pool), candidate.engine.layout.gpus_per_pod
    if vendor is None:
        return
    for each in engine_variables(candidate):
        if each.name == _WHOLE_GPUS and vendor is not AMD and each.value != _LEFT_TO_CDI:
            yield warning(
                each.path,
                f"{each.name} overrides what the device plugin gives the container: it may see "
                "GPUs of other pods, or none. Remove it.",
            )
        elif each.name in _SOME_GPUS and each.value is not None:
            yield from _some_gpus(each, each.value, gpus)


def _some_gpus(variable: Variable, value: str, gpus: int) -> Iterator[Problem]:
    listed = [part.strip() for part in value.split(",")]
    if any(part.startswith(("GPU-", "MIG-")) for part in listed):
        yield warning(
            variable.path,
            f"{variable.name} names a GPU that the device plugin may give to another pod: remove "
            "it.",
        )
        return
    valid: list[int] = []
    for part in listed:
        if not (part.isdecimal() and int(part) < gpus):
            break
        valid.append(int(part))
    seen = len(set(valid))
    if seen < gpus:
        yield Problem(
            field=variable.path,
            message=f"{variable.name} lets the engine see {seen} of its pod's "
            f"{counted(gpus, 'GPU')}, which each pod counts from 0, and it needs them all: "
            "remove it.",
        )


def profiled_context(candidate: Candidate) -> Iterator[Problem]:
    """Where nobody says which context the traffic has."""
    spec = candidate.spec
    cuts = spec.speculation.adaptive_verification is not AdaptiveVerification.DISABLED
    if cuts and all(each.name != PROFILED_CONTEXT for each in spec.engine.env):
        yield warning(
            "spec.engine.env",
            f"{PROFILED_CONTEXT} is not set: adaptive verification cuts drafts by what verifying "
            f"them costs at {PROFILED_BY_DEFAULT} tokens of context, measured once at start. With "
            "shorter contexts it cuts what is nearly free: set it to the mean context of your "
            "requests, which `fathom explain` shows.",
        )
