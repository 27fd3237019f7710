"""Checks of what vLLM stops at when it starts: by model runner, the target's layers, variables.

A message never repeats the value of a variable, unless it is a number or a word such as `true`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import JsonValue

from fathom.api.accelerators import AMD, vendor_of
from fathom.api.choices import Accelerator, Compares
from fathom.api.methods import Method
from fathom.api.names import ENGINE_CONTAINER
from fathom.api.problem import Problem, Severity, warning
from fathom.api.spec import NodePoolSpec
from fathom.api.suggestions import VERY_NEAR, nearest
from fathom.engine.capability_table import has_release
from fathom.engine.known_options import names_of, who_has
from fathom.engine.start import (
    MODEL_RUNNER_VARIABLE,
    release_gates,
    stated_model_runner,
)
from fathom.manifests.template_parts import POD_TEMPLATE, WORKER_TEMPLATE, parts
from fathom.validation.candidate import Candidate
from fathom.validation.model_input import was_read

_ADAPTIVE_FIELD: Final = "spec.speculation.adaptiveVerification"
_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off"})
_STRICT: Final = "--fail-on-environ-validation"
_RETIRED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "VLLM_ATTENTION_BACKEND": "set spec.engine.attentionBackend instead",
        "VLLM_ADDITIONAL_ARGS": "write the options that it holds into spec.engine.args",
        "VLLM_USE_V1": "remove it, for there is no other engine",
        "VLLM_ALL2ALL_BACKEND": "remove it, or set --all2all-backend in spec.engine.args",
        "VLLM_USE_FLASHINFER_MOE_FP4": "remove it, or set --moe-backend in spec.engine.args",
        "VLLM_USE_FLASHINFER_MOE_FP8": "remove it, or set --moe-backend in spec.engine.args",
    }
)
"""Variables that no release from 0.28 on reads, and what took their place."""
_V2: Final = 2
_ON_V1_BY_ITSELF: Final = SpecifierSet(">=0.32.0")
"""Releases in which what is known to select Model Runner V1, other than its variable, does so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """What one of vLLM's two model runners does not have."""

    stated: Callable[[Candidate], str]
    """What asks for it, as the user writes it; empty: nothing does."""
    releases: SpecifierSet
    """That refuse to start with it."""


def _method(*methods: Method) -> Callable[[Candidate], str]:
    def stated(candidate: Candidate) -> str:
        method = candidate.spec.draft.method
        return f"method {method}" if candidate.spec.drafts and method in methods else ""

    return stated


def _option(name: str, *, unless_parallel: bool = False) -> Callable[[Candidate], str]:
    """A switch or a value in `draft.options`."""

    def stated(candidate: Candidate) -> str:
        draft = candidate.spec.draft
        text = draft.options.get(name, "")
        asked = candidate.spec.drafts and text.lower() not in {"", "false", "null"}
        by_nature = unless_parallel and draft.method.row.parallel_by_nature
        return f"spec.draft.options.{name}" if asked and not by_nature else ""

    return stated


def _flag(name: str) -> Callable[[Candidate], str]:
    return lambda candidate: (
        f"{name} in spec.engine.args" if candidate.engine.arguments.beginning(name) else ""
    )


def _drafts_of(*architectures: str) -> Callable[[Candidate], str]:
    """Drafts of method dflash, by their class."""

    def stated(candidate: Candidate) -> str:
        config = candidate.models.draft_config
        spec = candidate.spec
        if config is None or not spec.drafts or spec.draft.method is not Method.DFLASH:
            return ""
        found = [each for each in config.architectures if each in architectures]
        return f"the draft's {found[0]}" if found else ""

    return stated


def _targets_of(*architectures: str) -> Callable[[Candidate], str]:
    def stated(candidate: Candidate) -> str:
        config = candidate.models.target_config
        name = "" if config is None else config.architecture
        return f"the target's {name}" if name in architectures else ""

    return stated


def _asynchronous_pipeline(candidate: Candidate) -> str:
    asked = candidate.engine.arguments.beginning("--async-s", "--no-async-s")
    stated = bool(asked) and not asked[-1].name.startswith("--no-")
    split = candidate.spec.engine.pipeline_parallel_size > 1
    return "pipelineParallelSize above 1 with --async-scheduling" if stated and split else ""


_V1_LACKS: Final[tuple[Lack, ...]] = (
    Lack(stated=_method(Method.DSPARK), releases=SpecifierSet(">=0.29.0")),
    Lack(stated=_asynchronous_pipeline, releases=SpecifierSet(">=0.31.0")),
    Lack(stated=_drafts_of("DFlash2DraftModel"), releases=SpecifierSet(">=0.29.0")),
    Lack(stated=_drafts_of("LiLiCorrDraftModel"), releases=SpecifierSet(">=0.31.0")),
    Lack(stated=_drafts_of("DFlash2BeamDraftModel"), releases=SpecifierSet(">=0.33.0")),
    Lack(
        stated=_targets_of("Step5ForCausalLM", "Step5ForConditionalGeneration"),
        releases=SpecifierSet(">=0.33.0"),
    ),
    Lack(stated=_option("draft_lm_head_quantization"), releases=SpecifierSet(">=0.33.0")),
    Lack(stated=_flag("--enable-batch-sharded-sampling"), releases=SpecifierSet(">=0.29.0")),
    Lack(stated=_flag("--return-sampling-mask"), releases=SpecifierSet(">=0.28.0")),
    Lack(stated=_flag("--enable-trace-replay"), releases=SpecifierSet(">=0.29.0")),
)
"""Beside adaptive verification, which has a field (`_conflicts`). Source:
`_get_v1_model_runner_unsupported_features`, `_verify_sampling_replay_config` and
`_verify_trace_replay_config` in vllm/config/vllm.py, read in each release from 0.28 to 0.33."""
_V2_LACKS: Final[tuple[Lack, ...]] = (
    Lack(stated=_method(Method.SUFFIX), releases=SpecifierSet(">=0.28.0")),
    Lack(stated=_method(Method.NGRAM, Method.NGRAM_GPU), releases=SpecifierSet(">=0.28.0,<0.32")),
    Lack(stated=_method(Method.DRAFT_MODEL), releases=SpecifierSet(">=0.28.0,<0.31")),
    Lack(
        stated=_option("parallel_drafting", unless_parallel=True),
        releases=SpecifierSet(">=0.28.0"),
    ),
    Lack(stated=_option("use_heterogeneous_vocab"), releases=SpecifierSet(">=0.32.0")),
)
"""Source: `_get_v2_model_runner_unsupported_features` there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One variable of the engine's container, as a user writes it."""

    path: str
    name: str
    value: str | None
    """None: it comes from elsewhere, by reference or by another variable."""

    @property
    def number(self) -> int | None:
        """A whole number; None: it is none, or not known."""
        return int(self.value) if self.value and self.value.isdecimal() else None


def engine_variables(candidate: Candidate) -> tuple[Variable, ...]:
    """Variables of the engine's container in `engine.env`, `podTemplate` and `workerTemplate`.

    Of several of one name in one place the last counts.
    """
    spec = candidate.spec
    found = {
        each.name: _read(f"spec.engine.env[{index}]", each.name, each.value)
        for index, each in enumerate(spec.engine.env)
    }
    given = list(found.values())
    for field, overlay in (
        (POD_TEMPLATE, spec.pod_template),
        (WORKER_TEMPLATE, spec.worker_template),
    ):
        for at, container in enumerate(parts(overlay, "spec", "containers")):
            if container.get("name") != ENGINE_CONTAINER:
                continue
            env = {
                str(each.get("name")): _read(
                    f"{field}.spec.containers[{at}].env[{index}]",
                    str(each.get("name")),
                    each.get("value", "" if "valueFrom" not in each else None),
                )
                for index, each in enumerate(parts(container, "env"))
            }
            given += env.values()
    return tuple(given)


def _read(path: str, name: str, value: JsonValue) -> Variable:
    known = isinstance(value, str) and "$(" not in value
    return Variable(path=path, name=name, value=str(value) if known else None)


def adaptive_architecture(candidate: Candidate) -> Iterator[Problem]:
    """Targets whose layers keep a state that adaptive verification cannot go back in.

    vLLM loads the weights first, and stops then. Source: what
    `maybe_create_adaptive_verification_manager` in
    vllm/v1/worker/gpu/spec_decode/adaptive_verification.py asks of the backend of each layer.
    tests/engine/test_release_gates.py asks the same. Where an architecture is not known, nothing
    is refused.
    """
    spec, version, gates = candidate.spec, candidate.engine.version, release_gates()
    asks = spec.verifies_adaptively or spec.compares is Compares.ADAPTIVE_VERIFICATION
    release, config = gates.asked_as(version), candidate.models.target_config
    if not asks or release is None or version is None or config is None:
        return
    name, pool = config.architecture, spec.node_pool
    if name not in _without_adaptive(release, pool):
        return
    later = (each for each in gates.releases if Version(each) > version)
    has = next((each for each in later if name not in _without_adaptive(each, pool)), "")
    change = f"change spec.engine.image to vLLM {has} or later, or " if has else ""
    yield Problem(
        field=_ADAPTIVE_FIELD,
        message=f"vLLM {version} has none for {name}, whose layers keep one state for each "
        f"request, and stops at start: {change}set it to Disabled.",
    )


def _without_adaptive(release: str, pool: NodePoolSpec) -> frozenset[str]:
    """Architectures that cannot have adaptive verification on these GPUs."""
    gates = release_gates()
    nvidia = names_of(release, gates.no_adaptive_verification_nvidia)
    amd = names_of(release, gates.no_adaptive_verification_amd)
    if pool.accelerator is Accelerator.CUSTOM:
        return nvidia & amd
    return amd if vendor_of(pool) is AMD else nvidia


def model_runner(candidate: Candidate) -> Iterator[Problem]:
    """What vLLM does not have on the model runner that a spec selects, so that it stops at start.

    tests/engine/test_parser_matrix.py asks vLLM.
    """
    start, version = candidate.engine.start, candidate.engine.version
    on_gpus, asked = candidate.engine.layout.on_gpus, stated_model_runner(candidate.spec)
    paths = {each.name: each.path for each in engine_variables(candidate)}
    if asked == _V2 and not on_gpus:
        yield Problem(
            field=paths[MODEL_RUNNER_VARIABLE],
            message="without GPUs Fathom was run with vLLM's Model Runner V1 alone, and asks for "
            f"it: remove {MODEL_RUNNER_VARIABLE}.",
        )
        return
    if version is None or not was_read(version):
        return
    by_itself = not on_gpus or has_release(_ON_V1_BY_ITSELF, version)
    if asked == 1 or (start.model_runner_v1 and by_itself):
        runner, cause, lacks = "V1", start.model_runner_v1, _V1_LACKS
    elif asked is not None:
        runner, cause, lacks = "V2", f"{MODEL_RUNNER_VARIABLE} in spec.engine.env", _V2_LACKS
    else:
        return
    what, _, place = cause.partition(" in ")
    cure = f"Remove {what}" if what in paths or on_gpus else "Do without it, or name GPUs there"
    for lack in lacks:
        if (stated := lack.stated(candidate)) and has_release(lack.releases, version):
            yield Problem(
                field=paths.get(what, place or what),
                message=f"{what} selects vLLM's Model Runner {runner}, which in vLLM {version} "
                f"does not have {stated}: vLLM stops at start. {cure}.",
            )


def engine_variable_values(candidate: Candidate) -> Iterator[Problem]:
    """Variables of vLLM that the release does not read, or not with this value.

    Source: `validate_environ` in vllm/platforms/interface.py, which logs them or, where
    --fail-on-environ-validation asks for it, stops; and `enable_envs_cache` in vllm/envs.py, which
    reads all of them at start. `generators.release_gates` asks each release for the names.
    """
    version, gates = candidate.engine.version, release_gates()
    release = gates.asked_as(version)
    variables = [each for each in engine_variables(candidate) if each.name.startswith("VLLM_")]
    if release is None or not variables:
        return
    known = names_of(release, gates.environment)
    numbers = names_of(release, gates.environment_numbers)
    strict = bool(candidate.engine.arguments.beginning(_STRICT))
    for each in variables:
        if each.name in numbers and (each.value or "").lower() in _WORDS:
            yield Problem(
                field=each.path,
                message=f"vLLM {version} reads {each.name} as a number and stops at a word: write "
                '"1" for true and "0" for false.',
            )
        if each.name not in known:
            ends = f" and stops at start, as {_STRICT} asks" if strict else ""
            yield Problem(
                field=each.path,
                message=f"vLLM {version} does not read {each.name}{ends}: "
                f"{_instead(each.name, known)}.",
                severity=Severity.ERROR if strict else Severity.WARNING,
            )


def _instead(name: str, known: frozenset[str]) -> str:
    """What to do about a variable that is not read, as the second half of a sentence."""
    if name in _RETIRED:
        return _RETIRED[name]
    if elsewhere := who_has(name, release_gates().environment):
        return f"{elsewhere}; remove it"
    near = nearest(name, known, VERY_NEAR)
    return f"did you mean {near}? Else remove it" if near else "remove it"


def variables_of_fields(candidate: Candidate) -> Iterator[Problem]:
    """Variables that say otherwise than a field.

    Source: `__post_init__` in vllm/config/parallel.py takes VLLM_DP_SIZE where data parallelism is
    1, and waits for engines that nobody starts.
    """
    spec = candidate.spec
    for each in engine_variables(candidate):
        several = each.name == "VLLM_DP_SIZE" and (each.number or 0) > 1
        if several and spec.engine.data_parallel_size == 1:
            yield Problem(
                field=each.path,
                message="VLLM_DP_SIZE makes the engine wait for others, which are never started: "
                "set spec.engine.dataParallelSize instead.",
            )
        if each.name == "VLLM_HOST_IP" and each.value and candidate.engine.layout.spans_nodes:
            yield warning(
                each.path,
                "VLLM_HOST_IP would be the same in every pod of a replica: remove it, or take it "
                "from valueFrom.fieldRef status.podIP.",
            )


def group_backend(candidate: Candidate) -> Iterator[Problem]:
    """Ray, where a replica spans several nodes.

    Source: what `__post_init__` asks of `nnodes` in vllm/config/parallel.py, 0.28 to 0.33.
    """
    option = "--distributed-executor-backend"
    ray = candidate.engine.arguments.value(option) == "ray"
    if ray and candidate.engine.layout.spans_nodes:
        yield Problem(
            field="spec.engine.args",
            message=f"vLLM refuses {option} ray with --nnodes, by which the pods of a replica "
            "meet: remove it. No Ray is needed.",
        )
