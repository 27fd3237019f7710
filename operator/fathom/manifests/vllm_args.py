"""The vLLM command line. No flag of vLLM is spelled anywhere else."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pydantic import JsonValue

from fathom.api.problem import Problem
from fathom.api.spec import Accelerator, EngineSpec, SpeculativeDeploymentSpec
from fathom.core.capability import has_flag, live_depth
from fathom.core.cluster.nodes_per_replica import nodes_per_replica, spans_nodes
from fathom.core.depth import Schedule
from fathom.core.engine.depth_set import named_depths
from fathom.core.engine_options import Option, last_value, options, whole_number
from fathom.core.foreign_json import BeyondBoundsError, UnreadableJsonError, parsed_json
from fathom.manifests.capture_sizes import added_sizes
from fathom.manifests.group import LEADER_ADDRESS, MASTER_PORT, WORKER_INDEX, Role
from fathom.manifests.startup_schedule import startup_schedule
from fathom_vllm.bundle import SCHEDULER_CLASS

COMMAND: Final = ("vllm", "serve")
HTTP_PORT: Final = 8000
_MAX_NUM_SEQS: Final = 1024
_MAX_NUM_SEQS_OF_SMALL_GPUS: Final = 256
"""vLLM's own defaults, with 70 GiB of memory and more, but for the A100, and below
(`get_batch_defaults` in vllm/engine/arg_utils.py, 0.32)."""


@dataclass(frozen=True, slots=True)
class OwnedFlag:
    """A flag that the API owns, and what to do instead of passing it."""

    names: tuple[str, ...]
    """All its names; a long one that ends in `-*` stands for everything that begins so."""
    instead: str
    """What to do instead, as the second half of a sentence."""
    live_only: bool = False
    """Refused only where depth is live: a static engine may have it."""


def _set(field: str) -> str:
    return f"set spec.{field} instead"


_BY_OPERATOR: Final = "the operator sets it, and clients reach the model through the Service"
_ONE_NODE: Final = "the operator lays out the nodes of a replica"

OWNED_FLAGS: Final[tuple[OwnedFlag, ...]] = (
    OwnedFlag(("--model",), _set("model.id")),
    OwnedFlag(("--revision",), _set("model.revision")),
    OwnedFlag(("--served-model-name",), _set("model.servedName")),
    OwnedFlag(("--trust-remote-code", "--no-trust-remote-code"), _set("model.trustRemoteCode")),
    OwnedFlag(("--hf-token",), _set("model.tokenSecretRef")),
    OwnedFlag(
        ("--speculative-config", "-sc"),
        "set spec.draft and spec.speculation instead",
    ),
    OwnedFlag(("--spec-method",), _set("draft.method")),
    OwnedFlag(("--spec-model",), _set("draft.id")),
    OwnedFlag(("--spec-tokens",), _set("speculation.tokens")),
    OwnedFlag(("--spec-*",), "set spec.draft and spec.speculation instead"),
    OwnedFlag(("--tensor-parallel-size", "-tp"), _set("engine.tensorParallelSize")),
    OwnedFlag(("--pipeline-parallel-size", "-pp"), _set("engine.pipelineParallelSize")),
    OwnedFlag(("--data-parallel-size", "-dp"), _set("engine.dataParallelSize")),
    OwnedFlag(
        (
            "--data-parallel-*",
            "--no-data-parallel-*",
            "-dpn",
            "-dpr",
            "-dpl",
            "-dpa",
            "-dpp",
            "-dpb",
            "-dph",
            "-dpe",
            "-dpm",
        ),
        _set("engine.dataParallelSize"),
    ),
    OwnedFlag(
        ("--prefill-context-parallel-size", "-pcp"),
        "it takes more GPUs than the pod gets, and is not supported yet",
    ),
    OwnedFlag(("--attention-backend",), _set("engine.attentionBackend")),
    OwnedFlag(("--shutdown-timeout",), _set("engine.drainSeconds")),
    OwnedFlag(("--scheduler-cls",), "live depth brings its own scheduler"),
    OwnedFlag(("--config",), "write its options into spec.engine.args and the fields of the spec"),
    OwnedFlag(("--host",), _BY_OPERATOR),
    OwnedFlag(("--port",), _BY_OPERATOR),
    OwnedFlag(("--uds",), _BY_OPERATOR),
    OwnedFlag(("--grpc", "--grpc-port"), _BY_OPERATOR),
    OwnedFlag(("--api-server-count", "-asc"), "one server per pod shows all of its metrics"),
    OwnedFlag(
        ("--api-key",),
        "arguments are for all to read; put the key into a Secret, and set VLLM_API_KEY from it in "
        "spec.engine.env",
    ),
    OwnedFlag(
        ("--ssl-*", "--enable-ssl-refresh", "--no-enable-ssl-refresh"),
        "probes and metrics use plain HTTP in the pod; end TLS in front of the Service",
    ),
    OwnedFlag(("--headless",), _ONE_NODE),
    OwnedFlag(("--nnodes", "-n"), _ONE_NODE),
    OwnedFlag(("--node-rank", "-r"), _ONE_NODE),
    OwnedFlag(("--master-addr",), _ONE_NODE),
    OwnedFlag(("--master-port",), _ONE_NODE),
    OwnedFlag(
        ("--disable-log-stats",),
        "tuning reads those statistics; without them use tuning mode Static",
        live_only=True,
    ),
)


def owned_flag_problems(args: Sequence[str], *, live: bool = True) -> tuple[Problem, ...]:
    """Arguments that repeat what the API owns, in any spelling that vLLM's parser takes.

    Refused whatever the value: of two, the last wins, and the pod would not be what its spec says.

    Args:
        args: `spec.engine.args`.
        live: whether depth is live, which forbids a little more.
    """
    problems = []
    for option in options(args):
        where = f"spec.engine.args[{option.index}]"
        if option.name == "--":
            problems.append(Problem(where, "-- ends the options for vLLM: remove it."))
        elif (owned := _owner(option, live=live)) is not None:
            meaning = f" (which vLLM reads as {owned.name})" if owned.name != option.name else ""
            problems.append(
                Problem(where, f"{option.spelling}{meaning} may not be set here: {owned.instead}.")
            )
    return tuple(problems)


_SWITCHES: Final = ("--enable-", "--no-")
"""Options that begin so take no value; a test asks vLLM's parser."""
_TWO_IN_ONE: Final = re.compile(r"--?[A-Za-z][^\s=]*\s")


def lone_argument_problems(args: Sequence[str]) -> tuple[Problem, ...]:
    """Arguments that vLLM would take neither for an option nor for an option's value.

    Several values after one option are let through: some options take as many as there are. What an
    argument says is not repeated: it may be a secret.

    Args:
        args: `spec.engine.args`.
    """
    found = {option.index: option for option in options(args)}
    problems = []
    refusal = "no option stands before this, and the model comes from spec.model.id"
    # Of an argument that is no option; empty: it may be a value of the one before.
    for index, argument in enumerate(args):
        where = f"spec.engine.args[{index}]"
        if _TWO_IN_ONE.match(argument):
            name = argument.split(maxsplit=1)[0]
            sentence = (
                f"{name} and its value are one argument here, which vLLM does not know: make them "
                f"two, or write {name}= before the value."
            )
            problems.append(Problem(where, sentence))
            refusal = f"{name} has its value already"
        elif index in found:
            refusal = _no_value_after(found[index], argument)
        elif refusal:
            sentence = f"{refusal}: remove this argument, or write its option before it."
            problems.append(Problem(where, sentence))
    return tuple(problems)


def _no_value_after(option: Option, argument: str) -> str:
    """Why the next argument is no value of this option; empty: it may be one."""
    if "=" in argument:
        return f"{option.spelling} has its value already"
    return f"{option.spelling} takes no value" if option.name.startswith(_SWITCHES) else ""


@dataclass(frozen=True, slots=True)
class _Owned:
    name: str
    """What vLLM takes the option for."""
    instead: str


def _owner(option: Option, *, live: bool) -> _Owned | None:
    """The owned flag that an option means or may mean."""
    if option.name in ("--attention-config", "-ac"):
        return _attention_backend(option)
    flags = [flag for flag in OWNED_FLAGS if live or not flag.live_only]
    exact = (flag for flag in flags if option.name in flag.names)
    similar = (flag for flag in flags if any(_means(option.name, name) for name in flag.names))
    flag = next(exact, None) or next(similar, None)
    if flag is None:
        return None
    # A name of its own needs no explanation, and neither does one of a whole family.
    own = option.name.startswith("--") and (
        option.name in flag.names or flag.names[0].endswith("-*")
    )
    return _Owned(option.name if own else flag.names[0], flag.instead)


def _means(given: str, owned: str) -> bool:
    """Whether argparse may take `given` for `owned` though it is spelled otherwise."""
    if owned.endswith("-*"):
        family = owned.removesuffix("*")
        return given.startswith(family) or family.startswith(given)
    if len(owned) == len("-n"):
        # One letter takes its value attached: `-n2`.
        return given.startswith(owned) and not given.startswith("--")
    # Any beginning. One that is ambiguous stops vLLM, so nothing of use is lost.
    return owned.startswith(given)


def _attention_backend(option: Option) -> _Owned | None:
    """The attention backend has a field; the rest of that option's keys have none."""
    key = "backend"
    try:
        document = parsed_json(option.value or "")
    except BeyondBoundsError:
        # What it holds is not known, so the key may be in it.
        document = {key: None}
    except UnreadableJsonError:
        document = None
    if option.keys[:1] == (key,) or (isinstance(document, dict) and key in document):
        return _Owned("--attention-backend", _set("engine.attentionBackend"))
    return None


OWNED_SPECULATIVE_KEYS: Final[Mapping[str, str]] = {
    "model": "draft.id",
    "revision": "draft.revision",
    "method": "draft.method",
    "draft_tensor_parallel_size": "draft.tensorParallelSize",
    "num_speculative_tokens": "speculation.tokens",
    "num_speculative_tokens_per_batch_size": "speculation.tuning",
    "enable_adaptive_verification": "speculation.adaptiveVerification",
}
"""Keys of --speculative-config that the API owns, and the fields to use instead."""


def draft_option_problems(spec: SpeculativeDeploymentSpec) -> tuple[Problem, ...]:
    """Keys of `draft.options` that have a field of their own, or make a measurement of nothing.

    And values that are not read.
    """
    problems = [
        Problem(f"spec.draft.options.{key}", f"this has a field: set spec.{field} instead.")
        for key, field in OWNED_SPECULATIVE_KEYS.items()
        if key in spec.draft.options
    ]
    for key, text in spec.draft.options.items():
        try:
            parsed_json(text)
        except BeyondBoundsError as error:
            problems.append(Problem(f"spec.draft.options.{key}", f"{error}: write less of it."))
        except UnreadableJsonError:
            continue
    if spec.draft.options.get("rejection_sample_method") == "synthetic" and spec.tunable:
        problems.append(
            Problem(
                "spec.draft.options.rejection_sample_method",
                "with synthetic acceptance what is measured says nothing about the draft: it is "
                "for benchmarks, so use tuning mode Static.",
            )
        )
    return tuple(problems)


def engine_args(spec: SpeculativeDeploymentSpec, role: Role = Role.LEADER) -> tuple[str, ...]:
    """What follows `vllm serve`.

    Nothing stands here that the user did not set, but for what serving in a pod needs (host, port,
    drain) and, where depth is live, what the hooks need.
    """
    engine = spec.engine
    args = [spec.model.id]
    if spec.model.revision:
        args += ["--revision", spec.model.revision]
    if spec.model.served_name:
        args += ["--served-model-name", spec.model.served_name]
    if spec.model.trust_remote_code:
        args += ["--trust-remote-code"]
    args += ["--tensor-parallel-size", str(engine.tensor_parallel_size)]
    if engine.pipeline_parallel_size > 1:
        args += ["--pipeline-parallel-size", str(engine.pipeline_parallel_size)]
    if engine.data_parallel_size > 1:
        args += ["--data-parallel-size", str(engine.data_parallel_size)]
    if engine.attention_backend:
        args += ["--attention-backend", engine.attention_backend]
    if spec.drafts:
        config = json.dumps(speculative_config(spec), separators=(",", ":"))
        args += ["--speculative-config", config]
    args += engine.args
    if live_depth(spec):
        args += _live(spec)
    if spans_nodes(spec):
        args += _ranks(spec, role)
    args += _serving(engine) if role is Role.LEADER else ["--headless"]
    return tuple(args)


def _live(spec: SpeculativeDeploymentSpec) -> list[str]:
    """What an engine needs whose depth is changed while it runs."""
    args = ["--scheduler-cls", SCHEDULER_CLASS]
    if stated_max_num_seqs(spec) is None:
        # The schedules have to end where the engine's batches end.
        args += ["--max-num-seqs", str(max_batch(spec))]
    if sizes := added_sizes(spec, max_batch(spec)):
        graphs = {"cudagraph_capture_sizes": sizes}
        args += ["--compilation-config", json.dumps(graphs, separators=(",", ":"))]
    return args


def _serving(engine: EngineSpec) -> list[str]:
    """What an engine needs that clients reach in a pod."""
    args = ["--host", "0.0.0.0"]  # noqa: S104 - pods are reached at an address of their own
    args += ["--port", str(HTTP_PORT)]
    if has_flag(engine, "--shutdown-timeout"):
        args += ["--shutdown-timeout", str(engine.drain_seconds)]
    return args


def _value(text: str) -> JsonValue:
    """What an option stands for: `4` and `true` are no words."""
    try:
        return parsed_json(text)
    except UnreadableJsonError:
        return text


def _ranks(spec: SpeculativeDeploymentSpec, role: Role) -> list[str]:
    """Who meets whom where; Kubernetes fills in the variables of the LeaderWorkerSet."""
    rank = "0" if role is Role.LEADER else f"$({WORKER_INDEX})"
    return [
        *("--nnodes", str(nodes_per_replica(spec))),
        *("--node-rank", rank),
        *("--master-addr", f"$({LEADER_ADDRESS})"),
        *("--master-port", str(MASTER_PORT)),
    ]


def speculative_config(spec: SpeculativeDeploymentSpec) -> dict[str, JsonValue]:
    """The value of --speculative-config."""
    draft, speculation = spec.draft, spec.speculation
    live = live_depth(spec)
    config = {key: _value(text) for key, text in draft.options.items()}
    if draft.id:
        config["model"] = draft.id
    if draft.revision:
        config["revision"] = draft.revision
    config["method"] = draft.method.value
    config["num_speculative_tokens"] = (
        speculation.effective_max_tokens if live else speculation.tokens
    )
    if draft.tensor_parallel_size is not None:
        config["draft_tensor_parallel_size"] = draft.tensor_parallel_size
    if spec.verifies_adaptively:
        config["enable_adaptive_verification"] = True
    if live:
        schedule = startup_schedule(named_depths(spec), max_batch(spec))
        config["num_speculative_tokens_per_batch_size"] = _ranges(schedule)
    return config


def max_batch(spec: SpeculativeDeploymentSpec) -> int:
    """The largest number of requests in one engine step, where depth is live.

    Where `engine.args` say nothing, what vLLM would choose by itself on these GPUs. Of Custom ones
    the memory is not known, and the lower default is taken.
    """
    stated = stated_max_num_seqs(spec)
    with suppress(ValueError):
        if stated is not None:
            return max(1, int(stated))
    own = _MAX_NUM_SEQS
    if spec.node_pool.accelerator is Accelerator.CUSTOM:
        own = _MAX_NUM_SEQS_OF_SMALL_GPUS
    args = spec.engine.args
    if last_value(args, "--performance-mode", shortest="--perf") == "throughput":
        own *= 2
    tokens = whole_number(
        last_value(args, "--max-num-batched-tokens", shortest="--max-num-b") or ""
    )
    return min(own, tokens) if tokens is not None and tokens > 0 else own


_LOADED_AS_THE_HUB_HAS_THEM: Final = frozenset({"", "auto", "hf", "mistral"})
_LOADED_FROM_ALL_FILES: Final = frozenset(
    {"safetensors", "fastsafetensors", "instanttensor", "runai_streamer", "bitsandbytes"}
)
"""Values of --load-format with which vLLM reads a hub's files, and picks among them differently."""
_NAMING_OTHER_REPOSITORIES: Final = (
    "--tokenizer",
    "--hf-config-path",
    "--generation-config",
    "--lora-modules",
    "--enable-lora",
)


class Loading(Enum):
    """Which files of a repository's weights the engine reads, and where it looks for them."""

    CHOSEN = "those that vLLM chooses by default, in the hub's cache"
    ALL = "one format's, whichever there are, in the hub's cache"
    ELSEWHERE = "none, or not in the hub's cache"


def loading(args: Sequence[str]) -> Loading:
    """How `engine.args` have the weights loaded."""
    if last_value(args, "--download-dir", shortest="--dow") is not None:
        return Loading.ELSEWHERE
    stated = last_value(args, "--load-format", shortest="--load") or ""
    if stated in _LOADED_AS_THE_HUB_HAS_THEM:
        return Loading.CHOSEN
    return Loading.ALL if stated in _LOADED_FROM_ALL_FILES else Loading.ELSEWHERE


def names_other_repositories(args: Sequence[str]) -> bool:
    """Whether `engine.args` may make the engine look for more than target and draft."""
    return any(option.name in _NAMING_OTHER_REPOSITORIES for option in options(args))


def stated_max_num_seqs(spec: SpeculativeDeploymentSpec) -> str | None:
    """What `engine.args` says about the largest batch, in whatever spelling; None: nothing."""
    return last_value(spec.engine.args, "--max-num-seqs", shortest="--max-num-se")


def stated_kv_cache_dtype(spec: SpeculativeDeploymentSpec) -> str:
    """What `engine.args` says about the KV cache's type; `auto`, vLLM's default, for nothing."""
    return last_value(spec.engine.args, "--kv-cache-dtype", shortest="--kv-cache-d") or "auto"


def _ranges(schedule: Schedule) -> list[JsonValue]:
    return [[part.first, part.last, part.depth] for part in schedule]
