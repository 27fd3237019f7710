"""The flags of vLLM that the operator passes, and those that it keeps for itself: one table.

A field of the spec that becomes a flag is one row: what is passed, what is refused in
`spec.engine.args` and with which words, and what a release lacks all follow from it. How
those are spelled whose value is read in `spec.engine.args` stands in
`fathom.engine.argument_parser.SHORTEST`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

from fathom.api.bounded_json import json_or_text
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.argument_parser import MAX_NUM_SEQS
from fathom.engine.capability_table import EVERY_RELEASE, SHUTDOWN_TIMEOUT, Capability
from fathom.engine.cuda_graphs import CONFIG
from fathom.engine.profile import EngineProfile
from fathom.engine.replica_layout import (
    EVERY_ADDRESS,
    EVERY_IPV4,
    HOST_FLAG,
    LEADER_ADDRESS,
    MASTER_PORT,
    WORKER_INDEX,
    ReplicaLayout,
    Role,
)
from fathom_vllm.bundle import SCHEDULER_CLASS

HTTP_PORT: Final = 8000
Value = Callable[[EngineProfile, Role], str | bool]
"""What follows a flag. True: nothing does; False: the flag is left out."""
_DRAFTING: Final = "set spec.draft and spec.speculation instead"
_BY_OPERATOR: Final = "the operator sets it, and clients reach the model through the Service"
_ONE_NODE: Final = "the operator lays out the nodes of a replica"
COMMAND: Final = ("vllm", "serve")


@dataclass(frozen=True, slots=True)
class Key:
    """One key that the operator writes."""

    name: str
    field: str
    """The field below `spec` that it is made from."""
    value: Callable[[EngineProfile], JsonValue]
    """None: it is left out."""


def _ranges(engine: EngineProfile) -> JsonValue:
    schedule = engine.schedule if engine.live else ()
    return [[part.first, part.last, part.depth] for part in schedule] or None


KEYS: Final = (
    Key("model", "draft.id", lambda engine: engine.spec.draft.id or None),
    Key("revision", "draft.revision", lambda engine: engine.spec.draft.revision or None),
    Key("method", "draft.method", lambda engine: engine.spec.draft.method.value),
    Key("num_speculative_tokens", "speculation.tokens", lambda engine: engine.deepest),
    Key(
        "draft_tensor_parallel_size",
        "draft.tensorParallelSize",
        lambda engine: engine.spec.draft.tensor_parallel_size,
    ),
    Key(
        "enable_adaptive_verification",
        "speculation.adaptiveVerification",
        lambda engine: engine.spec.verifies_adaptively or None,
    ),
    Key("num_speculative_tokens_per_batch_size", "speculation.tuning", _ranges),
)
"""In the order in which they are written."""


def speculative_config(engine: EngineProfile) -> dict[str, JsonValue]:
    """The value of --speculative-config."""
    # `4` and `true` are no words.
    config = {key: json_or_text(text) for key, text in engine.spec.draft.options.items()}
    ours = {key.name: key.value(engine) for key in KEYS}
    return config | {name: value for name, value in ours.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag that the operator passes, or refuses in `spec.engine.args`, or both."""

    names: tuple[str, ...]
    """All its names, first the one that is passed; a long one that ends in `-*` stands for
    everything that begins so."""
    value: Value | None = None
    """None: it is never passed."""
    field: str = ""
    """The field below `spec` that is set instead of it; empty: there is none."""
    instead: str = ""
    """What to do where no field stands for it, as the second half of a sentence; empty, and no
    field: `spec.engine.args` may have it."""
    but_for: frozenset[str] = frozenset()
    """Values that `spec.engine.args` may have anyway, behind the flag's own name."""
    plugin_only: bool = False
    """Refused only where the pods get the plugin: any other engine may have it."""
    since: Capability = EVERY_RELEASE
    """The releases that know it; elsewhere it is left out."""

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def refusal(self) -> str:
        """What to do instead of passing it in `spec.engine.args`; empty: it may be passed."""
        return f"set spec.{self.field} instead" if self.field else self.instead


def _above_one(size: int) -> str | bool:
    return str(size) if size > 1 else False


def _compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


def _max_num_seqs(engine: EngineProfile, _role: Role) -> str | bool:
    """The schedules have to end where the engine's batches end."""
    said = not engine.live or engine.arguments.has(MAX_NUM_SEQS)
    return False if said else str(engine.max_num_seqs)


def _compilation_config(engine: EngineProfile, _role: Role) -> str | bool:
    """What `engine.args` say in it, too: vLLM takes the last one."""
    sizes, stated = engine.added_sizes, engine.arguments.object(CONFIG)
    return _compact({**stated, "cudagraph_capture_sizes": sizes}) if sizes else False


def _of_spec(value: Callable[[SpeculativeDeploymentSpec], str | bool]) -> Value:
    return lambda engine, _: value(engine.spec)


def _where_nodes_meet(value: Callable[[ReplicaLayout, Role], str]) -> Value:
    """Value for a replica over several nodes; Kubernetes fills in LeaderWorkerSet's variables."""
    return lambda engine, role: value(engine.layout, role) if engine.layout.spans_nodes else False


def _where_clients_ask(value: Callable[[EngineProfile], str | bool]) -> Value:
    return lambda engine, role: value(engine) if role is Role.LEADER else False


def _host(engine: EngineProfile) -> str | bool:
    return False if engine.arguments.has(HOST_FLAG) else EVERY_IPV4


BEFORE_ARGS: Final = (
    Flag(names=("--model",), field="model.id"),
    Flag(
        names=("--revision",),
        value=_of_spec(lambda spec: spec.model.revision or False),
        field="model.revision",
    ),
    Flag(
        names=("--served-model-name",),
        value=_of_spec(lambda spec: spec.model.served_name or False),
        field="model.servedName",
    ),
    Flag(
        names=("--trust-remote-code", "--no-trust-remote-code"),
        value=_of_spec(lambda spec: spec.model.trust_remote_code),
        field="model.trustRemoteCode",
    ),
    Flag(names=("--hf-token",), field="model.tokenSecretRef"),
    Flag(
        names=("--tensor-parallel-size", "-tp"),
        value=_of_spec(lambda spec: str(spec.engine.tensor_parallel_size)),
        field="engine.tensorParallelSize",
    ),
    Flag(
        names=("--pipeline-parallel-size", "-pp"),
        value=_of_spec(lambda spec: _above_one(spec.engine.pipeline_parallel_size)),
        field="engine.pipelineParallelSize",
    ),
    Flag(
        names=("--data-parallel-size", "-dp"),
        value=_of_spec(lambda spec: _above_one(spec.engine.data_parallel_size)),
        field="engine.dataParallelSize",
    ),
    Flag(
        names=(
            "--data-parallel-*",
            "--no-data-parallel-*",
            *("-dpn", "-dpr", "-dpl", "-dpa", "-dpp", "-dpb", "-dph", "-dpe", "-dpm"),
        ),
        instead="set spec.engine.dataParallelSize; where that is set, remove this: the operator "
        "lays the engines out, and one of them takes all requests",
    ),
    Flag(
        names=("--prefill-context-parallel-size", "-pcp"),
        instead="it takes more GPUs than the pod gets, and is not supported yet",
    ),
    Flag(
        names=("--attention-backend",),
        value=_of_spec(lambda spec: spec.engine.attention_backend or False),
        field="engine.attentionBackend",
    ),
    Flag(
        names=("--speculative-config", "-sc"),
        value=lambda engine, _: (
            _compact(speculative_config(engine)) if engine.spec.drafts else False
        ),
        instead=_DRAFTING,
    ),
    Flag(names=("--spec-method",), field="draft.method"),
    Flag(names=("--spec-model",), field="draft.id"),
    Flag(names=("--spec-tokens",), field="speculation.tokens"),
    Flag(names=("--spec-*",), instead=_DRAFTING),
)
"""In the order in which they are passed, before `spec.engine.args`."""

AFTER_ARGS: Final = (
    Flag(
        names=("--scheduler-cls",),
        value=lambda engine, _: SCHEDULER_CLASS if engine.has_plugin else False,
        instead="the plugin brings its own scheduler; without it use tuning mode Static",
        plugin_only=True,
    ),
    Flag(names=("--max-num-seqs",), value=_max_num_seqs),
    Flag(names=("--compilation-config",), value=_compilation_config),
    Flag(
        names=("--config",),
        instead="write its options into spec.engine.args and the fields of the spec",
    ),
    Flag(
        names=("--nnodes", "-n"),
        value=_where_nodes_meet(lambda layout, _: str(layout.nodes)),
        instead=_ONE_NODE,
    ),
    Flag(
        names=("--node-rank", "-r"),
        value=_where_nodes_meet(
            lambda _, role: "0" if role is Role.LEADER else f"$({WORKER_INDEX})"
        ),
        instead=_ONE_NODE,
    ),
    Flag(
        names=("--master-addr",),
        value=_where_nodes_meet(lambda _, __: f"$({LEADER_ADDRESS})"),
        instead=_ONE_NODE,
    ),
    Flag(
        names=("--master-port",),
        value=_where_nodes_meet(lambda _, __: str(MASTER_PORT)),
        instead=_ONE_NODE,
    ),
    Flag(
        names=(HOST_FLAG,),
        value=_where_clients_ask(_host),
        instead="the operator sets it to 0.0.0.0; for pods that have IPv6 write --host ::",
        but_for=frozenset({EVERY_IPV4, EVERY_ADDRESS}),
    ),
    Flag(
        names=("--port",), value=_where_clients_ask(lambda _: str(HTTP_PORT)), instead=_BY_OPERATOR
    ),
    Flag(names=("--uds",), instead=_BY_OPERATOR),
    Flag(names=("--grpc", "--grpc-port"), instead=_BY_OPERATOR),
    Flag(
        names=("--shutdown-timeout",),
        value=_where_clients_ask(lambda engine: str(engine.spec.engine.drain_seconds)),
        field="engine.drainSeconds",
        since=SHUTDOWN_TIMEOUT,
    ),
    Flag(names=("--headless",), value=lambda _, role: role is Role.WORKER, instead=_ONE_NODE),
    Flag(
        names=("--api-server-count", "-asc"),
        instead="remove it: one server per pod shows all of its metrics, or, with data "
        "parallelism, vLLM's own number of them",
        but_for=frozenset({"1"}),
    ),
    Flag(
        names=("--api-key",),
        instead="arguments are for all to read; put the key into a Secret, and set VLLM_API_KEY "
        "from it in spec.engine.env",
    ),
    Flag(
        names=("--ssl-*", "--enable-ssl-refresh", "--no-enable-ssl-refresh"),
        instead="probes and metrics use plain HTTP in the pod; end TLS in front of the Service",
    ),
    Flag(
        names=("--disable-log-stats",),
        instead="tuning reads those statistics; without them use tuning mode Static",
        plugin_only=True,
    ),
)
"""In the order in which they are passed, behind `spec.engine.args`."""

FLAGS: Final = (*BEFORE_ARGS, *AFTER_ARGS)
FIELDS_OF_OLD: Final[Mapping[str, str]] = MappingProxyType(
    {
        "--num-speculative-tokens": "speculation.tokens",
        "--speculative-model": "draft.id",
        "--speculative-draft-tensor-parallel-size": "draft.tensorParallelSize",
        "--ngram-prompt-lookup-max": "draft.options.prompt_lookup_max",
        "--ngram-prompt-lookup-min": "draft.options.prompt_lookup_min",
    }
)
"""Options of vLLM before `--speculative-config`, which many pages still show, and their fields."""


def engine_args(engine: EngineProfile, role: Role = Role.LEADER) -> tuple[str, ...]:
    """What follows `vllm serve`.

    Nothing stands here that the user did not set, but for what serving in a pod needs (host, port,
    drain) and, where depth is live, what the hooks need.
    """
    return (
        engine.spec.model.id,
        *_passed(BEFORE_ARGS, engine, role),
        *engine.arguments.words,
        *_passed(AFTER_ARGS, engine, role),
    )


def _passed(flags: Iterable[Flag], engine: EngineProfile, role: Role) -> Iterator[str]:
    for flag in flags:
        value = flag.value(engine, role) if flag.value else False
        if value is False or not engine.start.has(flag.since):
            continue
        yield flag.name
        if value is not True:
            yield value
