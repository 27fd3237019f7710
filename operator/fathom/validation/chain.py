"""The one chain of rules that a spec goes through before it is carried out. Pure.

`fathom.resource.parse` comes before. A check judges one thing, with a problem for each place.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

from fathom.api.problem import Problem, Severity
from fathom.validation import (
    argument_checks,
    cache_checks,
    engine_checks,
    kv_transfer_checks,
    placement_checks,
    pod_template_errors,
    pod_template_warnings,
    release_checks,
    spec_checks,
    start_checks,
    training_checks,
)
from fathom.validation.candidate import Candidate, Rule

_KUBERNETES: Final = "kubernetes: pkg/apis/core/validation/validation.go"
_PARSER: Final = "vLLM's own parser: make known-names"

_of_the_api = partial(Rule, source="the API of Fathom")
_of_kubernetes = partial(Rule, source=_KUBERNETES)
_of_pods = partial(_of_kubernetes, starts=True)
_of_releases = partial(Rule, releases="0.28 to 0.33", engine=True)
_of_the_parser = partial(_of_releases, source=_PARSER)
_of_the_configuration = partial(_of_releases, source="vllm/config/vllm.py")

CHAIN: Final[tuple[tuple[Rule, ...], ...]] = (
    # What is written: every error is reported at once.
    (
        _of_the_api(
            id="api-creation",
            check=spec_checks.creation_rules,
            says="New resources keep what the CRD cannot ask of stored ones.",
        ),
        _of_the_api(
            id="engine-version",
            check=spec_checks.version,
            says="engine.version is a version, and the one of a published tag.",
        ),
        _of_the_api(
            id="model-name",
            check=spec_checks.model_names,
            says="Models are Hugging Face ids or absolute paths.",
        ),
        Rule(
            id="prometheus-labels",
            check=spec_checks.prometheus_labels,
            says="Names of labels are ones that a Prometheus takes.",
            source="prometheus: data model",
        ),
        _of_the_api(
            id="arguments-owned",
            check=argument_checks.owned_flags,
            says="engine.args repeats nothing that a field of the API sets.",
        ),
        Rule(
            id="arguments-alone",
            check=argument_checks.lone_arguments,
            says="Each argument is an option, or the value of one.",
            source=_PARSER,
        ),
        _of_kubernetes(
            id="variable-names",
            check=spec_checks.variable_names,
            says="Names of variables are ones that Kubernetes takes, and none of Fathom's own.",
        ),
        _of_pods(
            id="variable-sources",
            check=spec_checks.variable_sources,
            says="A variable has its value from one place.",
        ),
        _of_the_api(
            id="draft-options",
            check=engine_checks.draft_options,
            says="draft.options repeats no field, its JSON can be read, and its bounds hold.",
        ),
        Rule(
            id="plain-secrets",
            check=spec_checks.plain_secrets,
            says="No secret is written out where all who may read pods can read it.",
            source="docs/security.md",
        ),
        Rule(
            id="max-num-seqs",
            check=argument_checks.max_num_seqs,
            says="--max-num-seqs is a whole number: the depth schedule ends there.",
            source=_PARSER,
        ),
        _of_the_parser(
            id="option-names",
            check=release_checks.unknown_names,
            says="This release knows the options and draft fields.",
        ),
        _of_the_parser(
            id="option-values",
            check=release_checks.argument_values,
            says="vLLM's parser takes each option's value: type, closed set, JSON, or none.",
        ),
        _of_releases(
            id="registered-values",
            check=release_checks.registered_values,
            says="This release has these parsers, load format, attention backend and connector.",
            source="vLLM's registries: make known-names",
        ),
        _of_releases(
            id="option-pairs",
            check=release_checks.option_pairs,
            says="Options have those that they need, and none that they exclude.",
            source="validate_parsed_serve_args, verify_max_model_len and others in vLLM",
        ),
        _of_the_api(
            id="unread-variables",
            check=argument_checks.unread_variables,
            says="What decides something here is no variable of the container.",
        ),
        Rule(
            id="kv-cache-type",
            check=argument_checks.kv_cache_type,
            says="The attention backend reads this type of KV cache.",
            source="vllm/v1/attention/backends/mla/tokenspeed_mla.py",
        ),
        Rule(
            id="engine-capabilities",
            check=engine_checks.capabilities,
            says="This release has the method, the backend and the combination of them.",
            source="docs/engines.md",
            releases="by row of docs/engines.md",
        ),
        _of_releases(
            id="adaptive-architecture",
            check=start_checks.adaptive_architecture,
            says="The target's layers allow adaptive verification.",
            source="vllm/v1/worker/gpu/spec_decode/adaptive_verification.py: make known-names",
        ),
        _of_the_configuration(
            id="model-runner",
            check=start_checks.model_runner,
            says="The model runner that the spec selects has all that it asks for.",
        ),
        _of_releases(
            id="variable-values",
            check=start_checks.engine_variable_values,
            says="This release reads the variables that begin with VLLM_, and as they are written.",
            source="vllm/envs.py: make known-names",
        ),
        _of_releases(
            id="lora-budget",
            check=argument_checks.lora_budget,
            says="With LoRA a step holds the drafts of all requests.",
            source="create_engine_config in vllm/engine/arg_utils.py",
        ),
        _of_the_configuration(
            id="asynchronous-method",
            check=argument_checks.asynchronous_method,
            says="The method can have the asynchronous scheduling that is asked for.",
        ),
        _of_the_configuration(
            id="registered-memory",
            check=kv_transfer_checks.remapped_memory,
            says="No allocator moves memory that a KV connector has registered.",
        ),
        _of_the_configuration(
            id="hybrid-cache",
            check=kv_transfer_checks.hybrid_cache,
            says="No connector and no option takes one kind of cache where the target has two.",
        ),
        Rule(
            id="variables-of-fields",
            check=start_checks.variables_of_fields,
            says="No variable says otherwise than a field.",
            source="__post_init__ in vllm/config/parallel.py",
        ),
        _of_pods(
            id="visible-gpus",
            check=spec_checks.visible_gpus,
            says="The engine sees the GPUs that the device plugin gives its pod.",
            source="kubernetes: pkg/kubelet/kubelet_pods.go; CUDA's environment variables",
        ),
        _of_releases(
            id="group-backend",
            check=start_checks.group_backend,
            says="Pods of a replica over several nodes meet without Ray.",
            source="vllm/config/parallel.py",
        ),
        Rule(
            id="graphs-fit",
            check=engine_checks.fitting_graphs,
            says="CUDA graphs of all depths fit together.",
            source="vllm/v1/worker/gpu/cudagraph_utils.py; seen on an H100",
        ),
        Rule(
            id="draft-fits",
            check=spec_checks.draft_fits,
            says="The draft works with the target on this engine.",
            source="docs/preflight.md",
        ),
        _of_the_api(
            id="gpus-asked",
            check=placement_checks.asked_gpus,
            says="Fathom asks for the GPUs: one for each rank.",
        ),
        _of_pods(
            id="resources",
            check=placement_checks.asked_resources,
            says="Requests and limits are ones that Kubernetes takes.",
            source=f"{_KUBERNETES}, pkg/apis/core/helper/helpers.go",
        ),
        _of_pods(
            id="tolerations",
            check=placement_checks.tolerations,
            says="Tolerations are ones that Kubernetes takes.",
        ),
        _of_pods(
            id="access-modes",
            check=cache_checks.access_modes,
            says="All pods can mount the claim that Fathom makes, and the fetch can fill it.",
            source=f"{_KUBERNETES}; the scheduler's plugin VolumeRestrictions",
        ),
        _of_releases(
            id="dense-data-parallelism",
            check=spec_checks.dense_data_parallelism,
            says="Data parallelism over nodes, and of experts, is for mixture-of-experts models.",
            source="run_engine_core in vllm/v1/engine/core.py; vllm/config/model.py",
        ),
        _of_kubernetes(
            id="pod-template",
            check=pod_template_errors.pod_template_errors,
            says="podTemplate and workerTemplate fit the pods, and keep what live depth needs.",
        ),
        *training_checks.RULES,
    ),
    # What vLLM answers in pods that can be built.
    (
        _of_releases(
            id="probe-paths",
            check=pod_template_warnings.probe_paths,
            says="vLLM answers what probes ask, without a key.",
            source="vllm/entrypoints: AuthenticationMiddleware and the routers",
        ),
    ),
    # What this cluster offers, which is its own to be changed: of a spec that is otherwise right.
    (
        Rule(
            id="cluster-apis",
            check=placement_checks.needed_apis,
            says="The cluster serves the APIs that the pods need.",
            source="discovery",
        ),
    ),
    # What its user should know: of a spec that is carried out.
    (
        Rule(
            id="gpu-image",
            check=placement_checks.gpu_warnings,
            says="The image and the GPUs are of the same vendor and architecture.",
            source="docs/engines.md",
        ),
        Rule(
            id="draft-code",
            check=spec_checks.draft_code,
            says="No code of the draft's repository runs in the engine, and no pickle is read.",
            source="vllm/config/speculative.py, vllm/model_executor/model_loader",
        ),
        *cache_checks.RULES,
        Rule(
            id="token-budget",
            check=argument_checks.token_budget_warnings,
            says="A step has tokens for the drafts of all requests.",
            source="schedule() in vllm/v1/core/sched/scheduler.py",
        ),
        Rule(
            id="depths-named",
            check=argument_checks.named_depths,
            says="The startup schedule has a batch for each depth.",
            source="build_dynamic_sd_schedule_lookup in vllm/v1/worker/gpu/cudagraph_utils.py",
        ),
        Rule(
            id="hybrid-states",
            check=engine_checks.memory_of_states,
            says="A hybrid target has memory for the states of as many requests as are to run.",
            source="vllm/v1/kv_cache_interface.py, config/compilation.py",
            releases="0.28 to 0.33",
        ),
        Rule(
            id="profiled-context",
            check=spec_checks.profiled_context,
            says="Adaptive verification knows the context of the traffic.",
            source="vllm/v1/worker/gpu/spec_decode/adaptive_verification.py",
        ),
        Rule(
            id="hub-variables",
            check=cache_checks.hub_variables,
            says="The engine looks for weights where they lie.",
            source="huggingface_hub/constants.py",
        ),
        Rule(
            id="kv-transfer",
            check=kv_transfer_checks.kv_transfer_warnings,
            says="Both halves of a prefill/decode pair can exchange their KV cache.",
            source="docs/prefill-decode.md",
        ),
        _of_kubernetes(
            id="pod-template-likely",
            check=pod_template_warnings.pod_template_warnings,
            says="podTemplate leaves the pods what they need to run.",
        ),
    ),
)
"""Links, as docs/rules.md lists them. The first with an error ends it: the next rely on it."""


def problems_of(
    candidate: Candidate, links: Iterable[Iterable[Rule]] = CHAIN
) -> tuple[Problem, ...]:
    """What is wrong with a spec, errors first; empty: nothing is known to be.

    Errors are all those of the first link that finds any; warnings are those found up to there.
    """
    found: list[Problem] = []
    for link in links:
        found += (problem for rule in link for problem in rule.problems(candidate))
        if any(each.severity is Severity.ERROR for each in found):
            break
    return tuple(sorted(found, key=lambda each: -each.severity))


def errors_of(candidate: Candidate) -> tuple[Problem, ...]:
    """Why a spec must not be carried out; empty: nothing known stands against it."""
    found = problems_of(candidate, CHAIN[:-1])
    return tuple(each for each in found if each.severity is Severity.ERROR)
